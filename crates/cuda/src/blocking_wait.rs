//! How the host sleeps for a mark that was recorded for waits on the device.
//!
//! An event that a thread can sleep for (`CU_EVENT_BLOCKING_SYNC`) raises an interrupt each time it is reached, wanted or not,
//! and holds up its stream: on an H200 by 1.5 us a record, which is as long as a copy of 80 KB. An event for streams alone costs
//! nothing that could be measured. So all marks are of the second kind, and who has to sleep for one rings a bell: a stream of
//! its own waits for the mark, and then records an event of the first kind. That is two calls more, where a thread sleeps anyway.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::{result, sys};

/// The bells that nobody waits for; there are as many as threads ever slept at a time.
#[derive(Default)]
pub(super) struct Bells(Mutex<Vec<Bell>>);

/// A stream with nothing else to do, and an event that a thread can sleep for.
struct Bell {
    stream: sys::CUstream,
    event: sys::CUevent,
}

// SAFETY: handles of the driver, which any thread may use that has bound their context.
unsafe impl Send for Bell {}

impl Bells {
    /// Sleeps until the work marked by `event` has ended. The context is bound.
    ///
    /// # Safety
    /// The event is alive, and of the bound context; so are all that this was ever called with.
    pub(super) unsafe fn sleep(&self, event: sys::CUevent) -> Result<(), result::DriverError> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bell = idle.map_or_else(Bell::new, Ok)?;
        // SAFETY: the caller's promise, and the bell's handles are alive.
        let slept = unsafe { bell.sleep(event) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
        slept
    }
}

impl Bell {
    fn new() -> Result<Self, result::DriverError> {
        let mut bell = Self { stream: std::ptr::null_mut(), event: std::ptr::null_mut() };
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the target is a field of a live local; so below.
        unsafe { sys::cuEventCreate(&mut bell.event, flags) }.result()?;
        let apart = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: see above.
        unsafe { sys::cuStreamCreate(&mut bell.stream, apart) }.result()?;
        Ok(bell)
    }

    /// # Safety
    /// The event is alive, and its context bound.
    unsafe fn sleep(&self, event: sys::CUevent) -> Result<(), result::DriverError> {
        // SAFETY: the caller's promise, and this bell's handles are alive; so below.
        unsafe { sys::cuStreamWaitEvent(self.stream, event, 0) }.result()?;
        // SAFETY: see above.
        unsafe { sys::cuEventRecord(self.event, self.stream) }.result()?;
        // SAFETY: see above.
        unsafe { sys::cuEventSynchronize(self.event) }.result()
    }
}

impl Drop for Bell {
    // Nobody waits for it, so there is nothing left on its stream. A failure here means that the context is gone, and the
    // handles with it.
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: made by `new`, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
        if !self.event.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}
