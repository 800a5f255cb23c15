//! The calls that a device must offer, on raw handles.
//!
//! Streams, events, buffers and slots are written once on top of this trait, in `feedline-device`.
//!
//! The contract is CUDA's:
//! - a stream runs what it is given in order; streams run beside each other;
//! - `record` marks the work given to the stream so far; a later `record` of the same event replaces the mark;
//! - `wait` makes a stream wait for the mark the event has *at the call*; later marks do not matter;
//! - an event that was never recorded counts as done: `wait`, `query` and `synchronize` pass at once.

use std::any::Any;

use feedline_core::{Error, ErrorKind, Result};

use crate::gather::Gather;
use crate::launch::Launch;
use crate::task::Task;
use crate::types::{Access, Address, BackendKind, EventId, GraphId, Priority, StreamId};

/// The calls a device offers.
///
/// # Safety
/// `alloc_host` returns memory that is initialised and valid until `free_host`; `synchronize` and
/// `synchronize_stream` return `Ok` only when the work they name has ended; work of one stream runs in order. Memory
/// safety of slots and buffers rests on these.
pub unsafe trait Backend: Any + Send + Sync {
    /// Which implementation this is.
    fn kind(&self) -> BackendKind;

    /// What the device calls itself, for people.
    fn name(&self) -> String;

    /// Makes the calling thread ready for calls; cheap when it is already.
    fn bind(&self) -> Result<()>;

    /// Creates a stream that runs beside all others, the default stream too.
    fn create_stream(&self, name: &str, priority: Priority) -> Result<StreamId>;

    /// Destroys a stream after its work has ended.
    ///
    /// # Safety
    /// The stream is this backend's and is not used again.
    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()>;

    /// Blocks until all work given to the stream has ended.
    ///
    /// # Safety
    /// The stream is this backend's and alive.
    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()>;

    /// Creates an event; only one with `timing` can be asked for times.
    fn create_event(&self, timing: bool) -> Result<EventId>;

    /// Destroys an event.
    ///
    /// # Safety
    /// The event is this backend's and is not used again.
    unsafe fn destroy_event(&self, event: EventId) -> Result<()>;

    /// Marks in `event` the work given to `stream` so far.
    ///
    /// # Safety
    /// Both are this backend's and alive; so for the calls below.
    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()>;

    /// Makes `stream` wait for the mark that `event` has now; the host does not block.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()>;

    /// Whether the work marked by `event` has ended.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn query(&self, event: EventId) -> Result<bool>;

    /// Blocks the host until the work marked by `event` has ended.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn synchronize(&self, event: EventId) -> Result<()>;

    /// Milliseconds between the ends of the work marked by two events with timing, both ended.
    ///
    /// # Safety
    /// See [`record`](Self::record).
    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32>;

    /// Allocates zeroed page-locked host memory, aligned to 4096 bytes.
    fn alloc_host(&self, bytes: usize) -> Result<*mut u8>;

    /// Frees page-locked host memory.
    ///
    /// # Safety
    /// From `alloc_host` of this backend with the same size; no work reads or writes it any more.
    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()>;

    /// Allocates device memory, aligned to 256 bytes, with any contents that may be read.
    fn alloc_device(&self, bytes: usize) -> Result<Address>;

    /// Frees device memory.
    ///
    /// # Safety
    /// From `alloc_device` of this backend with the same size; no work uses it any more.
    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()>;

    /// Copies page-locked host memory to the device, on `stream`.
    ///
    /// # Safety
    /// Both ranges stay valid until the work ends, and nothing unordered writes the source or uses the target.
    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()>;

    /// Copies device memory to page-locked host memory, on `stream`.
    ///
    /// # Safety
    /// As [`copy_to_device`](Self::copy_to_device).
    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()>;

    /// Sets device memory to `value`, on `stream`.
    ///
    /// # Safety
    /// As [`copy_to_device`](Self::copy_to_device).
    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()>;

    /// Makes host memory that was not allocated here readable by the device, and says where the device finds
    /// it. `None` when the device cannot: it never can, or not this memory. After an error the memory may or
    /// may not be registered.
    ///
    /// # Safety
    /// The range stays valid and unchanged until `unregister_host` succeeds; after an error of either call,
    /// for ever.
    unsafe fn register_host(&self, _ptr: *const u8, _bytes: usize) -> Result<Option<Address>> {
        Ok(None)
    }

    /// Ends what `register_host` began.
    ///
    /// # Safety
    /// Registered on this backend with the same size; no work reads it any more.
    unsafe fn unregister_host(&self, _ptr: *const u8, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// Gathers rows of registered memory into device memory, on `stream`; reads no byte outside the rows whose ids are given.
    ///
    /// # Safety
    /// The ids, the places, all rows of the sources and the targets stay valid until the work ends, and nothing unordered writes
    /// what is read or uses the targets.
    unsafe fn gather(&self, stream: StreamId, _gather: &Gather) -> Result<()> {
        let _ = stream;
        Err(Error::new(ErrorKind::Device, format!("{:?} reads no registered memory", self.kind())))
    }

    /// Runs host code on `stream`, for devices whose memory is host memory.
    ///
    /// # Safety
    /// The task's spans stay valid until it has run, and nothing unordered uses them.
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
    /// The parameters are what the kernel takes. The function and the memory it uses stay valid until the
    /// work ends.
    unsafe fn launch(&self, stream: StreamId, launch: &mut Launch<'_>) -> Result<()> {
        let _ = stream;
        Err(Error::new(
            ErrorKind::Device,
            format!("\"{}\": {:?} runs host code, not kernels", launch.name, self.kind()),
        ))
    }

    /// Whether work can be recorded, and replayed: the four calls below.
    fn records(&self) -> bool {
        false
    }

    /// Begins to record the work that the calling thread gives to `stream`, in place of running it.
    ///
    /// # Safety
    /// The stream is this backend's, alive, and used by the calling thread alone until [`end_capture`](Self::end_capture).
    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        let _ = stream;
        Err(Error::new(ErrorKind::Device, format!("{:?} does not record graphs", self.kind())))
    }

    /// Ends the recording, also one that an error has spoilt: then this returns that error.
    ///
    /// # Safety
    /// Recording has begun on this stream, by the calling thread.
    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let _ = stream;
        Err(Error::new(ErrorKind::Device, format!("{:?} does not record graphs", self.kind())))
    }

    /// Whether code outside feedline is capturing `stream` into a graph. Work given to it then runs whenever
    /// that graph is launched. Captures by [`begin_capture`](Self::begin_capture) do not count.
    ///
    /// # Safety
    /// The stream is this driver's and alive.
    unsafe fn is_captured(&self, _stream: StreamId) -> Result<bool> {
        Ok(false)
    }

    /// Gives a stream the work of a graph once more.
    ///
    /// # Safety
    /// The graph is this backend's and alive, launched by one thread at a time; all memory its work uses is still valid,
    /// and nothing unordered uses it.
    unsafe fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        let _ = (graph, stream);
        Err(Error::new(ErrorKind::Device, format!("{:?} does not replay graphs", self.kind())))
    }

    /// Destroys a graph after its work has ended.
    ///
    /// # Safety
    /// The graph is this backend's and is not used again.
    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// Tells a race checker that the host is about to touch page-locked memory; does nothing elsewhere.
    ///
    /// # Safety
    /// The range is this backend's page-locked memory. For [`Access::Write`] the caller has the sole right to it and
    /// overwrites what is there: a backend may fill it with poison first.
    unsafe fn host_access(&self, _ptr: *const u8, _bytes: usize, _access: Access) -> Result<()> {
        Ok(())
    }

    /// Why no later call can succeed, once a call has failed that way.
    fn lost(&self) -> Option<Error> {
        None
    }

    /// The backend that this one passes its calls to; `None` unless it is an interceptor.
    fn below(&self) -> Option<&dyn Backend> {
        None
    }
}

impl dyn Backend {
    /// This backend as a `B`, also when interceptors stand in front of it: the way to what only one backend has, such as
    /// the modules of a GPU. Calls made on the result pass no interceptor.
    ///
    /// ```
    /// use feedline_backend::{Backend, host::Host};
    /// let backend: Box<dyn Backend> = Box::new(Host::new());
    /// assert!(backend.downcast_ref::<Host>().is_some());
    /// ```
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B> {
        let this: &dyn Any = self;
        this.downcast_ref().or_else(|| self.below()?.downcast_ref())
    }
}
