//! The memory of a slot.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use feedline_core::{Error, ErrorKind, Result};

/// A block of host memory that a device reads by copies that the host starts.
///
/// # Safety
/// - `as_ptr` is valid for reads and writes of `len` initialised bytes. It changes only within
///   [`ReadyLease::submit`](crate::slots::ReadyLease::submit), by its closure.
/// - Nothing else in the program reads or writes these bytes, except the copies started by
///   [`ReadyLease::submit`](crate::slots::ReadyLease::submit).
/// - `landed` and `wait_landed` return `Ok(true)` or `Ok(())` only when every copy submitted so far has
///   ended.
/// - `wait_drained` returns `Ok(())` only when no copy that ever reached the device can still read the bytes,
///   even one whose submission reported an error.
pub unsafe trait HostMemory: Send + Sync + 'static {
    /// The first byte, aligned to at least 256 bytes.
    fn as_ptr(&self) -> *mut u8;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether the block has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the last copy out of this memory has ended. Never blocks.
    ///
    /// # Errors
    /// A device failure.
    fn landed(&self) -> Result<bool>;

    /// Whether [`landed`](Self::landed) is cheap enough that a short wait should poll it instead of sleeping.
    /// Default: false.
    fn is_quick_to_ask(&self) -> bool {
        false
    }

    /// Blocks until the last copy out of this memory has ended.
    ///
    /// # Errors
    /// A device failure. The memory must not be accessed again.
    fn wait_landed(&self) -> Result<()>;

    /// Blocks until no copy can read this memory any more, so that it can be freed.
    ///
    /// # Errors
    /// A device failure. The memory must be leaked.
    fn wait_drained(&self) -> Result<()>;

    /// Called instead of drop when a copy may still read the bytes. `why` is the failure of `wait_drained`.
    /// Releases everything but the bytes. Default: releases nothing.
    fn leak(self, why: Error)
    where
        Self: Sized,
    {
        drop(why);
        std::mem::forget(self);
    }

    /// Called when a lease to write the memory is granted. It is a hook for race checkers.
    ///
    /// # Errors
    /// Any error fails the acquire; the slot is released.
    fn on_acquire(&self) -> Result<()> {
        Ok(())
    }
}

/// Heap memory that no device reads, for tests and pipelines without a device.
#[derive(Debug)]
pub struct HeapMemory {
    ptr: NonNull<u8>,
    layout: Layout,
}

impl HeapMemory {
    /// Allocates `bytes` zeroed bytes, at least one, aligned to 4096 bytes.
    ///
    /// # Errors
    /// `Budget` when the allocation fails.
    pub fn new(bytes: usize) -> Result<Self> {
        let refuse =
            || Error::new(ErrorKind::Budget, format!("cannot allocate {bytes} bytes of host memory"));
        let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| refuse())?;
        // SAFETY: the layout's size is at least 1.
        let ptr = unsafe { alloc_zeroed(layout) };
        Ok(Self { ptr: NonNull::new(ptr).ok_or_else(refuse)?, layout })
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: `ptr` is from `alloc_zeroed` with this layout, and is freed only here.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

// SAFETY: this value alone owns the block, and its bytes are accessed through leases only (`HostMemory`).
unsafe impl Send for HeapMemory {}
// SAFETY: a shared reference exposes only the address and the length.
unsafe impl Sync for HeapMemory {}

// SAFETY: the block is allocated zeroed and never moves; no device reads it, so no copy is ever in flight.
unsafe impl HostMemory for HeapMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn landed(&self) -> Result<bool> {
        Ok(true)
    }

    fn wait_landed(&self) -> Result<()> {
        Ok(())
    }

    fn wait_drained(&self) -> Result<()> {
        Ok(())
    }
}
