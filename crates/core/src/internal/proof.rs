//! The bookkeeping of proofs, and the expected ones of resumed runs.

use std::ops::Range;

use crate::{BatchSampler, Proof};

/// The expected proof of the global `positions` of one epoch. Use it for an epoch that ended early, or that
/// drops its last batch and was resumed with another world size.
pub fn expected_part(batch_sampler: &BatchSampler, epoch: u64, positions: Range<u64>) -> Proof {
    Proof::expected_part(batch_sampler, epoch, positions)
}

/// Adds one sample.
pub fn add(proof: &mut Proof, epoch: u64, id: u64) {
    proof.add(epoch, id)
}

/// Adds samples of one epoch.
pub fn add_all(proof: &mut Proof, epoch: u64, ids: &[u64]) {
    proof.add_all(epoch, ids)
}
