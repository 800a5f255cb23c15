//! One set after the other.

use std::fmt;
use std::sync::Arc;

use crate::compose::{Parts, check_id, check_len, common_spec, reads_parts, stores_parts};
use crate::{Dataset, Fingerprint, ReadError, Result, Spec, StableDataset, Storage, StridedColumn};

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
}

impl Concat {
    /// The samples of `parts`, in their order.
    ///
    /// # Errors
    /// `Config` for no parts, parts with different fields, or more than 2^63 samples.
    pub fn new(parts: impl IntoIterator<Item = Arc<dyn Dataset>>) -> Result<Self> {
        let parts: Vec<_> = parts.into_iter().map(StableDataset::new).collect();
        let spec = common_spec("concatenation", &parts)?;
        let mut starts = vec![0];
        let mut len = 0_u64;
        for part in &parts {
            len = check_len("concatenation", len.checked_add(part.len()))?;
            starts.push(len);
        }
        Ok(Self { parts, spec, starts })
    }

    /// The part that contains sample `id`, and its id in that part; `None` if there is no such sample.
    pub fn place(&self, id: u64) -> Option<(usize, u64)> {
        // The last part that starts at or before the sample, which skips empty parts.
        let part = self.starts.partition_point(|&start| start <= id) - 1;
        (part < self.parts.len()).then(|| (part, id - self.starts[part]))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new("concatenation", &self.parts)
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len())?;
        Ok(self.place(id).unwrap_or_default())
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
        let state = Fingerprint::new().bytes(b"concat").number(self.parts.len() as u64);
        let add =
            |state: Fingerprint, part: &StableDataset| state.number(part.len()).number(part.fingerprint());
        self.parts.iter().fold(state, add).value()
    }
}

impl Storage for Concat {
    stores_parts!();

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
