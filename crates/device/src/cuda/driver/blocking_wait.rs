//! Blocking host waits for events that were recorded without `CU_EVENT_BLOCKING_SYNC`.
//!
//! An event with `CU_EVENT_BLOCKING_SYNC` raises an interrupt at each completion, whether a thread waits
//! or not, and delays its stream: on an H200 by 1.5 us per record, as long as a copy of 80 KB. An event
//! without it has no measurable cost, so all of feedline's events are of that kind. To block, a thread
//! borrows a waiter: a separate stream that waits for the event and then records a blocking event of its
//! own. That adds two calls, only where a thread blocks anyway.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::{result, sys};

/// The idle waiters: in total, the peak number of threads that blocked at once.
#[derive(Default)]
pub(super) struct BlockingWaiters(Mutex<Vec<BlockingWaiter>>);

/// An otherwise unused stream, and an event that a thread can block on.
struct BlockingWaiter {
    stream: sys::CUstream,
    event: sys::CUevent,
}

// SAFETY: these are driver handles, which any thread may use once it has bound their context.
unsafe impl Send for BlockingWaiter {}

impl BlockingWaiters {
    /// Blocks until the work recorded by `event` has ended. The context must be bound.
    ///
    /// # Safety
    /// The event is alive and belongs to the bound context, which is the same for every call on `self`.
    pub(super) unsafe fn block_on(&self, event: sys::CUevent) -> Result<(), result::DriverError> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let waiter = idle.map_or_else(BlockingWaiter::new, Ok)?;
        // SAFETY: the caller's contract; the waiter's handles are alive.
        let waited = unsafe { waiter.block_on(event) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
        waited
    }
}

impl BlockingWaiter {
    fn new() -> Result<Self, result::DriverError> {
        let mut waiter = Self { stream: std::ptr::null_mut(), event: std::ptr::null_mut() };
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the target is a field of a live local.
        unsafe { sys::cuEventCreate(&mut waiter.event, flags) }.result()?;
        let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: as above.
        unsafe { sys::cuStreamCreate(&mut waiter.stream, non_blocking) }.result()?;
        Ok(waiter)
    }

    /// # Safety
    /// The event is alive, and its context is bound.
    unsafe fn block_on(&self, event: sys::CUevent) -> Result<(), result::DriverError> {
        // SAFETY: the caller's contract; this waiter's handles are alive.
        unsafe { sys::cuStreamWaitEvent(self.stream, event, 0) }.result()?;
        // SAFETY: as above.
        unsafe { sys::cuEventRecord(self.event, self.stream) }.result()?;
        // SAFETY: as above.
        unsafe { sys::cuEventSynchronize(self.event) }.result()
    }
}

impl Drop for BlockingWaiter {
    // No thread uses the wait, so its stream is empty. A failure here means that the context is gone, and the
    // handles with it.
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: created by `new`, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
        if !self.event.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}
