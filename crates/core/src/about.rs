//! What a data set says of itself.

/// Facts about a data set, beside its length and its fields. [`Dataset::about`](crate::Dataset::about)
/// returns them. No read depends on them.
///
/// The default is right for a set that reads from no other, decodes one sample at a time and turns no
/// pictures. A set that reads from others changes what differs:
///
/// ```
/// use feedline_core::{About, InMemory, Dataset};
/// let numbers = InMemory::new().field("number", [], [1_u8, 2, 3])?;
/// let of_inner = About { plain_shuffle: Some((100, 400)), ..numbers.about() };
/// let of_outer = About { nesting: 1 + of_inner.nesting, ..of_inner };
/// assert_eq!((of_outer.nesting, of_outer.plain_shuffle), (1, Some((100, 400))));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The block and window to use with [`Sampler::block`](crate::Sampler::block) if the set decodes samples
    /// in groups and its cache cannot hold all of them. A full shuffle would decode a group for nearly every
    /// sample. `None` if the order makes no difference.
    pub block_shuffle: Option<(u64, u64)>,
    /// The block and window of the [`Sampler::block`](crate::Sampler::block) that `LoaderBuilder::shuffle`
    /// uses for this set, if the set is decoded in groups and too large to be shuffled as a whole. `None` if
    /// all samples are shuffled at once.
    ///
    /// Unlike `block_shuffle`, it must depend on the data alone, not on a cache, a machine or an option of
    /// how the data are held: the order of a seed would change with it.
    pub plain_shuffle: Option<(u64, u64)>,
    /// For a table, the bytes of all of its rows, and whether they are held in memory, decoded once;
    /// otherwise they are decoded in groups. `None` for any other set.
    pub table_rows: Option<(u64, bool)>,
    /// Whether a read crops, flips or turns pictures at random. [`zip`](crate::Dataset::zip) refuses two such
    /// sets: each draws its own random numbers, so an image and its mask would not match. A set that reads
    /// from others is random if one of them is.
    pub has_random_geometry: bool,
    /// How many sets are read through one another below this one: 0 for a set that reads from no other; in a
    /// wrapper, one more than the set that it reads. Each takes a part of a worker's stack, so compositions
    /// and loaders refuse more than [`MAX_NESTING`](crate::compose::MAX_NESTING).
    pub nesting: usize,
}
