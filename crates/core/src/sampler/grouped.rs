//! Another sampler over groups of consecutive samples, which stay together.

use std::fmt;

use super::custom::NO_SAMPLE;
use super::{Sampler, config};
use crate::Result;
use crate::random::key;

/// The sampler of [`Sampler::grouped`](super::Sampler::grouped).
#[derive(Clone)]
pub struct Grouped {
    size: u64,
    inner: Box<Sampler>,
}

impl Grouped {
    pub(super) fn new(size: u64, inner: Sampler) -> Result<Self> {
        if size == 0 {
            return Err(config("groups of 0 samples: a group has at least 1"));
        }
        if inner.names_batches() {
            return Err(config(
                "batches of your own are no groups: name the samples of each group one by one",
            ));
        }
        if inner.unit() > 1 {
            return Err(config(format!("groups of groups ({inner:?}): group the samples once")));
        }
        Ok(Self { size, inner: Box::new(inner) })
    }

    pub(super) fn check(&self, len: u64) -> Result<()> {
        if !len.is_multiple_of(self.size) {
            return Err(config(format!(
                "{len} samples are no groups of {}: the last group has {}",
                self.size,
                len % self.size
            )));
        }
        self.inner.check(len / self.size)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn inner(&self) -> &Sampler {
        &self.inner
    }

    pub(super) fn len(&self, len: u64) -> u64 {
        self.inner.len(len / self.size) * self.size
    }

    pub(super) fn digest(&self, len: u64) -> u64 {
        key(&[self.size, self.inner.digest(len / self.size)])
    }

    pub(super) fn fill(&self, len: u64, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let skipped = (start % self.size) as usize;
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let groups = (skipped + out.len()).div_ceil(size);
        // No more groups than samples, except for a short piece that begins within a group.
        if groups > out.len() {
            for (id, position) in out.iter_mut().zip(start..) {
                let group = self.inner.id(len / self.size, seed, epoch, position / self.size);
                *id = self.member(group, position % self.size);
            }
            return;
        }
        self.inner.fill(len / self.size, seed, epoch, start / self.size, &mut out[..groups]);
        // From the end on, so that a group is read before its place is written.
        for at in (0..out.len()).rev() {
            let place = skipped + at;
            out[at] = self.member(out[place / size], (place % size) as u64);
        }
    }

    /// Sample `place` of a group.
    fn member(&self, group: u64, place: u64) -> u64 {
        if group == NO_SAMPLE { NO_SAMPLE } else { group * self.size + place }
    }
}

impl fmt::Debug for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "groups of {}, {:?}", self.size, self.inner)
    }
}
