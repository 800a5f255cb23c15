//! What travels with a batch's bytes through the stages.

use std::path::PathBuf;

use crate::Reached;

/// Which batch a slot holds: made by the decode stage, read by the training loop, used again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// The run of the pipeline it belongs to: batches of an abandoned run are dropped on the way.
    pub run: u64,
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch, counted from where this run's epoch began.
    pub step: u64,
    /// The sample ids, row by row; a substitute in the place of a sample that could not be read.
    pub ids: Vec<u64>,
    /// Rows that are due: those behind repeat samples of the epoch, to fill a last batch.
    pub due: usize,
    /// Where a source is read up to with this batch; `None` for a data set. A batch of a source without rows is none: it
    /// tells that the epoch is over.
    pub reached: Option<Reached>,
    /// Rows whose sample could not be read, in order.
    pub replaced: Vec<Replaced>,
}

/// A row whose sample could not be read, and what is in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The row.
    pub row: usize,
    /// The sample that is there instead.
    pub given: u64,
    /// The reads that failed: of the sample that was due, then of substitutes.
    pub failures: Vec<Failure>,
}

/// A read that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The sample.
    pub sample: u64,
    /// Its file, where known.
    pub path: Option<PathBuf>,
    /// Why.
    pub cause: String,
}
