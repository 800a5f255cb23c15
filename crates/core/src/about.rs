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
pub struct About<'a> {
    /// The format of the files: `npy`, `webdataset`, ... Empty if the samples are in none.
    pub format: &'static str,
    /// The names of the classes, if the set has them. Label `n` is the class `classes[n]`.
    pub classes: Option<&'a [String]>,
    /// The name of each column with categories, and the categories in the order of their numbers.
    pub categories: &'a [(String, Vec<String>)],
    /// How samples are decoded together. `None` if they are read one by one.
    pub groups: Option<Groups>,
    /// Max bytes that may hold all rows in memory, each decoded once, if all have one size. 0 if reading a
    /// sample costs no more than a copy.
    pub row_memory: u64,
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
    /// Whether a batch is made of all of its samples by one call of
    /// [`read_many`](crate::Dataset::read_many). If one of them cannot be read, the batch is made again with
    /// its substitute; an error at the index behind the last sample is one of the whole batch.
    pub is_whole: bool,
    /// The number of copies of a sample that follow each other: that of
    /// [`repeated`](crate::Dataset::repeated). A loader keeps them together, and its sampler orders the
    /// samples before they were repeated. 0 or 1 for
    /// other sets.
    pub copies: u64,
    /// How many sets are read through one another below this one: 0 for a set that reads from no other; in a
    /// wrapper, one more than the set that it reads. Each takes a part of a worker's stack, so compositions
    /// and loaders refuse more than [`MAX_NESTING`](crate::compose::MAX_NESTING).
    pub nesting: usize,
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl About<'_> {
    /// The facts without the names of classes, which the set owns.
    pub fn without_names(self) -> About<'static> {
        About {
            format: self.format,
            classes: None,
            categories: &[],
            groups: self.groups,
            row_memory: self.row_memory,
            block_shuffle: self.block_shuffle,
            plain_shuffle: self.plain_shuffle,
            table_rows: self.table_rows,
            has_random_geometry: self.has_random_geometry,
            is_whole: self.is_whole,
            copies: self.copies,
            nesting: self.nesting,
        }
    }
}

/// Samples that are decoded together, such as the row groups of a Parquet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The number of samples of the largest group.
    pub largest: u64,
    /// The decoded bytes of all samples, as the files state them; 0 if they do not.
    pub bytes: u64,
}

/// A plain shuffle mixes up to this many bytes of decoded samples as a whole. It shuffles larger sets by
/// blocks. The limit does not depend on the size of the cache, so that a seed gives the same order on every
/// machine.
const SHUFFLED_AT_ONCE: u64 = 512 << 20;

impl Groups {
    /// The block and window of a plain shuffle of `samples` samples: [`About::plain_shuffle`].
    pub fn plain_shuffle(self, samples: u64) -> Option<(u64, u64)> {
        self.block_shuffle(samples.div_ceil(self.largest.max(1)), SHUFFLED_AT_ONCE)
    }

    /// The block and window of a block shuffle of `groups` groups, of which a cache holds `cache_bytes`.
    /// `None` if it holds all of them. The cache holds two windows: batches at the end of a window are read
    /// beside batches of the next window.
    pub fn block_shuffle(self, groups: u64, cache_bytes: u64) -> Option<(u64, u64)> {
        if self.bytes <= cache_bytes || self.largest == 0 {
            return None;
        }
        let held = u128::from(cache_bytes) * u128::from(groups) / u128::from(self.bytes);
        Some((self.largest, self.largest.saturating_mul((held as u64 / 2).max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_holds_two_windows_of_a_block_shuffle() {
        let groups = Groups { largest: 10, bytes: 1000 };
        for (cache, expected) in [
            (1000, None),
            (999, Some((10, 40))),
            (700, Some((10, 30))),
            (100, Some((10, 10))),
            (0, Some((10, 10))),
        ] {
            assert_eq!(groups.block_shuffle(10, cache), expected, "{cache} of 1000 bytes");
        }
        assert_eq!(Groups { largest: 0, ..groups }.block_shuffle(0, 10), None, "no samples");
    }
}
