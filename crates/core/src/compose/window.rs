//! Consecutive samples of a set.

use std::fmt;
use std::path::Path;

use crate::compose::{Parts, check_id};
use crate::{
    Context, Dataset, Fingerprint, Prefetched, ReadError, Row, Rows, Spec, StableDataset, StridedColumn,
};

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

    fn place(&self, id: u64) -> Result<(usize, u64), ReadError> {
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

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.parts().read(self.place(id)?, row, context)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        self.parts().read_many(ids, rows, context, |id| self.place(id))
    }

    fn has_random_geometry(&self) -> bool {
        self.inner.has_random_geometry()
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.parts().prefetch(ids, context, |id| self.place(id))
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let all = self.inner.column(field)?;
        let (first, len) = (usize::try_from(self.first).ok()?, usize::try_from(self.len).ok()?);
        let skipped = first.checked_mul(all.stride())?.checked_add(all.first())?;
        StridedColumn::new(all.bytes(), skipped, all.stride(), len, all.row_bytes()).ok()
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(self.first.checked_add(id).filter(|_| id < self.len)?)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"window").number(self.inner.fingerprint());
        state.number(self.first).number(self.len).value()
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} samples from {})", self.len, self.first)
    }
}
