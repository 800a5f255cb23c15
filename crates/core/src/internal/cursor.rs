//! The bookkeeping of a cursor: the loader makes, moves and fits it.

use crate::internal::source::SourcePosition;
use crate::{BatchProof, BatchSampler, Cursor, Proof, Result};

/// The cursor of a new run: epoch 0, nothing delivered.
pub fn new(batch_sampler: &BatchSampler, fingerprint: u64) -> Cursor {
    Cursor::new(batch_sampler, fingerprint)
}

/// This cursor, moved to a position in `epoch` that a run of these options reaches between two steps;
/// proof and order hash stay.
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
/// `Cursor` for a cursor of an earlier feedline, which keyed random numbers by samples; for another data
/// set, seed or sampler, for a position beyond the epoch or inside a step of
/// the saved world (some ranks delivered their part of that step, others did not), and for an offset in a
/// shard, which only the cursor of a source has.
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
