//! Another sampler over some of the samples.

use std::fmt;
use std::sync::Arc;

use super::custom::NO_SAMPLE;
use super::{Sampler, config, digest};
use crate::Result;
use crate::random::key;

/// The sampler of [`Sampler::subset`](super::Sampler::subset). A sample listed twice counts as two.
#[derive(Clone)]
pub struct Subset {
    ids: Arc<[u64]>,
    inner: Box<Sampler>,
    digest: u64,
}

impl Subset {
    pub(super) fn new(ids: Vec<u64>, inner: Sampler) -> Result<Self> {
        if ids.is_empty() {
            return Err(config("the subset lists no ids: list at least one"));
        }
        if inner.names_batches() {
            return Err(config("batches of your own name the samples themselves: make no subset of them"));
        }
        let digest = digest(ids.iter().copied());
        Ok(Self { ids: ids.into(), inner: Box::new(inner), digest })
    }

    pub(super) fn check(&self, len: u64) -> Result<()> {
        if let Some((index, id)) = self.ids.iter().enumerate().find(|(_, id)| **id >= len) {
            return Err(config(format!(
                "id {index} of the subset is {id}: the data set has ids 0 to {}",
                len - 1
            )));
        }
        self.inner.check(self.ids.len() as u64)
    }

    pub(super) fn inner(&self) -> &Sampler {
        &self.inner
    }

    pub(super) fn len(&self) -> u64 {
        self.inner.len(self.ids.len() as u64)
    }

    pub(super) fn repeats(&self) -> bool {
        let mut ids = self.ids.to_vec();
        ids.sort_unstable();
        self.inner.repeats() || ids.windows(2).any(|pair| pair[0] == pair[1])
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.digest, self.inner.digest(self.ids.len() as u64)])
    }

    pub(super) fn fill(&self, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        self.inner.fill(self.ids.len() as u64, seed, epoch, start, out);
        for id in out {
            *id = usize::try_from(*id).ok().and_then(|id| self.ids.get(id).copied()).unwrap_or(NO_SAMPLE);
        }
    }
}

impl fmt::Debug for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ids, {:?}", self.ids.len(), self.inner)
    }
}
