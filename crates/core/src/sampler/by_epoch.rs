//! A sampler for each span of epochs.

use std::fmt;
use std::sync::Arc;

use super::{Sampler, config};
use crate::Result;
use crate::random::key;

/// The sampler of [`Sampler::by_epoch`](super::Sampler::by_epoch).
#[derive(Clone)]
pub struct ByEpoch {
    /// The first epoch of each sampler, in order from 0 on.
    spans: Arc<[(u64, Sampler)]>,
}

impl ByEpoch {
    pub(super) fn new(spans: Vec<(u64, Sampler)>) -> Result<Self> {
        if spans.first().is_none_or(|(first, _)| *first != 0) {
            return Err(config("the first sampler of by_epoch is not for epoch 0: give one for it"));
        }
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            let (before, after) = (pair[0].0, pair[1].0);
            return Err(config(format!(
                "by_epoch has a sampler from epoch {after} after one from epoch {before}: give them in order"
            )));
        }
        Ok(Self { spans: spans.into() })
    }

    /// These samplers for a loader whose batches have up to `batch` samples.
    pub(super) fn with_batch(self, batch: usize) -> Self {
        let spans = self.spans.iter().cloned().map(|(first, sampler)| (first, sampler.with_batch(batch)));
        Self { spans: spans.collect() }
    }

    /// The sampler of an epoch.
    pub(super) fn of(&self, epoch: u64) -> &Sampler {
        let next = self.spans.partition_point(|(first, _)| *first <= epoch);
        &self.spans[next.saturating_sub(1)].1
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Sampler> {
        self.spans.iter().map(|(_, sampler)| sampler)
    }

    pub(super) fn check(&self, len: u64) -> Result<()> {
        let positions = self.of(0).len(len);
        for (first, sampler) in &*self.spans {
            sampler.check(len)?;
            if sampler.len(len) != positions {
                return Err(config(format!(
                    "the sampler from epoch {first} has {} samples per epoch, and that from epoch 0 has \
                     {positions}: set both by draws",
                    sampler.len(len)
                )));
            }
            if sampler.unit() != self.of(0).unit() {
                return Err(config(format!(
                    "the sampler from epoch {first} has groups of {}, and that from epoch 0 groups of {}: \
                     make them groups of one size",
                    sampler.unit(),
                    self.of(0).unit()
                )));
            }
        }
        Ok(())
    }

    pub(super) fn digest(&self, len: u64) -> u64 {
        self.spans.iter().fold(0, |state, (first, sampler)| key(&[state, *first, sampler.digest(len)]))
    }
}

impl fmt::Debug for ByEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, sampler)) in self.spans.iter().enumerate() {
            write!(f, "{}{sampler:?} from epoch {first}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
