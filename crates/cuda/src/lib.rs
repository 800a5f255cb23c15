//! CUDA, on the thin layers of cudarc: own events, own page-locked memory, the shared primary context.
//!
//! | part | file |
//! | --- | --- |
//! | is there a driver | `probe.rs` |
//! | the driver's calls | `lib.rs` |
//! | how the host sleeps for an event | `bell.rs` |
//! | modules and their functions | `module.rs` |
//! | registered host memory, and rows gathered from it | `gather.rs`, `gather.cu` |
//! | what a status means | `status.rs` |
//!
//! `feedline-device` opens it (`Device::cuda`), launches its kernels, and hands out cudarc's streams.

mod bell;
mod gather;
mod module;
mod probe;
mod status;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use feedline_backend::{
    Address, Backend, BackendKind, EventId, Gather, GraphId, Grid, Launch, Priority, StreamId,
};
use feedline_core::{Error, ErrorKind, Result};

use bell::Bells;

pub use cudarc;
pub use gather::{PTX as GATHER_PTX, SOURCE as GATHER_SOURCE};
pub use module::{Function, Module};

/// The driver of one GPU, on its primary context.
pub struct Cuda {
    // Before the context, without which they cannot be destroyed.
    bells: Bells,
    context: Arc<CudaContext>,
    streams: RwLock<HashMap<u64, Arc<CudaStream>>>,
    lost: OnceLock<Error>,
    /// The kernel that gathers rows, once something was registered.
    gather: OnceLock<Function>,
    /// Whether code outside feedline ever got a handle of a stream, with which it can capture it.
    lent: AtomicBool,
}

impl Cuda {
    /// GPU number `ordinal`.
    ///
    /// # Errors
    /// `Unavailable` when there is no driver or no such GPU.
    pub fn new(ordinal: usize) -> Result<Self> {
        let count = probe::device_count()?;
        if ordinal >= count {
            let why = format!("there is no GPU {ordinal}: this machine has {count}, numbered from 0");
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        let context = CudaContext::new(ordinal).map_err(|error| status::error(error, "open the GPU"))?;
        Ok(Self::on(context))
    }

    /// The GPU of a context that the program has already.
    pub fn on(context: Arc<CudaContext>) -> Self {
        Self {
            context,
            streams: RwLock::default(),
            lost: OnceLock::new(),
            bells: Bells::default(),
            gather: OnceLock::new(),
            lent: AtomicBool::new(false),
        }
    }

    /// The cudarc context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Compute capability, as in `(9, 0)`.
    ///
    /// # Errors
    /// A driver failure.
    pub fn compute_capability(&self) -> Result<(i32, i32)> {
        self.context.compute_capability().map_err(|error| status::error(error, "read the compute capability"))
    }

    /// Number of multiprocessors.
    ///
    /// # Errors
    /// A driver failure.
    pub fn multiprocessors(&self) -> Result<i32> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        self.context
            .attribute(attribute)
            .map_err(|error| status::error(error, "read the multiprocessor count"))
    }

    /// The cudarc stream of a stream that this backend made.
    pub fn stream(&self, stream: StreamId) -> Option<Arc<CudaStream>> {
        self.streams.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&stream.0).cloned()
    }

    /// Notes that code outside feedline gets one of the streams, and may capture it from now on.
    pub fn lend(&self) {
        self.lent.store(true, Ordering::Release);
    }

    /// Turns a status into a result, and keeps the first that means the device is gone.
    fn check(&self, status: sys::CUresult, call: &str) -> Result<()> {
        status.result().map_err(|error| {
            let error = status::error(error, call);
            if error.is_device_lost() {
                let _ = self.lost.set(error.clone());
            }
            error
        })
    }

    /// Binds the context and makes a call.
    fn call(&self, name: &str, call: impl FnOnce() -> sys::CUresult) -> Result<()> {
        self.bind()?;
        self.check(call(), name)
    }
}

// A handle made by `create_stream`, `create_event` or cudarc.
fn raw(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

fn raw_event(event: EventId) -> sys::CUevent {
    event.0 as sys::CUevent
}

// SAFETY: `alloc_host` zeroes; streams, events and waits are the driver's own.
unsafe impl Backend for Cuda {
    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
        format!("cuda:{} ({name})", self.context.ordinal())
    }

    fn bind(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: the driver is there (`probe`), and the target is a live local.
        self.check(unsafe { sys::cuCtxGetCurrent(&mut current) }, "cuCtxGetCurrent")?;
        if current == self.context.cu_ctx() {
            return Ok(());
        }
        // SAFETY: the context is retained by `self.context`.
        self.check(unsafe { sys::cuCtxSetCurrent(self.context.cu_ctx()) }, "cuCtxSetCurrent")
    }

    fn create_stream(&self, _: &str, priority: Priority) -> Result<StreamId> {
        self.bind()?;
        let created = match priority {
            Priority::Normal => self.context.new_stream(),
            // The range is [least, greatest], and greatest is the lowest number.
            Priority::High => result::stream::get_priority_range()
                .and_then(|(_, greatest)| self.context.new_stream_with_priority(greatest)),
        };
        let stream = created.map_err(|error| status::error(error, "create a stream"))?;
        let id = StreamId(stream.cu_stream() as u64);
        self.streams.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(id.0, stream);
        Ok(id)
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        self.bind()?;
        // cudarc destroys the stream with its last handle; who cloned one through `cuda_stream` keeps it alive.
        self.streams.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&stream.0);
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()> {
        // SAFETY: the stream is alive, the caller's promise; so in all calls below.
        self.call("cuStreamSynchronize", || unsafe { sys::cuStreamSynchronize(raw(stream)) })
    }

    fn create_event(&self, timing: bool) -> Result<EventId> {
        // Not for threads that sleep: see `bell.rs`.
        let flags = if timing {
            sys::CUevent_flags::CU_EVENT_DEFAULT
        } else {
            sys::CUevent_flags::CU_EVENT_DISABLE_TIMING
        } as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the target is a live local.
        self.call("cuEventCreate", || unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(EventId(event as u64))
    }

    unsafe fn destroy_event(&self, event: EventId) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(raw_event(event)) })
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuEventRecord", || unsafe { sys::cuEventRecord(raw_event(event), raw(stream)) })
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuStreamWaitEvent", || unsafe { sys::cuStreamWaitEvent(raw(stream), raw_event(event), 0) })
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        self.bind()?;
        // SAFETY: the caller's promise.
        match unsafe { sys::cuEventQuery(raw_event(event)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => self.check(status, "cuEventQuery").map(|()| true),
        }
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        // SAFETY: the caller's promise.
        if unsafe { self.query(event) }? {
            return Ok(());
        }
        // SAFETY: the caller's promise, and all events are of this context, which `query` bound.
        let slept = unsafe { self.bells.sleep(raw_event(event)) };
        self.check(slept.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0), "wait for an event")
    }

    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32> {
        self.bind()?;
        // SAFETY: the caller's promise.
        unsafe { result::event::elapsed(raw_event(start), raw_event(end)) }
            .map_err(|error| status::error(error, "cuEventElapsedTime"))
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        // Cached memory, not write-combined: decoders read back. Mapped, so that kernels can gather from it.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the target is a live local.
        self.call("cuMemHostAlloc", || unsafe { sys::cuMemHostAlloc(&mut ptr, bytes, flags) }).map_err(
            |error| {
                Error::new(error.kind(), format!("cannot page-lock {bytes} bytes of host memory"))
                    .caused_by(error)
            },
        )?;
        let ptr = ptr.cast::<u8>();
        // SAFETY: the block was just allocated with this size.
        unsafe { ptr.write_bytes(0, bytes) };
        Ok(ptr)
    }

    unsafe fn free_host(&self, ptr: *mut u8, _: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(ptr.cast()) })
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        let mut address = 0;
        // SAFETY: the target is a live local.
        self.call("cuMemAlloc", || unsafe { sys::cuMemAlloc_v2(&mut address, bytes) }).map_err(|error| {
            Error::new(error.kind(), format!("cannot allocate {bytes} bytes on {}", self.name()))
                .caused_by(error)
        })?;
        Ok(Address(address))
    }

    unsafe fn free_device(&self, address: Address, _: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuMemFree", || unsafe { sys::cuMemFree_v2(address.0) })
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuMemcpyHtoDAsync", || unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes, raw(stream))
        })
    }

    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuMemcpyDtoHAsync", || unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes, raw(stream))
        })
    }

    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuMemsetD8Async", || unsafe { sys::cuMemsetD8Async(to.0, value, bytes, raw(stream)) })
    }

    unsafe fn register_host(&self, ptr: *const u8, bytes: usize) -> Result<Option<Address>> {
        // SAFETY: the caller's promise; so in the two calls below.
        unsafe { self.register(ptr, bytes) }
    }

    unsafe fn unregister_host(&self, ptr: *const u8, _: usize) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.unregister(ptr) }
    }

    unsafe fn gather(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.gather_on(stream, gather) }
    }

    unsafe fn launch(&self, stream: StreamId, launch: &mut Launch<'_>) -> Result<()> {
        let Grid { blocks, threads, shared_bytes } = launch.grid;
        self.bind()?;
        // SAFETY: the caller's promise; the parameters live for the call, and the driver copies them.
        let launched = unsafe {
            result::launch_kernel(
                launch.kernel.0 as sys::CUfunction,
                blocks,
                threads,
                shared_bytes,
                raw(stream),
                launch.parameters,
            )
        };
        self.check(launched.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0), launch.name)
    }

    fn records(&self) -> bool {
        true
    }

    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        // Of this thread alone: other threads allocate and copy meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the caller's promise.
        self.call("cuStreamBeginCapture", || unsafe { sys::cuStreamBeginCapture_v2(raw(stream), mode) })
    }

    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the caller's promise; the target is a live local.
        self.call("cuStreamEndCapture", || unsafe { sys::cuStreamEndCapture(raw(stream), &mut graph) })?;
        let mut runnable = std::ptr::null_mut();
        // SAFETY: the graph was just made; the target is a live local.
        let made = self.call("cuGraphInstantiate", || unsafe {
            sys::cuGraphInstantiateWithFlags(&mut runnable, graph, 0)
        });
        // SAFETY: made above, and not used again: what runs is a copy.
        let destroyed = self.call("cuGraphDestroy", || unsafe { sys::cuGraphDestroy(graph) });
        made?;
        let graph = GraphId(runnable as u64);
        if let Err(error) = destroyed {
            // SAFETY: just made, and not given out.
            let _ = unsafe { self.destroy_graph(graph) };
            return Err(error);
        }
        Ok(graph)
    }

    unsafe fn is_captured(&self, stream: StreamId) -> Result<bool> {
        // Feedline captures only streams it makes for that purpose, so without a handle outside nothing can
        // be captured.
        if !self.lent.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the caller's promise; the target is a live local.
        self.call("cuStreamIsCapturing", || unsafe { sys::cuStreamIsCapturing(raw(stream), &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    unsafe fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuGraphLaunch", || unsafe { sys::cuGraphLaunch(graph.0 as sys::CUgraphExec, raw(stream)) })
    }

    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        // SAFETY: the caller's promise.
        self.call("cuGraphExecDestroy", || unsafe { sys::cuGraphExecDestroy(graph.0 as sys::CUgraphExec) })
    }

    fn lost(&self) -> Option<Error> {
        self.lost.get().cloned()
    }
}
