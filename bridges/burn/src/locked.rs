//! Slots that the CUDA driver has pinned.

use std::ffi::c_void;

use feedline::cuda::cudarc::driver::{result, sys};
use feedline::{Address, Device, Error, ErrorKind, Result};

/// Page-locked ranges of host memory. Dropping it unlocks them.
pub(crate) struct Locked {
    /// Keeps a context, which the calls below need.
    device: Device,
    slots: Vec<*mut c_void>,
}

// SAFETY: the addresses are only given to the driver, which takes them from any thread.
unsafe impl Send for Locked {}
// SAFETY: as above.
unsafe impl Sync for Locked {}

impl Locked {
    /// Page-locks `slots` of `bytes` bytes each, for all CUDA contexts.
    pub(crate) fn new(slots: &[Address], bytes: usize) -> Result<Self> {
        // Fails with a clear error where there is no driver; cudarc would panic.
        let device = Device::cuda(0)?;
        device.bind()?;
        let mut locked = Self { device, slots: Vec::with_capacity(slots.len()) };
        for slot in slots {
            let at = slot.0 as *mut c_void;
            // SAFETY: a slot of a loader, which lives until this is dropped (`State` and `SlotField`).
            let status = unsafe { sys::cuMemHostRegister_v2(at, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
            status.result().map_err(failed)?;
            locked.slots.push(at);
        }
        Ok(locked)
    }
}

fn failed(error: result::DriverError) -> Error {
    Error::new(ErrorKind::Device, "cannot page-lock a slot").caused_by(error)
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        for &slot in &self.slots {
            // SAFETY: locked by `new`; every copy out of it has ended, since burn drops its bytes after that.
            let _ = unsafe { sys::cuMemHostUnregister(slot) };
        }
    }
}
