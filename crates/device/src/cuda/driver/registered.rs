//! Host memory that is registered with the driver: once in the process, whichever devices read it.
//!
//! Loaders of several devices read the memory of one data set. The driver refuses to register memory a second
//! time, but every device can read memory that was registered as portable.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, sys};
use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{Address, Backend};
use crate::cuda::driver::Cuda;

/// Everything that is registered.
static ALL: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

struct Registration {
    address: usize,
    bytes: usize,
    /// How often it was registered and not yet unregistered.
    users: usize,
    /// The context that the driver registered it with, which must outlive the registration.
    context: Arc<CudaContext>,
}

/// Held while the driver registers, so that memory is not registered twice.
fn all() -> MutexGuard<'static, Vec<Registration>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cuda {
    /// Registers host memory. Returns `None` if the driver refuses, unless the device is lost.
    ///
    /// # Safety
    /// As [`Backend::register_host`].
    pub(super) unsafe fn register(&self, ptr: *const u8, bytes: usize) -> Result<Option<Address>> {
        self.bind()?;
        // Load the kernel first, while there is no registration to undo: registered memory must be
        // gatherable.
        if self.none_unless_lost(self.gather_kernels().map(drop))?.is_none() {
            return Ok(None);
        }
        let mut all = all();
        if let Some(known) = all.iter_mut().find(|known| (known.address, known.bytes) == (ptr.addr(), bytes))
        {
            let address = self.none_unless_lost(self.device_address(ptr))?;
            known.users += usize::from(address.is_some());
            return Ok(address);
        }
        let mut flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        if self.context.attribute(attribute).is_ok_and(|supported| supported != 0) {
            // The driver rejects a read-only mapping without this flag.
            flags |= sys::CU_MEMHOSTREGISTER_READ_ONLY;
        }
        let host: *mut c_void = ptr.cast_mut().cast();
        // SAFETY: the caller's contract.
        let registered =
            self.call("cuMemHostRegister", || unsafe { sys::cuMemHostRegister_v2(host, bytes, flags) });
        if self.none_unless_lost(registered)?.is_none() {
            return Ok(None);
        }
        // The list has the registration from here on, so that it can be unregistered.
        all.push(Registration { address: ptr.addr(), bytes, users: 1, context: self.context.clone() });
        drop(all);
        match self.device_address(ptr) {
            Ok(address) => Ok(Some(address)),
            // If this fails too, the memory stays registered, and the caller must know.
            // SAFETY: registered above, and not used by any work yet.
            Err(_) => unsafe { self.unregister(ptr) }.map(|()| None),
        }
    }

    /// The address at which this device finds registered memory.
    fn device_address(&self, ptr: *const u8) -> Result<Address> {
        let mut address = 0;
        // SAFETY: the memory is registered as mapped; the target is a live local.
        self.call("cuMemHostGetDevicePointer", || unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut address, ptr.cast_mut().cast(), 0)
        })?;
        Ok(Address(address))
    }

    /// Ends a registration; the driver's own ends with the last one.
    ///
    /// # Safety
    /// As [`Backend::unregister_host`].
    pub(super) unsafe fn unregister(&self, ptr: *const u8) -> Result<()> {
        let mut all = all();
        let Some(index) = all.iter().position(|known| known.address == ptr.addr()) else {
            return Err(Error::new(ErrorKind::Config, "memory is unregistered that was not registered"));
        };
        all[index].users -= 1;
        if all[index].users > 0 {
            return Ok(());
        }
        let Registration { context, .. } = all.swap_remove(index);
        // SAFETY: the context is retained by the registration.
        self.check(unsafe { sys::cuCtxSetCurrent(context.cu_ctx()) }, "cuCtxSetCurrent")?;
        // SAFETY: the contract of the caller, and of every user before.
        self.check(unsafe { sys::cuMemHostUnregister(ptr.cast_mut().cast()) }, "cuMemHostUnregister")?;
        self.bind()
    }

    /// Turns every failure but a lost device into `None`.
    fn none_unless_lost<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.kind() == ErrorKind::DeviceLost => Err(error),
            other => Ok(other.ok()),
        }
    }
}
