//! Compiled kernels: modules and their functions.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use feedline_backend::{Backend, KernelId};
use feedline_core::{Error, ErrorKind, Result};

use super::{Cuda, status};

/// A loaded module of kernels.
///
/// It is unloaded when the last of its functions is dropped. That drop blocks until the streams that its
/// kernels were launched on are idle.
pub struct Module {
    raw: sys::CUmodule,
    /// Keeps the context alive; unloading needs it.
    context: Arc<CudaContext>,
    /// The streams its kernels were launched on. Recorded launches do not count: their graphs keep the
    /// module.
    streams: Mutex<Vec<Arc<CudaStream>>>,
    /// The handle of the stream of the last launch: most modules are used on one stream.
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

// SAFETY: a function handle is valid as long as its module, which it keeps alive.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Notes a launch on `stream`, for [`drain`](Self::drain).
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

    /// Blocks until the kernels whose launches were noted have ended.
    fn drain(&mut self) -> std::result::Result<(), DriverError> {
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        streams.iter().try_for_each(|stream| stream.synchronize())
    }
}

impl Function {
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    /// The handle to launch it by, valid as long as the module is loaded.
    pub fn id(&self) -> KernelId {
        KernelId(self.raw as u64)
    }

    /// The module that the kernel is of; loaded as long as this is held.
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
    /// A driver failure: PTX that is newer than the driver, or for a newer GPU.
    pub fn load_ptx(&self, ptx: &str) -> Result<Arc<Module>> {
        let text = CString::new(ptx).map_err(|_| Error::new(ErrorKind::Data, "PTX text with a zero byte"))?;
        self.bind()?;
        // SAFETY: the text is zero-terminated and lives for the call.
        let raw = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(|error| status::error(error, "load the kernels"))?;
        let (streams, last_stream) = (Mutex::default(), AtomicU64::new(u64::MAX));
        Ok(Arc::new(Module { raw, context: self.context().clone(), streams, last_stream }))
    }

    /// The kernel called `name` of a module.
    ///
    /// # Errors
    /// A driver failure: there is no such kernel.
    pub fn function(&self, module: &Arc<Module>, name: &str) -> Result<Function> {
        let c_name = CString::new(name)
            .map_err(|_| Error::new(ErrorKind::Config, "a kernel name with a zero byte"))?;
        self.bind()?;
        // SAFETY: the module is loaded.
        let raw = unsafe { result::module::get_function(module.raw, c_name) }
            .map_err(|error| status::error(error, &format!("find the kernel {name}")))?;
        Ok(Function { raw, name: name.into(), module: module.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // CUDA does not promise that a running kernel keeps its module, so wait. After an error a kernel may
        // still run: the module stays loaded.
        if self.drain().and_then(|()| self.context.bind_to_thread()).is_ok() {
            // SAFETY: unloaded once; no function is left, each keeps the module alive. No kernel of it runs:
            // `drain` waited for the noted launches, graphs keep the module, and callers of `Backend::launch`
            // keep the function until the work has ended.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name)
    }
}
