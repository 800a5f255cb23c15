//! A selection of a reader's rows, in any order.

use std::path::Path;

use feedline_core::{Fingerprint, Prefetched, Result};

use crate::reader::{Visit, inside};
use crate::{FieldStream, Reader, Schema, Values};

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
    fn format(&self) -> &'static str {
        self.reader.format()
    }

    fn schema(&self) -> &Schema {
        self.reader.schema()
    }

    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        self.reader.read(self.find(sample)?, values).map_err(|error| error.at_sample(sample))
    }

    fn visit(&self, sample: u64, values: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        self.reader.visit(self.find(sample)?, values, to).map_err(|error| error.at_sample(sample))
    }

    fn visit_some(
        &self,
        sample: u64,
        wanted: &dyn Fn(usize) -> bool,
        values: &mut Values,
        to: &mut Visit<'_>,
    ) -> Result<()> {
        let visited = self.reader.visit_some(self.find(sample)?, wanted, values, to);
        visited.map_err(|error| error.at_sample(sample))
    }

    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        self.reader.stream(self.find(sample)?, field).map_err(|error| error.at_sample(sample))
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.reader.slice(*self.rows.get(usize::try_from(sample).ok()?)?, field)
    }

    fn left_out(&self, sample: u64, field: usize, to: &mut dyn FnMut(&[u8])) {
        if let Ok(row) = self.find(sample) {
            self.reader.left_out(row, field, to);
        }
    }

    fn is_json(&self, field: usize) -> bool {
        self.reader.is_json(field)
    }

    fn ticks_per_day(&self, field: usize) -> Option<u64> {
        self.reader.ticks_per_day(field)
    }

    fn together(&self) -> Option<u64> {
        self.reader.together()
    }

    fn row_memory(&self) -> u64 {
        self.reader.row_memory()
    }

    fn prefetch(&self, samples: &[u64]) -> Prefetched {
        self.reader.prefetch(&Vec::from_iter(samples.iter().filter_map(|sample| self.find(*sample).ok())))
    }

    fn classes(&self) -> Option<&[String]> {
        self.reader.classes()
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.reader.path(self.find(sample).ok()?)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.reader.fingerprint()).number(self.len());
        self.rows.iter().fold(state, |state, row| state.number(*row)).value()
    }
}
