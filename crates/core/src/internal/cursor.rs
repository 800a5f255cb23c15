//! The bookkeeping of a cursor: the loader makes, moves and fits it.

use crate::internal::source::SourcePosition;
use crate::{BatchProof, BatchSampler, Cursor, Proof, Result};

/// The cursor of a new run: epoch 0, nothing delivered.
pub fn new(batch_sampler: &BatchSampler, fingerprint: u64) -> Cursor {
    Cursor::new(batch_sampler, fingerprint)
}

/// Moves the cursor to a position in `epoch`, which must be between two steps of a run with these options.
/// Proof and order hash stay.
pub fn at(cursor: Cursor, epoch: u64, source_position: SourcePosition) -> Cursor {
    cursor.at(epoch, source_position)
}

/// Moves to the beginning of `epoch`.
pub fn begin(cursor: &mut Cursor, epoch: u64) {
    cursor.begin(epoch)
}

/// Advances over one delivered step.
pub fn deliver(cursor: &mut Cursor, batch_sampler: &BatchSampler, delivered: &BatchProof) {
    cursor.deliver(batch_sampler, delivered)
}

/// Advances over a delivered batch of a source, to the position up to which it was read.
pub fn reach(cursor: &mut Cursor, source_position: SourcePosition, delivered: &BatchProof) {
    cursor.reach(source_position, delivered)
}

/// The position of a source at which this rank continues.
pub fn source_position(cursor: &Cursor) -> SourcePosition {
    cursor.source_position()
}

/// Whether `batch_sampler` has no step left in this epoch.
pub fn is_at_end(cursor: &Cursor, batch_sampler: &BatchSampler) -> bool {
    cursor.is_at_end(batch_sampler)
}

/// Adds the proof of ranks that this rank continues; see `fit`.
pub fn merge_proof(cursor: &mut Cursor, delivered: &Proof) {
    cursor.merge_proof(delivered)
}

/// Checks that a run of `batch_sampler` can resume here, and returns the cursor to resume with.
///
/// # Errors
/// `Cursor` if the cursor is of an earlier feedline, of another data set, seed or sampler, or of a source;
/// and if its position is beyond the epoch, or inside a step of the saved world (some ranks have delivered
/// their part of the step, others have not).
pub fn fit(cursor: Cursor, batch_sampler: &BatchSampler, fingerprint: u64) -> Result<Cursor> {
    cursor.fit(batch_sampler, fingerprint)
}

/// Like `fit`, for a source; `shards` is the batch sampler over its shards.
///
/// # Errors
/// As for `fit`. Also for a rank or world size that differs from the saved run's, unless the
/// cursor is at the beginning or the end of an epoch: each rank has its own position, which other ranks
/// do not know.
pub fn fit_source(cursor: Cursor, shards: &BatchSampler, fingerprint: u64) -> Result<Cursor> {
    cursor.fit_source(shards, fingerprint)
}
