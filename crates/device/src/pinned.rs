//! Pinned host memory. It tracks the end of the last copy out of it.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{Access, Address, BackendKind};
use crate::device_core::Core;
use crate::slots::HostMemory;
use crate::stream::StreamCore;
use crate::{Device, Event, Stream};

/// A block of pinned host memory.
pub struct Pinned {
    device: Arc<Core>,
    /// Changes only in [`exchange`](Self::exchange), so it needs no memory ordering of its own.
    ptr: AtomicPtr<u8>,
    bytes: usize,
    /// The event of the last copy out of this block; `None` before the first one.
    copied: Mutex<Option<Arc<Event>>>,
    /// The streams that read this block: those passed to [`set_readers`](Self::set_readers), or else the
    /// stream of the first copy.
    readers: OnceLock<Box<[Arc<StreamCore>]>>,
    /// Whether the block is never freed, because a copy may still use it.
    leaked: bool,
}

impl Pinned {
    /// Allocates `bytes` bytes of pinned memory.
    ///
    /// # Errors
    /// A device failure, for example if the machine is out of memory.
    #[track_caller]
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        let _site = device.core().call_site();
        Self::on(device.core(), bytes)
    }

    pub(crate) fn on(device: &Arc<Core>, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::new(ErrorKind::Config, "a pinned block needs at least one byte"));
        }
        let ptr = device.backend.alloc_host(bytes)?;
        device.stats.pinned_bytes.add(bytes as u64);
        let (copied, readers) = (Mutex::default(), OnceLock::new());
        Ok(Self { device: device.clone(), ptr: AtomicPtr::new(ptr), bytes, copied, readers, leaked: false })
    }

    /// Lets `streams` and no other stream read this block. Without this call, only the stream of the first
    /// copy reads it.
    ///
    /// # Errors
    /// `Config` for a stream of another device, and if the streams of the block are already set.
    pub fn set_readers(&self, streams: &[Stream]) -> Result<()> {
        StreamCore::set_owners(streams, &self.readers, &self.device, "a pinned slot")
    }

    /// Names the block in the messages of a race checker.
    pub fn named(self, name: &str) -> Self {
        self.device.backend.name_memory(self.as_ptr() as u64, name);
        self
    }

    /// Calls `work`, and then records `copied`. `work` submits work to `stream` that reads this block. The
    /// block must not be written before `copied` completes.
    pub(crate) fn read_by(
        &self,
        stream: &Arc<StreamCore>,
        copied: &Arc<Event>,
        work: impl FnOnce(*const u8) -> Result<()>,
    ) -> Result<()> {
        self.accepts(stream)?;
        work(self.as_ptr())?;
        stream.record(copied)?;
        let earlier = self.copied.lock().unwrap_or_else(PoisonError::into_inner).replace(copied.clone());
        // The earlier event is dropped after the lock is released.
        drop(earlier);
        Ok(())
    }

    /// Replaces this block's memory by the memory at `address`, which has the same size. Returns the old
    /// address. On the host device, host memory is device memory, so a batch need not be copied.
    ///
    /// # Safety
    /// The device is the host device. `address` is from its allocator, and the caller owns it. Nothing holds
    /// the address of this block, and nothing fills it before all uses of the memory at `address` have ended.
    pub(crate) unsafe fn exchange(&self, address: Address) -> Address {
        // The lease of the slot orders this with other uses of the block.
        Address(self.ptr.swap(address.0 as *mut u8, Ordering::Relaxed) as u64)
    }

    /// The event of the last copy. It is not recorded again while the caller holds it.
    fn last_copy(&self) -> Option<Arc<Event>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns an error for a stream of another device, and for a stream that does not read this block.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>) -> Result<()> {
        stream.is_one_of(&self.readers, &self.device, "a pinned slot is copied")
    }

    /// Tells a race checker that the host is about to access `bytes` bytes from `offset`.
    pub(crate) fn host_access(&self, offset: usize, bytes: usize, access: Access) -> Result<()> {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: the range lies in this block. Owners request write access right before they overwrite
        // the range, and have exclusive access to it: a slot that was just acquired, or a new block.
        unsafe { self.device.backend.host_access(self.as_ptr().wrapping_add(offset), bytes, access) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: from `alloc_host` with this size, or exchanged for such memory, and freed once; owners
            // wait for the last copy before they drop this.
            if let Err(error) = unsafe { self.device.backend.free_host(self.as_ptr(), self.bytes) } {
                self.device.stats.report(error);
            }
        }
        self.device.stats.pinned_bytes.subtract(self.bytes as u64);
    }
}

// SAFETY: the backend allocated zeroed memory, which is exchanged for other memory only while its slot is
// submitted (`WriteLease::hand_over`). `read_by` records an event after all work that it submits, and no
// event is recorded again while this refers to it. A block is submitted again only after a wait for the last
// event, so that event covers the reads of every stream. A submission that failed may have started a copy
// that no event covers; `wait_drained` covers that too, since it drains all streams that ever read this
// block.
unsafe impl HostMemory for Pinned {
    fn as_ptr(&self) -> *mut u8 {
        self.ptr.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn landed(&self) -> Result<bool> {
        self.last_copy().map_or(Ok(true), |event| event.query())
    }

    fn is_quick_to_ask(&self) -> bool {
        // A query takes the CUDA driver 0.3 us. A wait takes 38 us of CPU time. The simulator's results must
        // depend on the seed alone, not on how often this machine queries.
        self.device.backend.kind() == BackendKind::Cuda
    }

    fn wait_landed(&self) -> Result<()> {
        self.last_copy().map_or(Ok(()), |event| event.synchronize())
    }

    fn wait_drained(&self) -> Result<()> {
        self.readers.get().into_iter().flatten().try_for_each(|stream| stream.synchronize())
    }

    fn leak(mut self, why: Error) {
        self.leaked = true;
        self.device.stats.report(why);
    }

    fn on_acquire(&self) -> Result<()> {
        self.host_access(0, self.bytes, Access::Write)
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} bytes)", self.bytes)
    }
}
