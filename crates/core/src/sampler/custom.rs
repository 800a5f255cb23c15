//! An order that the program computes.

use std::fmt;
use std::sync::Arc;

use super::{MAX_LEN, config, digest};
use crate::random::key;
use crate::{Result, catch_panic};

/// The id in place of one that a [`Custom`] sampler could not give. No data set has a sample with this id.
pub const NO_SAMPLE: u64 = u64::MAX;

/// The sampler of [`Sampler::custom`](super::Sampler::custom).
#[derive(Clone)]
pub struct Custom {
    name: Arc<str>,
    positions: u64,
    order: Arc<dyn Fn(u64, u64) -> u64 + Send + Sync>,
}

impl Custom {
    pub(super) fn new(
        name: String,
        positions: u64,
        order: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Result<Self> {
        if name.is_empty() {
            return Err(config("the sampler has no name: a cursor tells it from others by its name"));
        }
        if positions == 0 || positions > MAX_LEN {
            return Err(config(format!("{positions} samples per epoch: use 1 to 2^63")));
        }
        Ok(Self { name: name.into(), positions, order: Arc::new(order) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn len(&self) -> u64 {
        self.positions
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[digest(self.name.bytes().map(u64::from)), self.positions])
    }

    /// Writes the samples from position `start` of `epoch` on. Writes [`NO_SAMPLE`] after a panic, and
    /// instead of an id that is not below `len`.
    pub(super) fn fill(&self, len: u64, epoch: u64, start: u64, out: &mut [u64]) {
        out.fill(NO_SAMPLE);
        // The panic hook has printed why; the loader says where.
        let _ = catch_panic("the sampler panicked", || {
            for (id, position) in out.iter_mut().zip(start..) {
                *id = Some((self.order)(epoch, position)).filter(|&id| id < len).unwrap_or(NO_SAMPLE);
            }
        });
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} samples per epoch", self.name, self.positions)
    }
}
