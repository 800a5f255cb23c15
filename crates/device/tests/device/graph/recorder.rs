//! The host device with graphs: work submitted to a stream that is being recorded is counted and not run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use feedline_core::Result;
use feedline_device::host::Host;
use feedline_device::{Access, Address, Backend, BackendKind, EventId, GraphId, Priority, StreamId, Task};

/// What was recorded and replayed. Clones share the counts.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Streams being recorded, and the work recorded so far.
    open: BTreeMap<StreamId, usize>,
    /// Events recorded within a recording, and the stream of that recording.
    events: BTreeMap<EventId, StreamId>,
    /// Streams that joined a recording by waiting for such an event.
    joined: BTreeMap<StreamId, StreamId>,
    /// Live graphs, with the number of tasks and launches of each.
    graphs: BTreeMap<GraphId, (usize, usize)>,
    made: u64,
    /// Whether another library captures every stream.
    captured: bool,
}

impl Inner {
    /// The stream of the recording that `stream` is part of.
    fn root(&self, stream: StreamId) -> Option<StreamId> {
        let root = self.joined.get(&stream).copied().unwrap_or(stream);
        self.open.contains_key(&root).then_some(root)
    }
}

impl Tape {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// The number of tasks and launches of each live graph.
    pub fn graphs(&self) -> Vec<(usize, usize)> {
        self.inner().graphs.values().copied().collect()
    }

    /// Makes another library start or end a capture of every stream.
    pub fn set_captured(&self, captured: bool) {
        self.inner().captured = captured;
    }

    /// Streams that are being recorded.
    pub fn open(&self) -> usize {
        self.inner().open.len()
    }
}

pub struct Recorder {
    host: Host,
    pub tape: Tape,
}

impl Recorder {
    pub fn new() -> Self {
        Self { host: Host::new(), tape: Tape::default() }
    }
}

macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $out {
            self.host.$name($($arg),*)
        }
    )*};
    (unsafe $(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        unsafe fn $name(&self, $($arg: $type),*) -> $out {
            // SAFETY: the caller's contract; all handles and memory belong to the host backend.
            unsafe { self.host.$name($($arg),*) }
        }
    )*};
}

// SAFETY: everything but recording is forwarded to the host backend; a recorded graph does nothing when
// launched.
unsafe impl Backend for Recorder {
    forward! {
        fn kind() -> BackendKind;
        fn name() -> String;
        fn bind() -> Result<()>;
        fn create_stream(name: &str, priority: Priority) -> Result<StreamId>;
        fn create_event(timing: bool) -> Result<EventId>;
        fn alloc_host(bytes: usize) -> Result<*mut u8>;
        fn alloc_device(bytes: usize) -> Result<Address>;
    }

    forward! { unsafe
        fn synchronize_stream(stream: StreamId) -> Result<()>;
        fn destroy_event(event: EventId) -> Result<()>;
        fn query(event: EventId) -> Result<bool>;
        fn synchronize(event: EventId) -> Result<()>;
        fn elapsed_ms(start: EventId, end: EventId) -> Result<f32>;
        fn free_host(ptr: *mut u8, bytes: usize) -> Result<()>;
        fn free_device(address: Address, bytes: usize) -> Result<()>;
        fn copy_to_device(stream: StreamId, from: *const u8, to: Address, bytes: usize) -> Result<()>;
        fn copy_to_host(stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()>;
        fn copy_on_device(stream: StreamId, from: Address, to: Address, bytes: usize) -> Result<()>;
        fn fill(stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()>;
        fn host_access(ptr: *const u8, bytes: usize, access: Access) -> Result<()>;
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        // A recording that was not ended ends with its stream.
        self.tape.inner().open.remove(&stream);
        // SAFETY: the caller's contract.
        unsafe { self.host.destroy_stream(stream) }
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.root(stream) {
            inner.events.insert(event, root);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's contract.
        unsafe { self.host.record(event, stream) }
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.events.get(&event).copied() {
            inner.joined.insert(stream, root);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's contract.
        unsafe { self.host.wait(stream, event) }
    }

    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.root(stream) {
            inner.open.entry(root).and_modify(|recorded| *recorded += 1);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's contract.
        unsafe { self.host.run(stream, task) }
    }

    fn records(&self) -> bool {
        true
    }

    unsafe fn is_captured(&self, _: StreamId) -> Result<bool> {
        Ok(self.tape.inner().captured)
    }

    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        assert_eq!(self.tape.inner().open.insert(stream, 0), None, "the stream is already being recorded");
        Ok(())
    }

    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let mut inner = self.tape.inner();
        let work = inner.open.remove(&stream).expect("a recording in progress");
        inner.events.clear();
        inner.joined.clear();
        inner.made += 1;
        let id = GraphId(inner.made);
        inner.graphs.insert(id, (work, 0));
        Ok(id)
    }

    unsafe fn launch_graph(&self, graph: GraphId, _: StreamId) -> Result<()> {
        self.tape.inner().graphs.get_mut(&graph).expect("a live graph").1 += 1;
        Ok(())
    }

    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        self.tape.inner().graphs.remove(&graph).expect("a live graph");
        Ok(())
    }
}
