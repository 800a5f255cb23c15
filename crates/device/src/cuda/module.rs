//! Compiled kernels: modules, their functions, and how one is launched.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use feedline_core::{Error, ErrorKind, Result};

use super::{Cuda, status};
use crate::driver::Driver;
use crate::view::{Input, Output};
use crate::{Device, Stream};

/// The most arguments a kernel can have here.
const MAX_ARGS: usize = 24;

/// A loaded module of kernels.
///
/// The drop of the last of its functions unloads it, and blocks until the streams on which its kernels were launched have
/// done the work given to them so far.
pub struct Module {
    raw: sys::CUmodule,
    /// Keeps the context alive; unloading needs it.
    context: Arc<CudaContext>,
    /// The streams on which its kernels were launched. Recordings are not among them: their graphs keep the module.
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

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: (u32, u32, u32),
    /// Threads a block, in x, y and z.
    pub threads: (u32, u32, u32),
    /// Dynamic shared memory a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// Blocks of `threads` threads, enough for `elements` of them, at most `most` blocks; at least one of each.
    pub fn linear(elements: usize, threads: u32, most: u32) -> Self {
        let threads = threads.max(1);
        let blocks = elements.div_ceil(threads as usize).min(most as usize).max(1) as u32;
        Self { blocks: (blocks, 1, 1), threads: (threads, 1, 1), shared_bytes: 0 }
    }
}

/// An argument of a kernel, in the order of its parameters.
pub enum Arg<'a> {
    /// A pointer the kernel reads.
    In(Input<'a>),
    /// A pointer the kernel writes, or reads and writes.
    Out(Output<'a>),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    U64(u64),
    /// A 32-bit float.
    F32(f32),
}

/// A kernel and its parameters, as the driver takes them.
pub struct Launch<'a> {
    /// The kernel.
    pub function: &'a Function,
    /// How many threads.
    pub grid: Grid,
    /// Pointers to the parameters' values.
    pub parameters: &'a mut [*mut c_void],
}

impl Module {
    /// Notes a launch on `stream`, which must end before the module is unloaded.
    fn launched_on(&self, stream: &Arc<CudaStream>) {
        let handle = stream.cu_stream() as u64;
        if self.last_stream.swap(handle, Ordering::Relaxed) == handle {
            return;
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.contains(stream) {
            streams.push(stream.clone());
        }
    }

    /// Blocks until no kernel runs that was launched by [`Stream::launch`].
    fn drain(&mut self) -> std::result::Result<(), DriverError> {
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        streams.iter().try_for_each(|stream| stream.synchronize())
    }
}

impl Function {
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
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

impl Device {
    /// The CUDA side of the device, on CUDA.
    pub fn cuda_driver(&self) -> Option<&Cuda> {
        self.driver().cuda()
    }
}

impl Stream {
    /// Launches a kernel on this stream.
    ///
    /// # Errors
    /// `Config` for arguments of another stream; a driver failure.
    ///
    /// # Safety
    /// `args` are what the kernel's parameters are, and the kernel touches no memory outside them.
    pub unsafe fn launch(&self, function: &Function, grid: Grid, args: &[Arg<'_>]) -> Result<()> {
        let mut values = ArrayVec::<u64, MAX_ARGS>::new();
        for arg in args {
            let value = match arg {
                Arg::In(input) => {
                    self.accepts(input.stream, function.name()).map(|()| input.span.address.0)?
                }
                Arg::Out(output) => {
                    self.accepts(output.stream, function.name()).map(|()| output.span.address.0)?
                }
                Arg::U32(value) => u64::from(*value),
                Arg::U64(value) => *value,
                Arg::F32(value) => u64::from(value.to_bits()),
            };
            values.try_push(value).map_err(|_| {
                Error::new(
                    ErrorKind::Config,
                    format!("{} has more than {MAX_ARGS} arguments", function.name()),
                )
            })?;
        }
        let used = args.iter().filter_map(|arg| match arg {
            Arg::In(input) => Some(input.used()),
            Arg::Out(output) => Some(output.used()),
            Arg::U32(_) | Arg::U64(_) | Arg::F32(_) => None,
        });
        let target = self.target(used, function.name())?;
        self.core().recorder.need(|| function.module.clone());
        if let Some(stream) = self.core().cuda.as_ref().filter(|_| target == self.core().id()) {
            function.module.launched_on(stream);
        }
        // A parameter is read with its own size from the start of its cell: right on little-endian machines, and CUDA
        // has no others.
        let mut parameters: ArrayVec<*mut c_void, MAX_ARGS> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let mut launch = Launch { function, grid, parameters: &mut parameters };
        // SAFETY: the caller's promise about the kernel; the memory belongs to buffers and slots that outlive the
        // stream's work, and is used on this very stream.
        unsafe { self.core().device.driver.launch(target, &mut launch) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // CUDA does not say that a kernel which runs keeps its module, so this waits. After an error one may still run: the
        // module stays loaded.
        if self.drain().and_then(|()| self.context.bind_to_thread()).is_ok() {
            // SAFETY: unloaded once; no function is left, each keeps the module alive. No kernel of it runs: `drain` waited for
            // what `Stream::launch` gave, graphs that hold its kernels keep the module, and who calls `Driver::launch` promises
            // that the function outlives the work.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name)
    }
}
