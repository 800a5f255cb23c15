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
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let group = self.inner.id(len / self.size, seed, epoch, at / self.size);
            let first = at % self.size;
            let run = (self.size - first).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(run as usize);
            for (id, place) in now.iter_mut().zip(first..) {
                *id = if group == NO_SAMPLE { NO_SAMPLE } else { group * self.size + place };
            }
            (at, rest) = (at + run, later);
        }
    }
}

impl fmt::Debug for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "groups of {}, {:?}", self.size, self.inner)
    }
}
