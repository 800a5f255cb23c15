//! Rows in memory, in blocks that are allocated on demand.

use std::sync::{PoisonError, RwLock};

use super::encoded::decode;
use crate::Row;

/// Bytes of a block, unless a single row is longer.
const BLOCK: usize = 256 << 10;

/// The rows of the first samples of a set.
pub(super) struct MemoryRows {
    blocks: Box<[RwLock<Block>]>,
    /// Rows per block.
    rows: usize,
    row_bytes: usize,
}

/// Consecutive rows, without gaps between fields.
#[derive(Default)]
struct Block {
    /// Empty until the first row is cached.
    bytes: Vec<u8>,
    is_kept: Vec<bool>,
}

impl MemoryRows {
    /// Room for `kept` rows of `row_bytes` bytes, which must not be 0.
    pub(super) fn new(kept: u64, row_bytes: usize) -> Self {
        // `kept` rows fit a budget of `usize` bytes.
        let kept = kept as usize;
        let rows = (BLOCK / row_bytes).clamp(1, kept.max(1));
        let blocks = (0..kept.div_ceil(rows)).map(|_| RwLock::default()).collect();
        Self { blocks, rows, row_bytes }
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>) -> bool {
        let (block, index) = self.place(id);
        let block = self.blocks[block].read().unwrap_or_else(PoisonError::into_inner);
        if !block.is_kept.get(index).is_some_and(|&is_kept| is_kept) {
            return false;
        }
        decode(&block.bytes[index * self.row_bytes..][..self.row_bytes], row)
    }

    pub(super) fn put(&self, id: u64, row: &mut Row<'_, '_>) {
        let (block, index) = self.place(id);
        let mut block = self.blocks[block].write().unwrap_or_else(PoisonError::into_inner);
        if block.bytes.is_empty() {
            let bytes = self.rows * self.row_bytes;
            // If no memory is left, the sample is not cached.
            if block.bytes.try_reserve_exact(bytes).is_err() {
                return;
            }
            block.bytes.resize(bytes, 0);
            block.is_kept = vec![false; self.rows];
        }
        let mut rest = &mut block.bytes[index * self.row_bytes..][..self.row_bytes];
        for field in 0..row.spec().fields().len() {
            let bytes = row.bytes_mut(field);
            let (place, after) = rest.split_at_mut(bytes.len());
            place.copy_from_slice(bytes);
            rest = after;
        }
        block.is_kept[index] = true;
    }

    /// The block of sample `id`, and its row there.
    fn place(&self, id: u64) -> (usize, usize) {
        (id as usize / self.rows, id as usize % self.rows)
    }
}
