//! Block shuffle: random enough for training, local enough for sequential reads.
//!
//! The data set is split into blocks of consecutive samples (the last may be short), and the blocks are put
//! in random order. The resulting sequence is split into windows, and each window is shuffled. So a reader
//! touches at most `window / block + 2` blocks at a time: those of one window.

use std::fmt;

use super::{Permutation, config, tag};
use crate::Result;
use crate::random::key;

/// The sampler of [`Sampler::block`](super::Sampler::block).
#[derive(Clone)]
pub struct Block {
    block: u64,
    window: u64,
}

impl Block {
    pub(super) fn new(block: u64, window: u64) -> Result<Self> {
        for (what, size) in [("block", block), ("window", window)] {
            if size == 0 {
                return Err(config(format!("the {what} size is 0: it must be at least 1")));
            }
        }
        Ok(Self { block, window })
    }

    /// The sizes of a block and of a window.
    pub fn sizes(&self) -> [u64; 2] {
        [self.block, self.window]
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.block, self.window])
    }

    pub(super) fn fill(&self, len: u64, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let mut blocks = Blocks::new(len, self.block, key(&[seed, epoch, tag(b"blocks  ")]));
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

/// Max blocks that are remembered; a window has few.
const KNOWN: usize = 64;

/// The sequence of shuffled blocks, with random access.
struct Blocks {
    block: u64,
    order: Permutation,
    /// The position of the last block of the data set, which may be short, in the sequence.
    short: u64,
    /// Number of samples missing from the short block.
    lacks: u64,
    /// Blocks that were looked up: their place in the sequence and their first sample.
    known: [(u64, u64); KNOWN],
}

impl Blocks {
    fn new(len: u64, block: u64, key: u64) -> Self {
        let count = len.div_ceil(block);
        let order = Permutation::new(count, key);
        let in_last = len - (count - 1) * block;
        let short = order.position(count - 1) * block;
        Self { block, order, short, lacks: block - in_last, known: [(u64::MAX, 0); KNOWN] }
    }

    fn id(&mut self, position: u64) -> u64 {
        // After the short block, every sample is `lacks` positions earlier than if all blocks were full.
        let is_after = position >= self.short + (self.block - self.lacks);
        let in_full = if is_after { position + self.lacks } else { position };
        let (place, offset) = (in_full / self.block, in_full % self.block);
        let known = &mut self.known[(place % KNOWN as u64) as usize];
        if known.0 != place {
            *known = (place, self.order.at(place) * self.block);
        }
        known.1 + offset
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks of {}, windows of {}", self.block, self.window)
    }
}
