//! The order of an epoch, for the batch sampler.

use crate::{Result, Sampler};

/// Checks that this sampler fits a data set of `len` samples.
///
/// # Errors
/// `Config` for an empty data set, one longer than `MAX_LEN`, a number of weights or labels other than
/// `len`, and listed ids that the data set does not have.
pub fn check(sampler: &Sampler, len: u64) -> Result<()> {
    sampler.check(len)
}

/// Number of positions of an epoch over a data set of `len` samples.
pub fn len(sampler: &Sampler, len: u64) -> u64 {
    sampler.len(len)
}

/// The sample at `position`.
///
/// # Panics
/// As for `fill`.
pub fn id(sampler: &Sampler, len: u64, seed: u64, epoch: u64, position: u64) -> u64 {
    sampler.id(len, seed, epoch, position)
}

/// Writes the samples at positions `start`, `start + 1`, ...
///
/// # Panics
/// If the positions exceed `len(len)`, or the sampler fails `check(len)`.
pub fn fill(sampler: &Sampler, len: u64, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
    sampler.fill(len, seed, epoch, start, out)
}

/// Samples of the batches that `bucketed` makes; `None` for other samplers.
pub fn bucketed_batch(sampler: &Sampler) -> Option<u64> {
    sampler.bucketed_batch()
}

/// Whether an epoch contains every sample of the data set exactly once.
pub fn is_permutation(sampler: &Sampler) -> bool {
    sampler.is_permutation()
}

/// Whether an epoch may contain a sample more than once.
pub fn repeats(sampler: &Sampler) -> bool {
    sampler.repeats()
}

/// A number that identifies this order over `len` samples; a cursor with another digest is rejected.
pub fn digest(sampler: &Sampler, len: u64) -> u64 {
    sampler.digest(len)
}
