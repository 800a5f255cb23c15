//! Compiled kernels: modules and their functions.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use feedline_core::{Error, ErrorKind, Result};

use super::{Cuda, status};
use crate::backend::{Backend, KernelId};

/// A loaded module of kernels.
///
/// Dropping the last of its functions unloads the module. The drop blocks until the streams on which its
/// kernels were launched have run all work submitted so far.
pub struct Module {
    raw: sys::CUmodule,
    /// Keeps the context alive; unloading needs it.
    context: Arc<CudaContext>,
    /// The streams on which its kernels were launched. Streams being recorded are not included: their
    /// graphs keep the module alive.
    streams: Mutex<Vec<Arc<CudaStream>>>,
    /// The stream handle of the last launch: most modules are used on one stream.
    last_stream: AtomicU64,
}

// SAFETY: a module handle belongs to its context, not to a thread; the driver locks inside.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// One kernel of a module.
#[derive(Clone)]
pub struct Function {
    raw: sys::CUfunction,
    name: Arc<str>,
    module: Arc<Module>,
}

// SAFETY: a function handle is valid while its module is loaded, and `module` keeps it loaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Notes a launch on `stream`. Unloading the module waits for it.
    pub fn launched_on(&self, stream: &Arc<CudaStream>) {
        let handle = stream.cu_stream() as u64;
        if self.last_stream.swap(handle, Ordering::Relaxed) == handle {
            return;
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.contains(stream) {
            streams.push(stream.clone());
        }
    }

    /// Blocks until all noted launches have ended.
    fn drain(&mut self) -> std::result::Result<(), DriverError> {
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        streams.iter().try_for_each(|stream| stream.synchronize())
    }
}

impl Function {
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    /// The handle for launches, valid while the module is loaded.
    pub fn id(&self) -> KernelId {
        KernelId(self.raw as u64)
    }

    /// The kernel's module, which stays loaded while this is held.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Cuda {
    /// Loads PTX text.
    ///
    /// # Errors
    /// A driver failure, for example PTX that is newer than the driver or for a newer GPU.
    pub fn load_ptx(&self, ptx: &str) -> Result<Arc<Module>> {
        let text = CString::new(ptx)
            .map_err(|_| Error::new(ErrorKind::Data, "the PTX text contains a zero byte"))?;
        self.bind()?;
        // SAFETY: the text is zero-terminated and lives for the call.
        let raw = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(|error| status::error(error, "load the kernels"))?;
        let (streams, last_stream) = (Mutex::default(), AtomicU64::new(u64::MAX));
        Ok(Arc::new(Module { raw, context: self.context().clone(), streams, last_stream }))
    }

    /// Finds the kernel called `name` in a module.
    ///
    /// # Errors
    /// A driver failure, for example if there is no such kernel.
    pub fn function(&self, module: &Arc<Module>, name: &str) -> Result<Function> {
        let c_name = CString::new(name)
            .map_err(|_| Error::new(ErrorKind::Config, "the kernel name contains a zero byte"))?;
        self.bind()?;
        // SAFETY: the module is loaded.
        let raw = unsafe { result::module::get_function(module.raw, c_name) }
            .map_err(|error| status::error(error, &format!("find the kernel {name}")))?;
        Ok(Function { raw, name: name.into(), module: module.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // CUDA does not guarantee that a running kernel keeps its module, so this waits. After an error a
        // kernel may still be running, so the module stays loaded.
        if self.drain().and_then(|()| self.context.bind_to_thread()).is_ok() {
            // SAFETY: unloaded once. No function is left, since each keeps the module alive. None of its
            // kernels is running: `drain` waited for the noted launches, graphs that hold its kernels
            // keep the module, and callers of `Backend::launch` guarantee that the function outlives the
            // work.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name)
    }
}
