//! Block shuffle: random enough to train on, near enough to read in runs.
//!
//! The set is cut into blocks of neighbouring samples (the last may be short) and the blocks are put in random order.
//! The sequence so made is cut into windows, and each window is shuffled. Reading along it touches at any time the
//! blocks of one window: at most `window / block + 2`.

use super::{Permutation, config, tag};
use crate::Result;
use crate::random::key;

/// The order behind [`Sampler::block`](super::Sampler::block).
#[derive(Clone, Debug)]
pub struct Block {
    block: u64,
    window: u64,
}

impl Block {
    pub(super) fn new(block: u64, window: u64) -> Result<Self> {
        for (what, size) in [("block", block), ("window", window)] {
            if size == 0 {
                return Err(config(format!("{what} of 0 samples: it must be at least 1")));
            }
        }
        Ok(Self { block, window })
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.block, self.window])
    }

    pub(super) fn fill(&self, len: u64, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let blocks = Blocks::new(len, self.block, key(&[seed, epoch, tag(b"blocks  ")]));
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let window = at / self.window;
            let first = window * self.window;
            let size = self.window.min(len - first);
            let run = (first + size - at).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(run as usize);
            Permutation::new(size, key(&[seed, epoch, tag(b"window  "), window])).fill(at - first, now);
            for id in now {
                *id = blocks.id(first + *id);
            }
            (at, rest) = (at + run, later);
        }
    }
}

/// The sequence of shuffled blocks, by random access.
struct Blocks {
    block: u64,
    sampler: Permutation,
    /// Where the short block lies in the sequence, and what it lacks; at the end when there is none.
    short: u64,
    lacks: u64,
}

impl Blocks {
    fn new(len: u64, block: u64, key: u64) -> Self {
        let count = len.div_ceil(block);
        let sampler = Permutation::new(count, key);
        let in_last = len - (count - 1) * block;
        let short = sampler.position(count - 1) * block;
        Self { block, sampler, short, lacks: block - in_last }
    }

    fn id(&self, position: u64) -> u64 {
        // Behind the short block, every sample stands `lacks` places earlier than it would among full ones.
        let behind = position >= self.short + (self.block - self.lacks);
        let in_full = if behind { position + self.lacks } else { position };
        self.sampler.at(in_full / self.block) * self.block + in_full % self.block
    }
}
