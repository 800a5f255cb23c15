//! A backend that waits for the end of each piece of work before the call returns: `FEEDLINE_SYNC=1`.

use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::{Error, Result};

use crate::backend::call_site::CallSite;
use crate::backend::calls::Backend;
use crate::backend::gather::Gather;
use crate::backend::launch::Launch;
use crate::backend::task::Task;
use crate::backend::types::{Access, Address, BackendKind, EventId, GraphId, Priority, StreamId};

/// A backend whose calls return only when the work that they submit has ended, so that a fault is returned
/// by the call that caused it. For debugging: no two works run at the same time.
///
/// Nothing is waited for while a graph is being recorded; its launch is.
#[derive(Debug)]
pub struct Synchronous<B> {
    below: B,
    /// Recordings in progress.
    recordings: AtomicUsize,
}

impl<B: Backend> Synchronous<B> {
    /// Makes the calls of `below` synchronous.
    pub fn new(below: B) -> Self {
        Self { below, recordings: AtomicUsize::new(0) }
    }

    /// Waits for the end of the work that was submitted.
    fn finish(&self, what: &str, stream: StreamId, submitted: Result<()>) -> Result<()> {
        submitted?;
        if self.recordings.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        // SAFETY: the call that submitted the work has used the stream.
        if unsafe { self.below.is_captured(stream) }? {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.below.synchronize_stream(stream) }.map_err(|error| {
            let site = CallSite::current().map(|site| format!(", called at {site},")).unwrap_or_default();
            Error::new(error.kind(), format!("{what}{site} failed on the device")).with_source(error)
        })
    }
}

/// Forwards methods of [`Backend`] unchanged.
macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $out {
            self.below.$name($($arg),*)
        }
    )*};
    (unsafe $(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        unsafe fn $name(&self, $($arg: $type),*) -> $out {
            // SAFETY: the caller's contract: handles and memory belong to the backend below.
            unsafe { self.below.$name($($arg),*) }
        }
    )*};
}

/// Forwards methods that submit work to a stream, and waits for its end.
macro_rules! finish {
    ($(fn $name:ident(stream $(, $arg:ident: $type:ty)*) = $what:expr;)*) => {$(
        unsafe fn $name(&self, stream: StreamId, $($arg: $type),*) -> Result<()> {
            let what = $what;
            // SAFETY: the caller's contract: handles and memory belong to the backend below.
            let submitted = unsafe { self.below.$name(stream, $($arg),*) };
            self.finish(&what, stream, submitted)
        }
    )*};
}

// SAFETY: every call is made on the backend below, which keeps the contract.
unsafe impl<B: Backend> Backend for Synchronous<B> {
    forward! {
        fn kind() -> BackendKind;
        fn name() -> String;
        fn pci_address() -> Option<String>;
        fn has_coherent_host_memory() -> bool;
        fn copies_rows_of(row_bytes: usize) -> bool;
        fn bind() -> Result<()>;
        fn create_stream(name: &str, priority: Priority) -> Result<StreamId>;
        fn create_event(timing: bool) -> Result<EventId>;
        fn alloc_host(bytes: usize) -> Result<*mut u8>;
        fn alloc_device(bytes: usize) -> Result<Address>;
        fn records() -> bool;
        fn name_memory(address: u64, name: &str) -> ();
        fn lost() -> Option<Error>;
    }

    forward! { unsafe
        fn destroy_stream(stream: StreamId) -> Result<()>;
        fn synchronize_stream(stream: StreamId) -> Result<()>;
        fn destroy_event(event: EventId) -> Result<()>;
        fn query(event: EventId) -> Result<bool>;
        fn synchronize(event: EventId) -> Result<()>;
        fn elapsed_ms(start: EventId, end: EventId) -> Result<f32>;
        fn free_host(ptr: *mut u8, bytes: usize) -> Result<()>;
        fn free_device(address: Address, bytes: usize) -> Result<()>;
        fn register_host(ptr: *const u8, bytes: usize) -> Result<Option<Address>>;
        fn unregister_host(ptr: *const u8, bytes: usize) -> Result<()>;
        fn is_captured(stream: StreamId) -> Result<bool>;
        fn destroy_graph(graph: GraphId) -> Result<()>;
        fn host_access(ptr: *const u8, bytes: usize, access: Access) -> Result<()>;
    }

    finish! {
        fn wait(stream, event: EventId) = "a wait for an event";
        fn copy_to_device(stream, from: *const u8, to: Address, bytes: usize)
            = format!("a copy of {bytes} bytes to the device");
        fn copy_to_host(stream, from: Address, to: *mut u8, bytes: usize)
            = format!("a copy of {bytes} bytes to the host");
        fn copy_on_device(stream, from: Address, to: Address, bytes: usize)
            = format!("a copy of {bytes} bytes on the device");
        fn fill(stream, to: Address, value: u8, bytes: usize) = format!("a fill of {bytes} bytes");
        fn gather(stream, gather: &Gather) = format!("a gather of {} rows", gather.rows());
        fn run(stream, task: Task) = format!("\"{}\"", task.name());
        fn launch(stream, launch: &mut Launch<'_>) = format!("kernel \"{}\"", launch.name);
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's contract.
        let recorded = unsafe { self.below.record(event, stream) };
        // Work of other libraries is not submitted by a call here: it ends at the next event.
        self.finish("work before an event", stream, recorded)
    }

    unsafe fn begin_capture(&self, stream: StreamId) -> Result<()> {
        self.recordings.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the caller's contract.
        let begun = unsafe { self.below.begin_capture(stream) };
        if begun.is_err() {
            self.recordings.fetch_sub(1, Ordering::AcqRel);
        }
        begun
    }

    unsafe fn end_capture(&self, stream: StreamId) -> Result<GraphId> {
        // SAFETY: the caller's contract.
        let ended = unsafe { self.below.end_capture(stream) };
        self.recordings.fetch_sub(1, Ordering::AcqRel);
        ended
    }

    unsafe fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<()> {
        // SAFETY: the caller's contract.
        let launched = unsafe { self.below.launch_graph(graph, stream) };
        self.finish("a recorded step", stream, launched)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&self.below)
    }
}
