//! The trait that a device implements, on raw handles.
//!
//! The safe types (streams, events, buffers, slots) are built on top of this trait in `feedline-device`.
//!
//! The contract is CUDA's:
//! - a stream runs its work in order; different streams run concurrently;
//! - `record` captures the work submitted to the stream so far; a later `record` of the same event
//!   replaces it;
//! - `wait` waits for the recording that the event holds *at the call*; later recordings have no effect
//!   on it;
//! - an event that was never recorded counts as complete: `wait`, `query` and `synchronize` return at
//!   once.

use std::any::Any;

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::gather::Gather;
use crate::backend::launch::Launch;
use crate::backend::task::Task;
use crate::backend::types::{Access, Address, BackendKind, EventId, GraphId, Priority, StreamId};

/// The operations of a device.
///
/// # Safety
/// `alloc_host` returns memory that is initialised and valid until `free_host`. `synchronize` and
/// `synchronize_stream` return `Ok` only when the work that they wait for has ended. Work on one stream
/// runs in order. The memory safety of slots and buffers relies on these three.
pub unsafe trait Backend: Any + Send + Sync {
    /// Which implementation this is.
    fn kind(&self) -> BackendKind;

    /// The device's name, for display.
    fn name(&self) -> String;

    /// The address of the device on the PCI bus, as in `0000:1b:00.0`; `None` for a device that has none.
    fn pci_address(&self) -> Option<String> {
        None
    }

    /// Whether the device reads host memory through the host's page tables, over a coherent link, as on
    /// GH200 and GB200. Such reads are as fast as the link, about ten times as fast as PCIe.
    fn has_coherent_host_memory(&self) -> bool {
        false
    }

    /// Whether a gather of rows of `row_bytes` bytes in host memory keeps no multiprocessor busy: the copy
    /// engine moves such rows.
    fn copies_rows_of(&self, _row_bytes: usize) -> bool {
        false
    }

    /// Prepares the calling thread for calls; cheap when it is already prepared.
    fn bind(&self) -> Result<()>;

    /// Creates a stream that runs concurrently with all others, including the default stream.
    fn create_stream(&self, name: &str, priority: Priority) -> Result<StreamId>;

    /// Destroys a stream after its work has ended.
    ///
    /// # Safety
    /// The stream belongs to this backend and is not used again.
    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()>;

    /// Blocks until all work submitted to the stream has ended.
    ///
    /// # Safety
    /// The stream belongs to this backend and is alive.
    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()>;

    /// Creates an event. [`elapsed_ms`](Self::elapsed_ms) requires `timing`.
    fn create_event(&self, timing: bool) -> Result<EventId>;

    /// Destroys an event.
    ///
    /// # Safety
    /// The event belongs to this backend and is not used again.
    unsafe fn destroy_event(&self, event: EventId) -> Result<()>;

    /// Records in `event` the work submitted to `stream` so far.
    ///
    /// # Safety
    /// The event and the stream belong to this backend and are alive.
    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()>;

    /// Makes `stream` wait for the current recording of `event`; the host does not block.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()>;

    /// Whether the work recorded by `event` has ended.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn query(&self, event: EventId) -> Result<bool>;

    /// Blocks the host until the work recorded by `event` has ended.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn synchronize(&self, event: EventId) -> Result<()>;

    /// Milliseconds between two completed events that were created with timing.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32>;

    /// Allocates zeroed pinned host memory, aligned to 4096 bytes.
    fn alloc_host(&self, bytes: usize) -> Result<*mut u8>;

    /// Frees pinned host memory.
    ///
    /// # Safety
    /// The memory is from `alloc_host` of this backend with the same size, and no work accesses it any
    /// more.
    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()>;

    /// Allocates device memory, aligned to 256 bytes. Its contents are arbitrary but initialised.
    fn alloc_device(&self, bytes: usize) -> Result<Address>;

    /// Frees device memory.
    ///
    /// # Safety
    /// The memory is from `alloc_device` of this backend with the same size, and no work accesses it any
    /// more.
    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()>;

    /// Copies pinned host memory to the device, on `stream`.
    ///
    /// # Safety
    /// Both ranges stay valid until the work ends. No unordered access writes the source or touches the
    /// target.
    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()>;

    /// Copies device memory to pinned host memory, on `stream`.
    ///
    /// # Safety
    /// As [`copy_to_device`](Self::copy_to_device).
    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()>;

    /// Copies device memory to device memory, on `stream`. The ranges do not overlap.
    ///
    /// # Safety
    /// As [`copy_to_device`](Self::copy_to_device).
    unsafe fn copy_on_device(&self, stream: StreamId, from: Address, to: Address, bytes: usize)
    -> Result<()>;

    /// Sets device memory to `value`, on `stream`.
    ///
    /// # Safety
    /// As [`copy_to_device`](Self::copy_to_device).
    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()>;

    /// Makes host memory from another allocator readable by the device, and returns its device address.
    /// Returns `None` if the device cannot read host memory, or cannot read this memory. After an error
    /// the memory may or may not be registered.
    ///
    /// # Safety
    /// The range stays valid and unwritten until `unregister_host` succeeds. After an error of either
    /// call, it stays so for the life of the process.
    unsafe fn register_host(&self, _ptr: *const u8, _bytes: usize) -> Result<Option<Address>> {
        Ok(None)
    }

    /// Ends a registration made by `register_host`.
    ///
    /// # Safety
    /// The range was registered on this backend with the same size, and no work reads it any more.
    unsafe fn unregister_host(&self, _ptr: *const u8, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// Gathers rows of registered memory, or of device memory, into device memory, on `stream`. Reads no byte
    /// outside the rows of the given ids.
    ///
    /// # Safety
    /// The ids, the places, all source rows and the targets stay valid until the work ends. No unordered
    /// access writes the source or touches the targets.
    unsafe fn gather(&self, stream: StreamId, _gather: &Gather) -> Result<()> {
        let _ = stream;
        Err(Error::new(
            ErrorKind::Device,
            format!("{:?} cannot gather from registered host memory", self.kind()),
        ))
    }

    /// Runs host code on `stream`. For devices whose memory is host memory.
    ///
    /// # Safety
    /// The task's spans stay valid until it has run, and no unordered access touches them.
    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        let _ = stream;
        Err(Error::new(
            ErrorKind::Device,
            format!("\"{}\": {:?} runs kernels, not host code", task.name(), self.kind()),
        ))
    }

    /// Launches a kernel on `stream`.
    ///
    /// # Safety
    /// The parameters match the kernel's signature. The kernel and all memory that it accesses stay valid
    /// until the work ends.
    unsafe fn launch(&self, stream: StreamId, launch: &mut Launch<'_>) -> Result<()> {
        let _ = stream;
        Err(Error::new(
            ErrorKind::Device,
            format!("\"{}\": {:?} runs host code, not kernels", launch.name, self.kind()),
        ))
    }

    /// Whether the device can record and replay graphs: the four methods below.
    fn records(&self) -> bool {
        false
    }

    /// Starts a recording: work that the calling thread submits to `stream` is recorded instead of run.
    ///
    /// # Safety
    /// The stream belongs to this backend, is alive, and is used by the calling thread alone until
    /// [`end_capture`](Self::end_capture).
    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        let _ = stream;
        Err(Error::new(ErrorKind::Device, format!("{:?} does not record graphs", self.kind())))
    }

    /// Ends the recording. If an earlier error invalidated it, returns that error.
    ///
    /// # Safety
    /// The calling thread has started a recording on this stream.
    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let _ = stream;
        Err(Error::new(ErrorKind::Device, format!("{:?} does not record graphs", self.kind())))
    }

    /// Whether a capture that [`begin_capture`](Self::begin_capture) did not start is recording `stream`.
    /// Work submitted now would run whenever that graph is launched, in an order unknown here.
    ///
    /// # Safety
    /// The stream belongs to this backend and is alive.
    unsafe fn is_captured(&self, _stream: StreamId) -> Result<bool> {
        Ok(false)
    }

    /// Launches a graph on a stream.
    ///
    /// # Safety
    /// The graph belongs to this backend, is alive, and is launched by one thread at a time. All memory
    /// that its work uses is still valid, and no unordered access touches it.
    unsafe fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        let _ = (graph, stream);
        Err(Error::new(ErrorKind::Device, format!("{:?} does not replay graphs", self.kind())))
    }

    /// Destroys a graph after its work has ended.
    ///
    /// # Safety
    /// The graph belongs to this backend and is not used again.
    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// Tells a race checker that the host is about to access pinned memory. Other backends do nothing.
    ///
    /// # Safety
    /// The range is pinned memory of this backend. For [`Access::Write`] the caller has exclusive access
    /// and overwrites the contents: a backend may fill the range with poison first.
    unsafe fn host_access(&self, _ptr: *const u8, _bytes: usize, _access: Access) -> Result<()> {
        Ok(())
    }

    /// Gives the memory at `address` a name in the messages of a race checker. Other backends do nothing.
    fn name_memory(&self, _address: u64, _name: &str) {}

    /// The error that lost the device, if a call has failed that way. No later call can succeed.
    fn lost(&self) -> Option<Error> {
        None
    }

    /// The backend below, for an interceptor; otherwise `None`.
    fn below(&self) -> Option<&dyn Backend> {
        None
    }
}

impl dyn Backend {
    /// Finds the backend of type `B`, looking through interceptors. This gives access to features of a
    /// single backend, such as the modules of a GPU. Calls made on the result bypass the interceptors.
    ///
    /// ```
    /// use feedline_device::backend::{Backend, host::Host};
    /// let backend: Box<dyn Backend> = Box::new(Host::new());
    /// assert!(backend.downcast_ref::<Host>().is_some());
    /// ```
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B> {
        let this: &dyn Any = self;
        this.downcast_ref().or_else(|| self.below()?.downcast_ref())
    }
}
