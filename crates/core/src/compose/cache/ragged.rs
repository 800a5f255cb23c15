//! Rows with ragged fields: their encoding, and a store in memory.
//!
//! The size of a sample is known when it is read. So the samples that are read first are cached, until the
//! budget is used up; nothing is evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::{Context, Row, Spec};

/// Bytes of the length before each row of a ragged field.
const LENGTH: usize = size_of::<u64>();

/// Overhead of a cached row in memory: its entry in the map, and the allocator's.
const ENTRY: u64 = 64;

/// Number of parts of the store, each with its own lock.
const PARTS: u64 = 64;

/// Scratch memory of a worker: an encoded row.
#[derive(Default)]
pub(super) struct Encoded(pub(super) Vec<u8>);

impl Encoded {
    /// Bytes of the lengths in a row of `spec`.
    pub(super) fn lengths(spec: &Spec) -> u64 {
        let ragged = spec.fields().iter().filter(|field| field.as_ragged().is_some());
        (ragged.count() * LENGTH) as u64
    }

    /// Appends the fields of `row`, a ragged one with its length before it. Returns false if the row is not
    /// written.
    pub(super) fn add(&mut self, row: &mut Row<'_, '_>) -> bool {
        for field in 0..row.spec().fields().len() {
            if row.spec().fields()[field].as_ragged().is_none() {
                self.0.extend_from_slice(row.bytes_mut(field));
                continue;
            }
            let Ok(bytes) = row.written_bytes_mut(field) else { return false };
            self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.0.extend_from_slice(bytes);
        }
        true
    }
}

/// Writes the row that [`Encoded::add`] encoded as `bytes`. Returns false if they are not such a row, or the
/// batch has no room for it.
pub(super) fn decode(bytes: &[u8], row: &mut Row<'_, '_>) -> bool {
    let mut rest = bytes;
    for field in 0..row.spec().fields().len() {
        let fixed = row.spec().fields()[field].row_bytes();
        let is_ragged = row.spec().fields()[field].as_ragged().is_some();
        let len = if is_ragged {
            let Some((len, after)) = rest.split_first_chunk::<LENGTH>() else { return false };
            rest = after;
            usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX)
        } else {
            fixed
        };
        let Some((bytes, after)) = rest.split_at_checked(len) else { return false };
        rest = after;
        if !is_ragged {
            row.write(field, bytes);
        } else if row.write_ragged_bytes(field, bytes).is_err() {
            return false;
        }
    }
    rest.is_empty()
}

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
        // Without memory the sample is read again next time.
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
