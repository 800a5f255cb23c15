//! A selection of a data set's rows, in any order.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{
    About, Context, Dataset, Error, FieldStream, Fingerprint, Groups, Prefetched, ReadError, Result, Row,
    Spec, Storage, TakeItems,
};

use crate::error::inside;

/// The samples of a data set that a list names, in the order of the list. A sample may come twice.
#[derive(Debug)]
pub(crate) struct Rows {
    inner: Arc<dyn Dataset>,
    rows: Vec<u64>,
}

impl Rows {
    /// The samples `rows` of `inner`. All of them must exist.
    pub(crate) fn new(inner: Arc<dyn Dataset>, rows: Vec<u64>) -> Self {
        debug_assert!(rows.iter().all(|row| *row < inner.len()));
        Self { inner, rows }
    }

    /// The inner set's number of sample `sample`.
    fn find(&self, sample: u64) -> Result<u64> {
        inside(sample, self.len(), self.inner.path(0).unwrap_or(Path::new("")))?;
        Ok(self.rows[sample as usize])
    }
}

impl Dataset for Rows {
    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let read = self.inner.read(self.find(sample)?, row, context);
        read.map_err(|error| Error::of_read(error).at_sample(sample).into())
    }

    /// The rows of a group may be anywhere, so nothing is known of the order to read them in.
    fn about(&self) -> About<'_> {
        let about = self.inner.about();
        let groups = about.groups.map(|groups| Groups { bytes: 0, ..groups });
        About { groups, block_shuffle: None, categories: &[], ..about }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.inner.path(self.find(sample).ok()?)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.inner.fingerprint()).number(self.len());
        self.rows.iter().fold(state, |state, row| state.number(*row)).value()
    }
}

impl Storage for Rows {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        let stream = self.inner.storage().stream(self.find(sample)?, field);
        stream.map_err(|error| error.at_sample(sample))
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.inner.storage().slice(self.find(sample).ok()?, field)
    }

    fn left_out(&self, sample: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        self.inner.storage().left_out(self.find(sample)?, field, epoch, to)
    }

    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        let rows = samples.iter().filter_map(|sample| self.find(*sample).ok());
        self.inner.storage().prefetch(&Vec::from_iter(rows), context)
    }
}
