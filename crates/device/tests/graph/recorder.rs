//! The host device with recording on top: work given to a stream that is being recorded is counted and not run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use feedline_core::Result;
use feedline_device::host::Host;
use feedline_device::{Access, Address, Backend, BackendKind, EventId, GraphId, Priority, StreamId, Task};

/// What was recorded and replayed; clones are the same counts.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Streams being recorded, and the work recorded so far.
    open: BTreeMap<StreamId, usize>,
    /// Events recorded within a recording, and the stream it began with.
    marks: BTreeMap<EventId, StreamId>,
    /// Streams that joined a recording by a wait for such an event.
    joined: BTreeMap<StreamId, StreamId>,
    /// Graphs alive, the work in each, and how often it was launched.
    graphs: BTreeMap<GraphId, (usize, usize)>,
    made: u64,
    /// Whether another library captures every stream.
    captured: bool,
}

impl Inner {
    /// The stream whose recording `stream` is part of.
    fn root(&self, stream: StreamId) -> Option<StreamId> {
        let root = self.joined.get(&stream).copied().unwrap_or(stream);
        self.open.contains_key(&root).then_some(root)
    }
}

impl Tape {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Of each graph alive: pieces of work in it, and launches.
    pub fn graphs(&self) -> Vec<(usize, usize)> {
        self.inner().graphs.values().copied().collect()
    }

    /// Lets another library begin, or end, its own capture of every stream.
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

macro_rules! pass {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $out {
            self.host.$name($($arg),*)
        }
    )*};
    (unsafe $(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        unsafe fn $name(&self, $($arg: $type),*) -> $out {
            // SAFETY: the caller's promise; all handles and memory are the host backend's.
            unsafe { self.host.$name($($arg),*) }
        }
    )*};
}

// SAFETY: everything but recording is the host backend's own; a recorded graph does nothing when it is launched.
unsafe impl Backend for Recorder {
    pass! {
        fn kind() -> BackendKind;
        fn name() -> String;
        fn bind() -> Result<()>;
        fn create_stream(name: &str, priority: Priority) -> Result<StreamId>;
        fn create_event(timing: bool) -> Result<EventId>;
        fn alloc_host(bytes: usize) -> Result<*mut u8>;
        fn alloc_device(bytes: usize) -> Result<Address>;
    }

    pass! { unsafe
        fn synchronize_stream(stream: StreamId) -> Result<()>;
        fn destroy_event(event: EventId) -> Result<()>;
        fn query(event: EventId) -> Result<bool>;
        fn synchronize(event: EventId) -> Result<()>;
        fn elapsed_ms(start: EventId, end: EventId) -> Result<f32>;
        fn free_host(ptr: *mut u8, bytes: usize) -> Result<()>;
        fn free_device(address: Address, bytes: usize) -> Result<()>;
        fn copy_to_device(stream: StreamId, from: *const u8, to: Address, bytes: usize) -> Result<()>;
        fn copy_to_host(stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()>;
        fn fill(stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()>;
        fn host_access(ptr: *const u8, bytes: usize, access: Access) -> Result<()>;
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        // A recording that was not ended ends with its stream.
        self.tape.inner().open.remove(&stream);
        // SAFETY: the caller's promise.
        unsafe { self.host.destroy_stream(stream) }
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.root(stream) {
            inner.marks.insert(event, root);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's promise.
        unsafe { self.host.record(event, stream) }
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.marks.get(&event).copied() {
            inner.joined.insert(stream, root);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's promise.
        unsafe { self.host.wait(stream, event) }
    }

    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        let mut inner = self.tape.inner();
        if let Some(root) = inner.root(stream) {
            inner.open.entry(root).and_modify(|recorded| *recorded += 1);
            return Ok(());
        }
        drop(inner);
        // SAFETY: the caller's promise.
        unsafe { self.host.run(stream, task) }
    }

    fn records(&self) -> bool {
        true
    }

    unsafe fn is_captured(&self, _: StreamId) -> Result<bool> {
        Ok(self.tape.inner().captured)
    }

    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        assert_eq!(self.tape.inner().open.insert(stream, 0), None, "recorded twice at a time");
        Ok(())
    }

    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        let mut inner = self.tape.inner();
        let work = inner.open.remove(&stream).expect("a recording that has begun");
        inner.marks.clear();
        inner.joined.clear();
        inner.made += 1;
        let id = GraphId(inner.made);
        inner.graphs.insert(id, (work, 0));
        Ok(id)
    }

    unsafe fn launch_graph(&self, graph: GraphId, _: StreamId) -> Result<()> {
        self.tape.inner().graphs.get_mut(&graph).expect("a graph that is alive").1 += 1;
        Ok(())
    }

    unsafe fn destroy_graph(&self, graph: GraphId) -> Result<()> {
        self.tape.inner().graphs.remove(&graph).expect("a graph that is alive");
        Ok(())
    }
}
