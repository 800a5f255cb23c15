//! Samples of similar length together, so that padded batches have little padding.
//!
//! The samples are sorted by length once, and the sorted list is cut into buckets of several batches each. In
//! every epoch each bucket is shuffled and cut into batches, and the batches are shuffled. Any position is
//! found in constant time. If the samples do not fill whole batches, there is a short batch, which comes
//! last. It is cut out of the sorted list at another place in each epoch, so that its lengths vary.
//!
//! Runs of similar cost are buckets of one batch each that stay nearly sorted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Permutation, config, digest, tag};
use crate::Result;
use crate::random::{Random, key};

/// The sampler of [`Sampler::bucketed`](super::Sampler::bucketed).
#[derive(Clone)]
pub struct Bucketed {
    /// The samples, the shortest first.
    sorted: Arc<[u64]>,
    batch: u64,
    batches_per_bucket: u64,
    /// Whether the batches here are runs of samples of similar cost, for loaders of any batch size.
    of_runs: bool,
    digest: u64,
}

/// One epoch.
struct Epoch<'a> {
    sampler: &'a Bucketed,
    seed: u64,
    epoch: u64,
    /// Number of full batches.
    full: u64,
    /// The range of the short batch in the sorted list.
    short: Range<u64>,
}

impl Bucketed {
    pub(super) fn new(lengths: &[u32], batch: u64, batches_per_bucket: u64) -> Result<Self> {
        for (what, size) in
            [("the batch size", batch), ("the number of batches per bucket", batches_per_bucket)]
        {
            if size == 0 {
                return Err(config(format!("{what} is 0: it must be at least 1")));
            }
        }
        let mut sorted: Vec<u64> = (0..lengths.len() as u64).collect();
        sorted.sort_unstable_by_key(|&id| (lengths[id as usize], id));
        let lengths = digest(lengths.iter().map(|&length| u64::from(length)));
        let digest = key(&[lengths, batch, batches_per_bucket]);
        Ok(Self { sorted: sorted.into(), batch, batches_per_bucket, of_runs: false, digest })
    }

    /// Runs of `run` samples of similar cost, for loaders of any batch size.
    pub(super) fn of_runs(costs: &[u32], run: u64) -> Result<Self> {
        if run == 0 {
            return Err(config("a run of 0 samples: it must have at least 1".to_owned()));
        }
        let runs = Self::new(costs, run, 1)?;
        Ok(Self { of_runs: true, digest: key(&[runs.digest, tag(b"sorted  ")]), ..runs })
    }

    /// The batch size that a loader must have, if any.
    pub(super) fn batch_of_loader(&self) -> Option<u64> {
        (!self.of_runs).then_some(self.batch)
    }

    pub(super) fn samples(&self) -> u64 {
        self.sorted.len() as u64
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn fill(&self, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let (full, rest) = (self.samples() / self.batch, self.samples() % self.batch);
        let first = Random::from_key(key(&[seed, epoch, tag(b"short   ")])).below(full + 1) * self.batch;
        let of = Epoch { sampler: self, seed, epoch, full, short: first..first + rest };
        let (mut at, mut left) = (start, out);
        while !left.is_empty() {
            let in_batch = self.batch - at % self.batch;
            let (now, later) =
                left.split_at_mut(left.len().min(usize::try_from(in_batch).unwrap_or(usize::MAX)));
            of.fill(at / self.batch, at % self.batch, now);
            (at, left) = (at + now.len() as u64, later);
        }
    }
}

impl Epoch<'_> {
    /// Writes the samples of batch `batch` of the epoch, from row `row` on.
    fn fill(&self, batch: u64, row: u64, out: &mut [u64]) {
        let Bucketed { sorted, batch: size, batches_per_bucket: per_bucket, .. } = self.sampler;
        if batch == self.full {
            for (id, at) in out.iter_mut().zip(self.short.start + row..) {
                *id = sorted[at as usize];
            }
            return;
        }
        let batch = Permutation::new(self.full, key(&[self.seed, self.epoch, tag(b"batches ")])).at(batch);
        let (bucket, batch) = (batch / per_bucket, batch % per_bucket);
        let first = bucket * per_bucket * size;
        let len = (per_bucket * size).min(self.full * size - first);
        if self.sampler.of_runs {
            self.fill_run(bucket, row, out);
        } else {
            Permutation::new(len, key(&[self.seed, self.epoch, tag(b"bucket  "), bucket]))
                .fill(batch * size + row, out);
        }
        for id in out {
            let at = first + *id;
            let skipped = if at < self.short.start { 0 } else { self.short.end - self.short.start };
            *id = sorted[(at + skipped) as usize];
        }
    }

    /// Writes the places, in run `run`, of the samples from row `row` on. The run stays nearly sorted, so
    /// that the samples of a step have similar costs: samples are shuffled only within blocks of a quarter of
    /// the run, which begin at another place in each epoch.
    fn fill_run(&self, run: u64, row: u64, out: &mut [u64]) {
        let size = self.sampler.batch;
        let block = size.div_ceil(4);
        let random = &mut Random::from_key(key(&[self.seed, self.epoch, tag(b"blocks  "), run]));
        let (shift, descends) = (random.below(block), random.below(2) == 1);
        for (id, row) in out.iter_mut().zip(row..) {
            let number = (row + shift) / block;
            let start = (number * block).saturating_sub(shift);
            let end = ((number + 1) * block - shift).min(size);
            let order = key(&[self.seed, self.epoch, tag(b"block   "), run, number]);
            let at = start + Permutation::new(end - start, order).at(row - start);
            *id = if descends { size - 1 - at } else { at };
        }
    }
}

impl fmt::Debug for Bucketed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, batch, buckets) = (self.sorted.len(), self.batch, self.batches_per_bucket);
        if self.of_runs {
            return write!(f, "{samples} samples, runs of {batch} of similar cost");
        }
        write!(f, "{samples} samples, batches of {batch}, buckets of {buckets} batches")
    }
}
