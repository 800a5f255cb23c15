//! What workers read of a set that is partly on the device.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Context, Dataset, ReadError, Row, Rows, Spec};

/// A set of which the samples below `kept` are on the device: they are not read.
pub(crate) struct RestOfSet {
    pub(crate) dataset: Arc<dyn Dataset>,
    pub(crate) kept: u64,
}

impl Dataset for RestOfSet {
    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn spec(&self) -> &Spec {
        self.dataset.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id < self.kept { Ok(()) } else { self.dataset.read(id, row, context) }
    }

    /// Consecutive samples of the rest are read together.
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        let mut first = 0;
        for run in ids.chunk_by(|&a, &b| (a < self.kept) == (b < self.kept)) {
            let range = first..first + run.len();
            if run.first().is_some_and(|&id| id >= self.kept) {
                let read = context.delegate(first, run, |context| {
                    self.dataset.read_many(run, &mut rows.part(range.clone()), context)
                });
                read.map_err(|(index, error)| (first + index, error))?;
            }
            first = range.end;
        }
        Ok(())
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.dataset.path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.dataset.fingerprint()
    }
}
