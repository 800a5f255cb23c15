//! The description of a batch that travels with its bytes.

use std::path::PathBuf;
use std::sync::Arc;

use crate::source_order::SourcePosition;
use crate::{BatchContent, BatchProof, Extent, Timeline};

/// Which samples a batch holds. It travels with the slot of the batch, and its memory is reused for the
/// slot's next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchInfo {
    /// The request that the batch belongs to; batches of an abandoned request are dropped.
    pub request: u64,
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch, counted from the beginning of the request.
    pub step: u64,
    /// The position in the epoch at which the steps begin.
    pub start: u64,
    /// The sample ids, row by row. A substitute's id replaces the id of a sample that could not be read.
    pub ids: Vec<u64>,
    /// Number of valid rows, which come first. The rows after them repeat samples to pad the last batch.
    pub valid: usize,
    /// The valid rows' contribution to the proof of the run: see [`prove`](Self::prove).
    pub proof: BatchProof,
    /// The hash of the rows, if the run is recorded.
    pub content: Option<BatchContent>,
    /// The position up to which a source was read for this batch; `None` for a data set.
    pub source_position: Option<SourcePosition>,
    /// Rows whose sample could not be read, in ascending order.
    pub substituted: Vec<Substituted>,
    /// The times at which each stage worked on the batch.
    pub timeline: Timeline,
    /// The extent of each ragged field, in the order of the spec.
    pub extents: Vec<Extent>,
    /// The fields of which the host keeps the rows, too.
    pub host_rows: Vec<HostRows>,
}

/// The rows of a field that the host keeps, such as texts. They are known before the batch has arrived,
/// and stay when its slot is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRows {
    /// The name of the field.
    pub field: Arc<str>,
    /// The bytes of all rows, one after another.
    pub bytes: Vec<u8>,
    /// The end of each row in `bytes`.
    pub ends: Vec<usize>,
}

impl HostRows {
    /// The bytes of each row.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let start = |row: usize| row.checked_sub(1).map_or(0, |before| self.ends[before]);
        (0..self.ends.len()).map(move |row| &self.bytes[start(row)..self.ends[row]])
    }
}

/// A row whose sample could not be read, and its substitute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substituted {
    /// The row in the batch.
    pub row: usize,
    /// The id of the substitute.
    pub substitute: u64,
    /// The failed reads: of the row's own sample, then of other substitutes.
    pub failures: Vec<Failure>,
}

/// A read that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The sample's id.
    pub sample: u64,
    /// The sample's file, if known.
    pub path: Option<PathBuf>,
    /// Why it could not be read.
    pub cause: String,
}

#[expect(clippy::len_without_is_empty, reason = "every batch has rows")]
impl BatchInfo {
    /// The sample ids, row by row. A substitute's id replaces the id of a sample that could not be read.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Number of rows: the batch size, or less in a short last batch.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The step within the epoch, counted from where the epoch was begun or resumed.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Number of valid rows, at the front. The rows after them repeat samples to pad the last batch.
    pub fn valid_rows(&self) -> usize {
        self.valid
    }

    /// Rows whose sample could not be read, with their substitutes, in row order.
    pub fn substituted(&self) -> &[Substituted] {
        &self.substituted
    }
}

/// # For loaders
///
/// How the stages describe a batch. It may change in any release.
impl BatchInfo {
    /// Describes the batch of `other`. Keeps the allocated memory.
    pub fn copy_from(&mut self, other: &Self) {
        let Self { request, epoch, step, start, valid, proof, content, source_position, timeline, .. } =
            other;
        (self.request, self.epoch, self.step, self.start) = (*request, *epoch, *step, *start);
        (self.valid, self.proof, self.source_position) = (*valid, *proof, *source_position);
        (self.content, self.timeline) = (*content, *timeline);
        self.ids.clone_from(&other.ids);
        self.substituted.clone_from(&other.substituted);
        self.extents.clone_from(&other.extents);
        self.host_rows.clone_from(&other.host_rows);
    }

    /// Prepares for another batch. Keeps the allocated memory.
    pub fn reset(&mut self, request: u64, epoch: u64, step: u64) {
        (self.request, self.epoch, self.step) = (request, epoch, step);
        (self.valid, self.proof, self.source_position) = (0, BatchProof::default(), None);
        self.content = None;
        self.timeline = Timeline::default();
        self.ids.clear();
        self.substituted.clear();
        self.extents.clear();
    }

    /// Computes the proof of the valid rows, once their ids are final.
    pub fn prove(&mut self) {
        self.proof = BatchProof::of(self.epoch, &self.ids[..self.valid]);
    }
}
