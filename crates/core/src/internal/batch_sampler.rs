//! Methods of a batch sampler for the loader, the cursor and the record of a run.

use std::ops::Range;

use crate::internal::source::RecordOrder;
use crate::{BatchInfo, BatchSampler, Result};

/// Sets the order of a source's records; the order of the shards stays.
pub fn with_records(batch_sampler: BatchSampler, records: RecordOrder) -> BatchSampler {
    batch_sampler.with_records(records)
}

/// This batch sampler for one rank alone, which gets the samples of all ranks.
pub fn on_one_rank(batch_sampler: &BatchSampler) -> BatchSampler {
    batch_sampler.on_one_rank()
}

/// The order of a source's records.
pub fn records(batch_sampler: &BatchSampler) -> RecordOrder {
    batch_sampler.records()
}

/// Number of positions of an epoch over all ranks, including skipped ones.
pub fn positions(batch_sampler: &BatchSampler) -> u64 {
    batch_sampler.positions()
}

/// Samples of a full step over all ranks: batch size times world size.
pub fn global_batch(batch_sampler: &BatchSampler) -> u64 {
    batch_sampler.global_batch()
}

/// A number that identifies the order of samples; see `Sampler::digest`.
pub fn digest(batch_sampler: &BatchSampler) -> u64 {
    batch_sampler.digest()
}

/// Skips steps of one epoch without reading them, for example the batches after a loss spike.
///
/// # Errors
/// As for `skip_positions`.
pub fn skip(batch_sampler: &mut BatchSampler, epoch: u64, steps: Range<u64>) -> Result<()> {
    batch_sampler.skip(epoch, steps)
}

/// The step that has `position`, counted as by `skip`.
pub fn step_of(batch_sampler: &BatchSampler, position: u64) -> u64 {
    batch_sampler.step_of(position)
}

/// Skips global positions of one epoch.
///
/// # Errors
/// `Config` for an empty range, and for a range beyond the end of the epoch.
pub fn skip_positions(batch_sampler: &mut BatchSampler, epoch: u64, positions: Range<u64>) -> Result<()> {
    batch_sampler.skip_positions(epoch, positions)
}

/// Checks that a custom sampler still gives the samples of a batch that was read ahead.
///
/// # Errors
/// `Config`, with the first sample that differs.
pub fn check_again(batch_sampler: &BatchSampler, info: &BatchInfo, again: &mut Vec<u64>) -> Result<()> {
    batch_sampler.check_again(info, again)
}

/// Replaces `draws` by the global position of each row of this rank's batch. Random numbers are keyed by it.
pub fn draws(batch_sampler: &BatchSampler, epoch: u64, start: u64, step: u64, draws: &mut Vec<u64>) {
    batch_sampler.draws(epoch, start, step, draws)
}

/// The global position of row `row` of this rank's batch; `None` if there is no such row.
pub fn position(batch_sampler: &BatchSampler, epoch: u64, start: u64, step: u64, row: usize) -> Option<u64> {
    batch_sampler.position(epoch, start, step, row)
}

/// The global position after step `step`: a run that has delivered the step resumes there.
pub fn position_after(batch_sampler: &BatchSampler, epoch: u64, start: u64, step: u64) -> u64 {
    batch_sampler.position_after(epoch, start, step)
}

/// The global position after the last step from `start`.
pub fn end(batch_sampler: &BatchSampler, epoch: u64, start: u64) -> u64 {
    batch_sampler.end(epoch, start)
}

/// The sample at a global position of an epoch; `None` beyond its end.
pub fn id(batch_sampler: &BatchSampler, epoch: u64, position: u64) -> Option<u64> {
    batch_sampler.id(epoch, position)
}

/// The sample to read instead of the one at `position`, after `attempt` other substitutes failed.
pub fn substitute(batch_sampler: &BatchSampler, epoch: u64, position: u64, attempt: u32) -> u64 {
    batch_sampler.substitute(epoch, position, attempt)
}

/// Number of skipped positions of `epoch` within `positions`.
pub fn skipped(batch_sampler: &BatchSampler, epoch: u64, positions: Range<u64>) -> u64 {
    batch_sampler.skipped(epoch, positions)
}
