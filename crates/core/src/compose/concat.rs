//! One set after the other.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::compose::{Parts, check_id, check_len, common_spec, reads_parts, stores_parts};
use crate::{
    About, Dataset, Decoded, Fingerprint, Groups, ReadError, Result, Spec, StableDataset, Storage,
    StridedColumn,
};

/// The samples of several sets with the same fields, one set after the other; [`Dataset::concat`] makes one
/// of two.
///
/// The limits of ragged fields may differ: those of the concatenation are the largest.
///
/// ```
/// use std::sync::Arc;
/// use feedline_core::compose::{Concat, InMemory};
/// use feedline_core::Dataset;
///
/// let shard = |from: u8| InMemory::new().field("x", [], [from, from + 1]);
/// let shards = [shard(0)?, shard(10)?, shard(20)?];
/// let all = Concat::new(shards.map(|shard| Arc::new(shard) as Arc<dyn Dataset>))?;
/// assert_eq!((all.len(), all.place(3)), (6, Some((1, 1))));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Concat {
    parts: Vec<StableDataset>,
    spec: Spec,
    /// The first sample of each part, and the number of all samples.
    starts: Vec<u64>,
    /// `None` if the parts are sets of their own, not the files of one set.
    files: Option<Files>,
}

/// What is known of parts that are the files of one set.
pub(super) struct Files {
    /// The names of the classes, for files without them.
    classes: Option<Vec<String>>,
}

impl Files {
    /// The parts have the same `row_memory`, since one set of options opens them.
    pub(super) fn about<'a>(&'a self, parts: &'a [StableDataset]) -> About<'a> {
        let all = || parts.iter().map(StableDataset::about);
        let groups = all().filter_map(|about| about.groups).reduce(|one, other| Groups {
            largest: one.largest.max(other.largest),
            bytes: one.bytes.saturating_add(other.bytes),
        });
        let first = all().next().unwrap_or_default();
        About {
            classes: self.classes.as_deref().or(first.classes),
            categories: &[],
            groups,
            block_shuffle: all().filter_map(|about| about.block_shuffle).max(),
            row_memory: all().map(|about| about.row_memory).min().unwrap_or_default(),
            ..first
        }
    }
}

impl Concat {
    /// The samples of `parts`, in their order.
    ///
    /// # Errors
    /// `Config` for no parts, parts with different fields, or more than 2^63 samples.
    pub fn new(parts: impl IntoIterator<Item = Arc<dyn Dataset>>) -> Result<Self> {
        let parts: Vec<_> = parts.into_iter().map(StableDataset::new).collect();
        let spec = common_spec("concatenation", &parts)?;
        Self::join(parts, spec, None)
    }

    fn join(parts: Vec<StableDataset>, spec: Spec, files: Option<Files>) -> Result<Self> {
        let mut starts = vec![0];
        let mut len = 0_u64;
        for part in &parts {
            len = check_len("concatenation", len.checked_add(part.len()))?;
            starts.push(len);
        }
        Ok(Self { parts, spec, starts, files })
    }

    /// The part that contains sample `id`, and its id in that part; `None` if there is no such sample.
    pub fn place(&self, id: u64) -> Option<(usize, u64)> {
        // The last part that starts at or before the sample, which skips empty parts.
        let part = self.starts.partition_point(|&start| start <= id) - 1;
        (part < self.parts.len()).then(|| (part, id - self.starts[part]))
    }

    fn parts(&self) -> Parts<'_> {
        Parts { files: self.files.as_ref(), ..Parts::new("concatenation", &self.parts) }
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len())?;
        Ok(self.place(id).unwrap_or_default())
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Concat {
    /// One set whose files are `parts`, each of the fields `spec`. The set is read as one file is: it is
    /// shuffled by the groups of its files, and errors name its samples. `classes` are for files without
    /// names of classes.
    ///
    /// # Errors
    /// `Config` for more than 2^63 samples.
    pub fn of_files(parts: Vec<Arc<dyn Dataset>>, spec: Spec, classes: Option<Vec<String>>) -> Result<Self> {
        Self::join(parts.into_iter().map(StableDataset::new).collect(), spec, Some(Files { classes }))
    }
}

impl Dataset for Concat {
    fn len(&self) -> u64 {
        self.starts[self.parts.len()]
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    reads_parts!();

    fn fingerprint(&self) -> u64 {
        let (count, is_of_files) = (self.parts.len() as u64, self.files.is_some());
        let state = Fingerprint::new();
        let state = if is_of_files { state } else { state.bytes(b"concat") };
        let add = |state: Fingerprint, part: &StableDataset| {
            let state = if is_of_files { state } else { state.number(part.len()) };
            state.number(part.fingerprint())
        };
        self.parts.iter().fold(state.number(count), add).value()
    }
}

impl Storage for Concat {
    stores_parts!();

    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let Some(lengths) = part.storage().lengths()? else { return Ok(None) };
            all.resize_with(lengths.len(), Vec::new);
            all.iter_mut().zip(lengths).for_each(|(all, lengths)| all.extend(lengths));
        }
        Ok(Some(all))
    }

    fn group(&self, id: u64) -> Range<u64> {
        let Some((part, inner)) = self.place(id) else { return id..id };
        let Range { start, end } = self.parts[part].storage().group(inner);
        let before = self.starts[part];
        start + before..end.saturating_add(before)
    }

    fn decoded(&self, id: u64) -> Result<Option<Decoded>> {
        let Some((part, inner)) = self.place(id) else { return Ok(None) };
        let decoded = self.parts[part].storage().decoded(inner).map_err(|error| error.at_sample(id))?;
        Ok(decoded.map(|decoded| decoded.behind(self.starts[part])))
    }

    fn forget(&self, id: u64) {
        if let Some((part, inner)) = self.place(id) {
            self.parts[part].storage().forget(inner);
        }
    }

    /// The column of the only part that has samples; `None` if several parts have some.
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let mut parts = (0..self.parts.len()).filter(|&part| self.starts[part] < self.starts[part + 1]);
        let only = parts.next()?;
        if parts.next().is_some() { None } else { self.parts[only].storage().column(field) }
    }
}

impl fmt::Debug for Concat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Concat({} samples of {} parts)", self.len(), self.parts.len())
    }
}
