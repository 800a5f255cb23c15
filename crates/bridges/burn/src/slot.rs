//! The memory of a batch's field as burn's bytes, without a copy.

use std::mem::MaybeUninit;
use std::sync::Arc;

use burn::tensor::{AllocationProperty, Bytes};
use cubecl_environment::bytes::{AccessError, AccessPolicy, AllocationController};
use feedline::HostBatch;
use feedline::dataset::Element;
use self_cell::self_cell;

type Slice<'a> = &'a [u8];

self_cell!(
    /// A field, and the batch that it keeps.
    struct Field {
        owner: Arc<HostBatch>,
        #[covariant]
        dependent: Slice,
    }
);

struct SlotField {
    field: Field,
    align: usize,
}

// burn sends bytes to other threads, but has no bound `Send` that says so.
const _: () = {
    const fn is_send<T: Send + Sync>() {}
    is_send::<SlotField>();
};

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
        let bytes: *const [u8] = *self.field.borrow_dependent();
        // SAFETY: a shared slice of initialised bytes, for reading, as long as `self`.
        Ok(unsafe { &*(bytes as *const [MaybeUninit<u8>]) })
    }
}

/// The field that `of` picks from the batch, as burn's bytes. They keep the batch alive.
pub(crate) fn bytes<T: Element>(
    batch: &Arc<HostBatch>,
    of: impl for<'a> FnOnce(&'a HostBatch) -> feedline::Result<&'a [T]>,
) -> feedline::Result<Bytes> {
    let field = Field::try_new(batch.clone(), |batch| of(batch).map(bytemuck::cast_slice))?;
    let len = field.borrow_dependent().len();
    let controller = Box::new(SlotField { field, align: align_of::<T>() });
    // SAFETY: `memory` has `len` initialised bytes.
    let bytes = unsafe { Bytes::from_controller(controller, len) };
    // A write makes a copy.
    Ok(bytes.shared())
}
