//! The memory of a batch's field as burn's bytes, without a copy.

use std::mem::MaybeUninit;
use std::sync::Arc;

use burn::tensor::{AllocationProperty, Bytes};
use cubecl_environment::bytes::{AccessError, AccessPolicy, AllocationController};
use feedline::Ready;

/// A field in host memory. Keeps the batch.
struct SlotField {
    at: *const u8,
    len: usize,
    align: usize,
    _batch: Arc<Ready>,
}

// SAFETY: the memory is only read here, and lives as long as the batch, which is `Send` and `Sync`.
unsafe impl Send for SlotField {}
// SAFETY: as above.
unsafe impl Sync for SlotField {}

impl AllocationController for SlotField {
    fn alloc_align(&self) -> usize {
        self.align
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    /// Always refused: other tensors may read the same field. `Bytes::shared` copies before a write instead.
    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        Err(AccessError::WouldCopy)
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        // SAFETY: the field's initialised bytes in host memory. The copy into them has ended (`Fields::new`),
        // and the slot is not written while `_batch` exists.
        Ok(unsafe { std::slice::from_raw_parts(self.at.cast(), self.len) })
    }
}

/// `len` bytes of a batch in host memory at `at`, aligned to `align`, as burn's bytes.
///
/// # Safety
/// The bytes belong to the batch, which is on the host device; the copy into them has ended.
pub(crate) unsafe fn bytes(at: u64, len: usize, align: usize, batch: Arc<Ready>) -> Bytes {
    let field = SlotField { at: at as *const u8, len, align, _batch: batch };
    // SAFETY: `memory` has `len` initialised bytes.
    let bytes = unsafe { Bytes::from_controller(Box::new(field), len) };
    // A write makes a copy.
    bytes.shared()
}
