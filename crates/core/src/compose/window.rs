//! Consecutive samples of a set.

use std::fmt;

use crate::compose::{Parts, check_id, reads_parts, stores_parts};
use crate::{Dataset, Fingerprint, ReadError, Spec, StableDataset, Storage, StridedColumn};

/// Consecutive samples of another set; made by [`Dataset::take`] and [`Dataset::skip`].
pub struct Window {
    inner: StableDataset,
    first: u64,
    len: u64,
}

impl Window {
    /// Samples `first..first + len`, cut at the end of the set.
    pub(crate) fn new(inner: StableDataset, first: u64, len: u64) -> Self {
        let all = inner.len();
        let first = first.min(all);
        Self { first, len: len.min(all - first), inner }
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new("window", std::slice::from_ref(&self.inner))
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len)?;
        Ok((0, self.first + id))
    }
}

impl Dataset for Window {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    reads_parts!();

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"window").number(self.inner.fingerprint());
        state.number(self.first).number(self.len).value()
    }
}

impl Storage for Window {
    stores_parts!();

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let all = self.inner.storage().column(field)?;
        let (first, len) = (usize::try_from(self.first).ok()?, usize::try_from(self.len).ok()?);
        let skipped = first.checked_mul(all.stride())?.checked_add(all.first())?;
        StridedColumn::new(all.bytes(), skipped, all.stride(), len, all.row_bytes()).ok()
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} samples from {})", self.len, self.first)
    }
}
