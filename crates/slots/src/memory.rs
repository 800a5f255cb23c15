//! The memory a slot stands on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use feedline_core::{Error, ErrorKind, Result};

/// A block of host memory that a device may read while the host keeps away from it.
///
/// # Safety
/// - `as_ptr` is valid for reads and writes of `len` initialised bytes, and stays the same for the value's life.
/// - Nothing else in the program reads or writes these bytes, except copies started through
///   [`ReadyLease::submit`](crate::ReadyLease::submit).
/// - `landed` and `wait_landed` return `Ok(true)` or `Ok(())` only when every copy submitted so far has ended.
/// - `wait_drained` returns `Ok(())` only when no copy that ever reached the device can still read the bytes, even
///   one whose submission reported an error.
pub unsafe trait HostMemory: Send + Sync + 'static {
    /// The first byte, aligned to at least 256 bytes.
    fn as_ptr(&self) -> *mut u8;

    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the last copy out of this memory has ended; never blocks.
    ///
    /// # Errors
    /// A device failure.
    fn landed(&self) -> Result<bool>;

    /// Whether [`landed`](Self::landed) takes so little that a short wait is better spent asking it than in a sleep. By default not.
    fn is_quick_to_ask(&self) -> bool {
        false
    }

    /// Blocks until the last copy out of this memory has ended.
    ///
    /// # Errors
    /// A device failure; the memory must not be touched again.
    fn wait_landed(&self) -> Result<()>;

    /// Blocks until no copy at all can read this memory any more, so that it can be freed.
    ///
    /// # Errors
    /// A device failure; the memory must be leaked.
    fn wait_drained(&self) -> Result<()>;

    /// Called in place of a drop when a copy may still read the bytes, for the reason `why`: gives back everything but the
    /// bytes. The default gives back nothing.
    fn leak(self, why: Error)
    where
        Self: Sized,
    {
        drop(why);
        std::mem::forget(self);
    }

    /// Called at the moment the host gets the right to write, for race checkers.
    fn on_acquire(&self) -> Result<()> {
        Ok(())
    }
}

/// Plain heap memory that no device reads; for tests and for pipelines without a device.
#[derive(Debug)]
pub struct HeapMemory {
    ptr: NonNull<u8>,
    layout: Layout,
}

impl HeapMemory {
    /// `bytes` zeroed bytes, at least one, 4096-byte aligned.
    ///
    /// # Errors
    /// `Budget` when the machine has no such block.
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
        // SAFETY: `ptr` came from `alloc_zeroed` with this layout and is freed once, here.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

// SAFETY: the block is owned by this value alone, and access to its bytes goes through leases (see `HostMemory`).
unsafe impl Send for HeapMemory {}
// SAFETY: shared references give out the address and the length only.
unsafe impl Sync for HeapMemory {}

// SAFETY: the block is zeroed at birth, never moves, and no device reads it, so every copy has always ended.
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
