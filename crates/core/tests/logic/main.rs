//! Tests of the logic without threads: samplers, cursors, compositions, checks.

mod batch_sampler;
mod batches;
mod check;
mod compose;
mod context;
mod cursor;
mod fingerprint;
mod golden;
mod grouped;
mod memory;
mod packed;
mod packed_source;
mod permutation;
mod proof;
mod samplers;
