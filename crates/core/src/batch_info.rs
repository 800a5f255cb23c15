//! What is known of a batch beside its bytes.

use std::path::PathBuf;

use crate::SourcePosition;

/// Which batch a slot holds. It travels with the slot, and its memory is used again for the slot's next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchInfo {
    /// The request that the batch belongs to; batches of a request that was given up are dropped.
    pub request: u64,
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch, counted from where the request began.
    pub step: u64,
    /// The sample ids, row by row; a substitute stands in the place of a sample that could not be read.
    pub ids: Vec<u64>,
    /// Valid rows, the first ones; those behind them repeat samples of the epoch, to pad the last batch.
    pub valid: usize,
    /// Of a source, how far it was read for this batch; `None` for a data set.
    pub source_position: Option<SourcePosition>,
    /// Rows whose sample could not be read, in order.
    pub substituted: Vec<Substituted>,
}

/// A row whose sample could not be read, and the sample that stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substituted {
    /// The row.
    pub row: usize,
    /// The sample that is there instead.
    pub substitute: u64,
    /// The reads that failed: first that of the row's own sample, then those of other substitutes.
    pub failures: Vec<Failure>,
}

/// A read that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The sample.
    pub sample: u64,
    /// Its file, where known.
    pub path: Option<PathBuf>,
    /// Why it could not be read.
    pub cause: String,
}

impl BatchInfo {
    /// Prepares for another batch, and keeps the memory.
    pub fn reset(&mut self, request: u64, epoch: u64, step: u64) {
        (self.request, self.epoch, self.step) = (request, epoch, step);
        (self.valid, self.source_position) = (0, None);
        self.ids.clear();
        self.substituted.clear();
    }
}
