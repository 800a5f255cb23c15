//! A selection of a reader's rows, in any order.

use std::path::Path;

use feedline_core::{About, Fingerprint, Groups, Prefetched, Result, Spec};

use crate::reader::inside;
use crate::{Buffers, FieldStream, Reader, Sink, Storage};

/// The samples of a reader that a list names, in the order of the list. A sample may come twice.
#[derive(Debug)]
pub(crate) struct Rows {
    reader: Box<dyn Reader>,
    rows: Vec<u64>,
}

impl Rows {
    /// The samples `rows` of `reader`. All of them must exist.
    pub(crate) fn new(reader: Box<dyn Reader>, rows: Vec<u64>) -> Self {
        debug_assert!(rows.iter().all(|row| *row < reader.len()));
        Self { reader, rows }
    }

    /// The reader's number of sample `sample`.
    fn find(&self, sample: u64) -> Result<u64> {
        inside(sample, self.len(), self.reader.path(0).unwrap_or(Path::new("")))?;
        Ok(self.rows[sample as usize])
    }
}

impl Reader for Rows {
    fn schema(&self) -> &Spec {
        self.reader.schema()
    }

    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn visit(&self, sample: u64, row: &mut Sink<'_>, buffers: &mut Buffers) -> Result<()> {
        let visited = self.reader.visit(self.find(sample)?, row, buffers);
        visited.map_err(|error| error.at_sample(sample))
    }

    /// The rows of a group may be anywhere, so nothing is known of the order to read them in.
    fn about(&self) -> About<'_> {
        let about = self.reader.about();
        let groups = about.groups.map(|groups| Groups { bytes: 0, ..groups });
        About { groups, block_shuffle: None, categories: &[], ..about }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.reader.path(self.find(sample).ok()?)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.reader.fingerprint()).number(self.len());
        self.rows.iter().fold(state, |state, row| state.number(*row)).value()
    }
}

impl Storage for Rows {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        let stream = self.reader.storage().stream(self.find(sample)?, field);
        stream.map_err(|error| error.at_sample(sample))
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.reader.storage().slice(self.find(sample).ok()?, field)
    }

    fn left_out(&self, sample: u64, field: usize, to: &mut dyn FnMut(&[u8])) {
        if let Ok(row) = self.find(sample) {
            self.reader.storage().left_out(row, field, to);
        }
    }

    fn prefetch(&self, samples: &[u64]) -> Prefetched {
        let rows = samples.iter().filter_map(|sample| self.find(*sample).ok());
        self.reader.storage().prefetch(&Vec::from_iter(rows))
    }
}
