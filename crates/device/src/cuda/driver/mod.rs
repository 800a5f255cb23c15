//! The CUDA backend, on the thin layers of cudarc. It uses its own events and pinned memory, and the
//! shared primary context.
//!
//! | part | file |
//! | --- | --- |
//! | driver detection | `probe.rs` |
//! | the backend: driver calls | `mod.rs` |
//! | blocking host waits | `blocking_wait.rs` |
//! | modules and kernels | `module.rs` |
//! | registered host memory | `registered.rs` |
//! | gathers | `gather.rs`, `gather.cu` |
//! | how a gather from device memory is cut | `pieces.rs` |
//! | driver status codes | `status.rs` |
//!
//! A build needs no CUDA installation: the driver library is opened at run time, and [`Cuda::new`] returns
//! `Unavailable` if there is none. The safe layer opens the backend (`Device::cuda`), launches its kernels,
//! and hands out cudarc's streams. `kernels/README.md` says how `gather.ptx` is made of `gather.cu`.
//!
//! A driver call goes into `mod.rs` if the trait `Backend` has it, and becomes a method of [`Cuda`] if only
//! CUDA has it. A kernel of the transfer stage stands next to `gather.cu`, with an entry in
//! `kernels/src/programs.rs`.

mod blocking_wait;
mod gather;
mod long_rows;
mod module;
mod pieces;
mod probe;
mod registered;
mod status;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{
    Address, Backend, BackendKind, EventId, Gather, GraphId, Grid, Launch, Priority, StreamId,
};
use blocking_wait::BlockingWaiters;

pub use gather::{PTX as GATHER_PTX, SOURCE as GATHER_SOURCE};
pub use module::{Function, Module};

/// The driver of one GPU, on its primary context.
pub struct Cuda {
    // Declared before `context`, so that it is dropped first: waiters cannot be destroyed without their
    // context.
    waiters: BlockingWaiters,
    context: Arc<CudaContext>,
    streams: RwLock<HashMap<u64, Arc<CudaStream>>>,
    lost: OnceLock<Error>,
    /// The gather kernels, loaded when host memory is first registered, or rows are first gathered.
    gather: OnceLock<gather::Kernels>,
    /// Whether a stream was ever handed to code outside feedline, which may capture it.
    lent: AtomicBool,
}

impl Cuda {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// `Unavailable` if there is no driver or no such GPU.
    pub fn new(ordinal: usize) -> Result<Self> {
        let count = probe::device_count()?;
        if ordinal >= count {
            let why = format!("there is no GPU {ordinal}: this machine has {count} GPUs, numbered from 0");
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        let context = CudaContext::new(ordinal).map_err(|error| status::error(error, "open the GPU"))?;
        Ok(Self::on(context))
    }

    /// Opens the GPU of an existing context.
    pub fn on(context: Arc<CudaContext>) -> Self {
        Self {
            context,
            streams: RwLock::default(),
            lost: OnceLock::new(),
            waiters: BlockingWaiters::default(),
            gather: OnceLock::new(),
            lent: AtomicBool::new(false),
        }
    }

    /// The cudarc context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The compute capability, as in `(9, 0)`.
    ///
    /// # Errors
    /// A driver failure.
    pub fn compute_capability(&self) -> Result<(i32, i32)> {
        self.context.compute_capability().map_err(|error| status::error(error, "read the compute capability"))
    }

    /// The number of multiprocessors.
    ///
    /// # Errors
    /// A driver failure.
    pub fn multiprocessors(&self) -> Result<i32> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        self.context
            .attribute(attribute)
            .map_err(|error| status::error(error, "read the multiprocessor count"))
    }

    /// The cudarc stream behind a stream of this backend.
    pub fn stream(&self, stream: StreamId) -> Option<Arc<CudaStream>> {
        self.streams.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&stream.0).cloned()
    }

    /// Notes that code outside feedline gets one of the streams and may capture it from now on.
    pub fn lend(&self) {
        self.lent.store(true, Ordering::Release);
    }

    /// Turns a status into a result. Keeps the first status that means that the device is lost.
    fn check(&self, status: sys::CUresult, call: &str) -> Result<()> {
        status.result().map_err(|error| {
            let error = status::error(error, call);
            if error.kind() == ErrorKind::DeviceLost {
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

// The handles come from `create_stream`, `create_event` or cudarc.
fn raw(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

fn raw_event(event: EventId) -> sys::CUevent {
    event.0 as sys::CUevent
}

// SAFETY: `alloc_host` zeroes the memory; streams, events and waits are the driver's own.
unsafe impl Backend for Cuda {
    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
        format!("cuda:{} ({name})", self.context.ordinal())
    }

    fn pci_address(&self) -> Option<String> {
        use sys::CUdevice_attribute as Attribute;
        let part = |attribute| self.context.attribute(attribute).ok();
        let domain = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let bus = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        let device = part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
        Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    fn has_coherent_host_memory(&self) -> bool {
        use sys::CUdevice_attribute as Attribute;
        // Pageable access alone is not enough: over PCIe the host's kernel emulates it by page faults.
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
        self.context.attribute(attribute).is_ok_and(|supported| supported != 0)
    }

    fn copies_rows_of(&self, row_bytes: usize) -> bool {
        row_bytes >= long_rows::LONG && self.copies_rows().unwrap_or(false)
    }

    fn bind(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `probe` found the driver, and the target is a live local.
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
        // cudarc destroys the stream with its last handle. Code that cloned one through `cuda_stream`
        // keeps it alive.
        self.streams.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&stream.0);
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()> {
        // SAFETY: the stream is alive (the caller's contract).
        self.call("cuStreamSynchronize", || unsafe { sys::cuStreamSynchronize(raw(stream)) })
    }

    fn create_event(&self, timing: bool) -> Result<EventId> {
        // Without `CU_EVENT_BLOCKING_SYNC`: see `blocking_wait.rs`.
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
        // SAFETY: the caller's contract.
        self.call("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(raw_event(event)) })
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuEventRecord", || unsafe { sys::cuEventRecord(raw_event(event), raw(stream)) })
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuStreamWaitEvent", || unsafe { sys::cuStreamWaitEvent(raw(stream), raw_event(event), 0) })
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        self.bind()?;
        // SAFETY: the caller's contract.
        match unsafe { sys::cuEventQuery(raw_event(event)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => self.check(status, "cuEventQuery").map(|()| true),
        }
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        // SAFETY: the caller's contract.
        if unsafe { self.query(event) }? {
            return Ok(());
        }
        // SAFETY: the caller's contract; all events belong to this context, which `query` bound.
        let waited = unsafe { self.waiters.block_on(raw_event(event)) };
        self.check(waited.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0), "wait for an event")
    }

    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32> {
        self.bind()?;
        // SAFETY: the caller's contract.
        unsafe { result::event::elapsed(raw_event(start), raw_event(end)) }
            .map_err(|error| status::error(error, "cuEventElapsedTime"))
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        // Cached, not write-combined, because decoders read the memory back. Mapped, so that kernels can
        // gather from it.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the target is a live local.
        self.call("cuMemHostAlloc", || unsafe { sys::cuMemHostAlloc(&mut ptr, bytes, flags) }).map_err(
            |error| {
                Error::new(error.kind(), format!("cannot allocate {bytes} bytes of pinned host memory"))
                    .with_source(error)
            },
        )?;
        let ptr = ptr.cast::<u8>();
        // SAFETY: the block was just allocated with this size.
        unsafe { ptr.write_bytes(0, bytes) };
        Ok(ptr)
    }

    unsafe fn free_host(&self, ptr: *mut u8, _: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(ptr.cast()) })
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        let mut address = 0;
        // SAFETY: the target is a live local.
        self.call("cuMemAlloc", || unsafe { sys::cuMemAlloc_v2(&mut address, bytes) }).map_err(|error| {
            Error::new(error.kind(), format!("cannot allocate {bytes} bytes on {}", self.name()))
                .with_source(error)
        })?;
        Ok(Address(address))
    }

    unsafe fn free_device(&self, address: Address, _: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemFree", || unsafe { sys::cuMemFree_v2(address.0) })
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemcpyHtoDAsync", || unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes, raw(stream))
        })
    }

    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemcpyDtoHAsync", || unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes, raw(stream))
        })
    }

    unsafe fn copy_on_device(
        &self,
        stream: StreamId,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemcpyDtoDAsync", || unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, raw(stream))
        })
    }

    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemsetD8Async", || unsafe { sys::cuMemsetD8Async(to.0, value, bytes, raw(stream)) })
    }

    unsafe fn register_host(&self, ptr: *const u8, bytes: usize) -> Result<Option<Address>> {
        // SAFETY: the caller's contract.
        unsafe { self.register(ptr, bytes) }
    }

    unsafe fn unregister_host(&self, ptr: *const u8, _: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.unregister(ptr) }
    }

    unsafe fn gather(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.gather_on(stream, gather) }
    }

    unsafe fn launch(&self, stream: StreamId, launch: &mut Launch<'_>) -> Result<()> {
        let Grid { blocks, threads, shared_bytes } = launch.grid;
        self.bind()?;
        // SAFETY: the caller's contract; the parameters live for the call, and the driver copies them.
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
        // Thread-local: other threads allocate and copy meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the caller's contract.
        self.call("cuStreamBeginCapture", || unsafe { sys::cuStreamBeginCapture_v2(raw(stream), mode) })
    }

    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the caller's contract; the target is a live local.
        self.call("cuStreamEndCapture", || unsafe { sys::cuStreamEndCapture(raw(stream), &mut graph) })?;
        let mut runnable = std::ptr::null_mut();
        // SAFETY: the graph was just created; the target is a live local.
        let instantiated = self.call("cuGraphInstantiate", || unsafe {
            sys::cuGraphInstantiateWithFlags(&mut runnable, graph, 0)
        });
        // SAFETY: created above and not used again: the instance is a copy.
        let destroyed = self.call("cuGraphDestroy", || unsafe { sys::cuGraphDestroy(graph) });
        instantiated?;
        let graph = GraphId(runnable as u64);
        if let Err(error) = destroyed {
            // SAFETY: just created, and never handed out.
            let _ = unsafe { self.destroy_graph(graph) };
            return Err(error);
        }
        Ok(graph)
    }

    unsafe fn is_captured(&self, stream: StreamId) -> Result<bool> {
        // Only code outside feedline captures its streams: `begin_capture` is called only on streams
        // created for recording.
        if !self.lent.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the caller's contract; the target is a live local.
        self.call("cuStreamIsCapturing", || unsafe { sys::cuStreamIsCapturing(raw(stream), &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    unsafe fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuGraphLaunch", || unsafe { sys::cuGraphLaunch(graph.0 as sys::CUgraphExec, raw(stream)) })
    }

    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuGraphExecDestroy", || unsafe { sys::cuGraphExecDestroy(graph.0 as sys::CUgraphExec) })
    }

    fn lost(&self) -> Option<Error> {
        self.lost.get().cloned()
    }
}
