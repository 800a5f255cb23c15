//! Rows with ragged fields, in memory.
//!
//! The size of a sample is known when it is read. So the samples that are read first are cached, until the
//! budget is used up; nothing is evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::encoded::{Encoded, decode};
use crate::{Context, Row};

/// Overhead of a cached row in memory: its entry in the map, and the allocator's.
const ENTRY: u64 = 64;

/// Number of parts of the store, each with its own lock.
const PARTS: u64 = 64;

/// The bytes of kept rows, by id.
type Kept = RwLock<HashMap<u64, Box<[u8]>>>;

/// Rows in memory, within a number of bytes.
pub(super) struct RaggedMemory {
    parts: Box<[Kept]>,
    /// Bytes that are not used yet.
    left: AtomicU64,
}

impl RaggedMemory {
    pub(super) fn new(budget: u64) -> Self {
        Self { parts: (0..PARTS).map(|_| RwLock::default()).collect(), left: AtomicU64::new(budget) }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.part(id).read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>) -> bool {
        let part = self.part(id).read().unwrap_or_else(PoisonError::into_inner);
        part.get(&id).is_some_and(|bytes| decode(bytes, row))
    }

    pub(super) fn put(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) {
        let encoded: &mut Encoded = context.scratch();
        encoded.0.clear();
        if !encoded.add(row) {
            return;
        }
        let mut part = self.part(id).write().unwrap_or_else(PoisonError::into_inner);
        // Two workers may have read the same sample.
        if part.contains_key(&id) {
            return;
        }
        let bytes = encoded.0.len() as u64 + ENTRY;
        let take = |left: u64| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        let mut kept = Vec::new();
        // If no memory is left, the sample is not cached.
        if kept.try_reserve_exact(encoded.0.len()).is_err() || part.try_reserve(1).is_err() {
            self.left.fetch_add(bytes, Ordering::Relaxed);
            return;
        }
        kept.extend_from_slice(&encoded.0);
        part.insert(id, kept.into_boxed_slice());
    }

    fn part(&self, id: u64) -> &Kept {
        &self.parts[(id % PARTS) as usize]
    }
}
