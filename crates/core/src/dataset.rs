//! The trait that users implement for their own data.

use std::path::Path;
use std::sync::Arc;

use crate::compose::{self, Cached, Concat, Map, Negatives, Repeat, Sample, Subset, Window, Zip};
use crate::random::key;
use crate::storage::OneByOne;
use crate::{About, Context, Fingerprint, Row, Rows, Spec, StableDataset, Storage};

/// The error of a read: any error type.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// The error of [`Dataset::read_many`]: the index of the row that failed, and its error.
pub type RowError = (usize, ReadError);

/// Samples with random access, identified by ids from 0 to `len() - 1`.
///
/// `read` is called from many threads at once, in any order. Its output must depend only on `id` and on the
/// epoch, the draw and the random numbers of `context`, never on the thread or on earlier reads.
///
/// ```
/// use feedline_core::{Context, DType, Dataset, ReadError, Row, Spec};
///
/// struct Squares { spec: Spec }
///
/// impl Dataset for Squares {
///     fn len(&self) -> u64 { 1000 }
///     fn spec(&self) -> &Spec { &self.spec }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
///         Ok(())
///     }
/// }
/// let squares = Squares { spec: Spec::new().field("square", DType::I64, [])? };
/// assert_eq!(squares.len(), 1000);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a data set",
    label = "not a `Dataset`",
    note = "a source is loaded by `Loader::source_builder`, and shuffled by `shuffle_shards` and \
            `shuffle_buffer`"
)]
#[expect(clippy::len_without_is_empty, reason = "a loader refuses a set without samples")]
pub trait Dataset: Send + Sync + 'static {
    /// Number of samples; the same for every call.
    fn len(&self) -> u64;

    /// The fields of a sample; the same for every call. They may be [open](Spec::is_open), as those of files
    /// are: of texts, of `u64`, or of a size that varies without a limit. A loader takes such a set once its
    /// fields have limits.
    fn spec(&self) -> &Spec;

    /// Writes sample `id` into `row`. It must write the whole row: a reused row contains bytes of an earlier
    /// sample. A row of a ragged field is written whole, even if it has no items.
    ///
    /// A set of files puts each field by [`Row::put`], which takes those of an open spec too. Of such a field
    /// it may read no file unless the row [wants](Row::wants) it.
    ///
    /// In debug builds a reused row is filled with 0xFF, so that missing bytes show.
    /// [`check_dataset`](crate::check_dataset) finds them in any build.
    ///
    /// # Errors
    /// Any error; the training loop receives it with stage, batch and sample.
    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError>;

    /// Writes several samples at once: `ids[i]` into row `i`.
    ///
    /// The default calls [`read`](Self::read) once per sample. Override it when a bulk copy is cheaper.
    ///
    /// # Errors
    /// The index in `ids` of the sample that failed, and its error.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        for (index, &id) in ids.iter().enumerate() {
            let mut row = rows.row(index);
            context
                .sample(index, id, |context| self.read(id, &mut row, context))
                .map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// How the samples lie, and what can be had without reading them one by one.
    fn storage(&self) -> &dyn Storage {
        &OneByOne
    }

    /// How the samples are decoded and composed: facts that no read depends on. The default is right for a
    /// set that reads from no other.
    fn about(&self) -> About<'_> {
        About::default()
    }

    /// The file that contains sample `id`, for error messages.
    fn path(&self, _id: u64) -> Option<&Path> {
        None
    }

    /// A number that identifies this data; a cursor with another fingerprint is rejected. If data cannot be
    /// read for it, give the error to [`Fingerprint::unread`](crate::Fingerprint::unread): the loader is
    /// not built then.
    ///
    /// The default covers only length, spec and [`version`](Self::version), so different data of the same
    /// length and spec has the same fingerprint. Override it to cover the data itself:
    /// [`Fingerprint`] covers files by content.
    fn fingerprint(&self) -> u64 {
        let spec = self.spec();
        let state = match spec.is_open() {
            true => Fingerprint::new().number(self.len()).bytes(spec.to_string().as_bytes()).value(),
            false => spec_key(key(&[self.len()]), spec),
        };
        versioned(state, self.version())
    }

    /// The version of the samples, which the default [`fingerprint`](Self::fingerprint) covers. Change it
    /// when samples change, so that cursors of the old ones are rejected. Default: 0.
    ///
    /// ```
    /// use feedline_core::{Context, Dataset, ReadError, Row, Spec};
    /// struct Squares(Spec);
    /// impl Dataset for Squares {
    ///     fn len(&self) -> u64 { 1000 }
    ///     fn spec(&self) -> &Spec { &self.0 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         row.field_mut::<i64>(0)?[0] = (id * id) as i64 + 1;
    ///         Ok(())
    ///     }
    ///     fn version(&self) -> u64 { 2 } // 1 was without the `+ 1`
    /// }
    /// ```
    fn version(&self) -> u64 {
        0
    }

    /// Applies `function` to each sample: it gets the sample, and the row of `spec` to write.
    ///
    /// The sample is read into scratch memory, so nothing is allocated per sample. The function must write
    /// the whole row, and its output must depend only on the sample and on the random numbers of the context.
    /// Its random numbers are independent of those of this set.
    ///
    /// ```
    /// use feedline_core::{DType, Dataset, InMemory, Spec};
    /// let pixels = InMemory::new().field("pixels", [2], [0_u8, 255, 51, 102])?;
    /// let spec = Spec::new().field("pixels", DType::F32, [2])?;
    /// let scaled = pixels.map(spec, |sample, row, context| {
    ///     let brightness = context.random().range(0.9, 1.1) as f32;
    ///     for (to, &from) in row.field_mut::<f32>(0)?.iter_mut().zip(sample.field::<u8>(0)?) {
    ///         *to = f32::from(from) / 255.0 * brightness;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(scaled.len(), 2);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a spec without fields.
    fn map(
        self,
        spec: Spec,
        function: impl Fn(&Sample<'_>, &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError>
        + Send
        + Sync
        + 'static,
    ) -> crate::Result<Map>
    where
        Self: Sized,
    {
        Map::new(StableDataset::new(Arc::new(self)), spec, function)
    }

    /// The samples for which `keep` is true. Blocks while it reads every sample once; [`Subset::ids`] returns
    /// the index; pass it to [`subset`](Self::subset) later to skip the scan.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    /// let data = InMemory::new().field("label", [], [3_u8, 7, 3, 1])?;
    /// let threes = data.filter(|sample| sample.bytes(0) == [3])?;
    /// assert_eq!(threes.ids(), [0, 2]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Sample` for a sample that cannot be read, with its file; `Config` for a set whose reads use random
    /// numbers or the epoch.
    fn filter(self, keep: impl FnMut(&Sample<'_>) -> bool) -> crate::Result<Subset>
    where
        Self: Sized,
    {
        compose::filter(StableDataset::new(Arc::new(self)), keep, |_| {})
    }

    /// The samples `ids`, in this order; sample `n` of the subset is sample `ids[n]`.
    ///
    /// # Errors
    /// `Config` for an id that the set does not have.
    fn subset(self, ids: impl Into<Vec<u64>>) -> crate::Result<Subset>
    where
        Self: Sized,
    {
        Subset::new(StableDataset::new(Arc::new(self)), ids.into())
    }

    /// The first `count` samples, or all if there are fewer.
    fn take(self, count: u64) -> Window
    where
        Self: Sized,
    {
        Window::new(StableDataset::new(Arc::new(self)), 0, count)
    }

    /// The samples after the first `count`; none if there are fewer.
    fn skip(self, count: u64) -> Window
    where
        Self: Sized,
    {
        Window::new(StableDataset::new(Arc::new(self)), count, u64::MAX)
    }

    /// Splits the samples at random: part `n` gets `fractions[n]` of them, in the order of their ids. Every
    /// sample is in exactly one part. The choice depends only on the number of samples, the fractions and
    /// `seed`.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    /// let data = InMemory::new().field("x", [], (0..100_u8).collect::<Vec<_>>())?;
    /// let [train, validate] = data.split([0.8, 0.2], 7)?;
    /// assert_eq!((train.len(), validate.len()), (80, 20));
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for fractions below 0, or whose sum is not 1.
    fn split<const N: usize>(self, fractions: [f64; N], seed: u64) -> crate::Result<[Subset; N]>
    where
        Self: Sized,
    {
        compose::split(&StableDataset::new(Arc::new(self)), fractions, seed)
    }

    /// Splits for a cross-validation: `count` folds, each a training and a validation set. Every sample is in
    /// exactly one validation set, and the sizes of these differ by at most one. With `labels`, one per
    /// sample, the folds are stratified: each label is spread evenly too. The choice depends only on the
    /// number of samples, the labels and `seed`. A fold takes 8 bytes per sample.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    /// let data = InMemory::new().field("x", [], (0..10_u8).collect::<Vec<_>>())?;
    /// let labels = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
    /// for [train, validate] in data.folds(5, Some(&labels), 7)? {
    ///     assert_eq!(train.len(), 8);
    ///     assert!(validate.ids()[0] < 5 && validate.ids()[1] >= 5); // one of each label
    /// }
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for less than 2 folds, more folds than samples, and another number of labels than samples.
    fn folds(self, count: usize, labels: Option<&[u32]>, seed: u64) -> crate::Result<Vec<[Subset; 2]>>
    where
        Self: Sized,
    {
        compose::folds(&StableDataset::new(Arc::new(self)), count, labels, seed)
    }

    /// As [`folds`](Self::folds), with all samples of a group in one validation set, such as the pictures of
    /// a patient: `groups[i]` is the group of sample `i`. The largest groups are placed first, each in the
    /// smallest validation set so far, so that these have about the same size.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    /// let data = InMemory::new().field("x", [], (0..6_u8).collect::<Vec<_>>())?;
    /// let folds = data.folds_of_groups(2, &[8, 9, 8, 8, 3, 9], 7)?;
    /// let ids: Vec<_> = folds.iter().map(|[_, validate]| validate.ids()).collect();
    /// assert_eq!(ids, [&[0, 2, 3][..], &[1, 4, 5]]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for less than 2 folds, more folds than groups, and another number of groups than samples.
    fn folds_of_groups(self, count: usize, groups: &[u32], seed: u64) -> crate::Result<Vec<[Subset; 2]>>
    where
        Self: Sized,
    {
        compose::folds_of_groups(&StableDataset::new(Arc::new(self)), count, groups, seed)
    }

    /// Adds negatives: the field `NAME.negatives`, `i64 [count]`, where NAME is the first of `fields`. Each
    /// is an item from 0 to `items - 1` that the sample does not have in any of `fields`, all equally likely;
    /// repetitions are possible. They depend only on `seed`, the epoch and the sample: so they are drawn anew
    /// in each epoch, and are the same after a resume, on any worker and in any world.
    ///
    /// The fields hold whole numbers, one or several per sample, such as categories of a table. Numbers
    /// outside of the range, such as padding, are ignored. Of a list that a table cuts (`last`, `max`), all
    /// items count, also those that rows [leave out](Storage::left_out); the table holds these in memory. So
    /// call `negatives` before [`map`](Self::map), which may change the items.
    ///
    /// ```
    /// use feedline_core::{CheckOptions, Dataset, InMemory, check_dataset};
    /// let data = InMemory::new().field("item", [], [2_i64, 0])?.negatives(&["item"], 3, 4, 7)?;
    /// let negatives = data.spec().index_of("item.negatives")?;
    /// assert_eq!(data.spec().fields()[negatives].shape(), [3]); // such as 0, 3, 1 beside item 2
    /// assert!(check_dataset(&data, &CheckOptions::default())?.is_clean());
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for no negatives, items or fields, and a field that does not exist or is not of whole
    /// numbers, or was cut before a `map`. A sample that has all items is an error when it is read.
    fn negatives(self, fields: &[&str], count: usize, items: u64, seed: u64) -> crate::Result<Negatives>
    where
        Self: Sized,
    {
        Negatives::new(StableDataset::new(Arc::new(self)), fields, count, items, seed)
    }

    /// The samples of this set, then those of `other`; [`Concat::new`] takes any number of sets.
    ///
    /// # Errors
    /// `Config` for sets of different specs, or more than 2^63 samples.
    fn concat(self, other: impl Dataset) -> crate::Result<Concat>
    where
        Self: Sized,
    {
        Concat::new([Arc::new(self) as Arc<dyn Dataset>, Arc::new(other)])
    }

    /// Sample `id` of this set and of `other` side by side; [`Zip::new`] takes any number of sets.
    ///
    /// # Errors
    /// `Config` for sets of different lengths, or a field name that both have; also if both crop, flip or
    /// turn pictures at random ([`Zip::independent`] allows that).
    fn zip(self, other: impl Dataset) -> crate::Result<Zip>
    where
        Self: Sized,
    {
        Zip::new([Arc::new(self) as Arc<dyn Dataset>, Arc::new(other)])
    }

    /// The samples `times` times within an epoch, each time with other random numbers.
    ///
    /// # Errors
    /// `Config` for more than 2^63 samples.
    fn repeat(self, times: u64) -> crate::Result<Repeat>
    where
        Self: Sized,
    {
        Repeat::new(StableDataset::new(Arc::new(self)), times)
    }

    /// Each sample `copies` times in a row, each time with other random numbers: several answers for one
    /// prompt. A loader keeps the copies together in a batch, in every order and on any number of ranks
    /// ([`Sampler::grouped`](crate::Sampler::grouped)), so its batch size must be a multiple of `copies`. A
    /// sampler orders the samples of this set, such as by one weight for each.
    ///
    /// Call it last, or only [`map`](Self::map) and [`cached`](Self::cached) behind it: a set that chooses or
    /// mixes samples, such as [`take`](Self::take), has no copies that belong together.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    /// let data = InMemory::new().field("prompt", [], [5_u8, 6])?.repeated(3)?;
    /// assert_eq!((data.len(), data.about().copies), (6, 3)); // 5, 5, 5, 6, 6, 6
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for 0 copies, for more than 2^63 samples, and for a set that is repeated already.
    fn repeated(self, copies: u64) -> crate::Result<Repeat>
    where
        Self: Sized,
    {
        Repeat::in_a_row(StableDataset::new(Arc::new(self)), copies)
    }

    /// Keeps samples in memory once they are read: the first ones that fit in `budget` bytes.
    ///
    /// # Errors
    /// `Config` for a set without fields.
    fn cached(self, budget: usize) -> crate::Result<Cached>
    where
        Self: Sized,
    {
        Cached::in_memory(Arc::new(StableDataset::new(Arc::new(self))), budget)
    }

    /// Keeps samples in the file at `path` once they are read: the first ones that fit in `budget` bytes. The
    /// file lasts: the next run finds the samples there, and several processes may share it.
    ///
    /// The file has a header with the fingerprint and the spec of the set, and a checksum for every sample.
    /// A cache of other data or a file that was cut is replaced by a new one, and a damaged sample is read
    /// again and written anew.
    ///
    /// # Errors
    /// `Config` for a set without fields, or if there is something else than a cache at `path`; `Data` when
    /// the file cannot be opened or made.
    fn cached_in_file(self, path: impl AsRef<Path>, budget: u64) -> crate::Result<Cached>
    where
        Self: Sized,
    {
        Cached::in_file(Arc::new(StableDataset::new(Arc::new(self))), path.as_ref(), budget)
    }
}

/// Adds a version to a fingerprint. Version 0 leaves it as it was before there were versions.
pub(crate) fn versioned(state: u64, version: u64) -> u64 {
    if version == 0 { state } else { key(&[state, u64::from_le_bytes(*b"version "), version]) }
}

/// Adds a spec to a fingerprint.
pub(crate) fn spec_key(mut state: u64, spec: &Spec) -> u64 {
    for field in spec.fields() {
        for byte in field.name().bytes().chain(field.dtype().name().bytes()) {
            state = key(&[state, u64::from(byte)]);
        }
        for &n in field.shape() {
            state = key(&[state, n as u64]);
        }
        if field.as_ragged().is_some() {
            state = key(&[state, u64::from_le_bytes(*b"ragged  ")]);
        }
    }
    state
}
