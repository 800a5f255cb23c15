//! The host as a device: streams are FIFO threads, events are counters, memory is memory.
//!
//! Real asynchrony with a GPU's semantics, so that the same pipeline and the same training loop run, and race, here.
//!
//! # Work that uses streams
//!
//! A closure that runs on a stream never blocks on a stream. It may give any stream more work, also when the
//! queue holds the 1,024 commands at which other threads block, and it may drop batches, streams and events.
//! If it waits for work that is not done yet, the wait returns an error. Dropping a buffer or a readback has
//! to wait: there, it leaks the memory and reports the error to the device's `DeviceStats`.

mod event;
mod queue;
mod worker;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::Backend;
use crate::gather::Gather;
use crate::task::Task;
use crate::types::{Address, BackendKind, EventId, Priority, StreamId};
use event::Mark;
use queue::{Command, runs_a_stream};
use worker::Worker;

/// The backend of the host device.
#[derive(Default)]
pub struct Host {
    next_id: AtomicU64,
    streams: RwLock<HashMap<u64, Arc<Worker>>>,
    events: RwLock<HashMap<u64, Arc<Mark>>>,
    lost: Arc<OnceLock<Error>>,
}

impl Host {
    /// A host device without streams.
    pub fn new() -> Self {
        Self::default()
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn stream(&self, stream: StreamId) -> Result<Arc<Worker>> {
        find(&self.streams, stream.0, "stream")
    }

    fn mark(&self, event: EventId) -> Result<Arc<Mark>> {
        find(&self.events, event.0, "event")
    }

    fn check_lost(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn give(&self, stream: StreamId, command: Command) -> Result<()> {
        self.check_lost()?;
        self.stream(stream)?.queue().push(|| command)
    }
}

fn find<T>(map: &RwLock<HashMap<u64, Arc<T>>>, id: u64, what: &str) -> Result<Arc<T>> {
    let map = map.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    map.get(&id)
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::Device, format!("no {what} {id} on this device")))
}

fn insert<T>(map: &RwLock<HashMap<u64, Arc<T>>>, id: u64, value: T) {
    map.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(id, Arc::new(value));
}

fn remove<T>(map: &RwLock<HashMap<u64, Arc<T>>>, id: u64) -> Option<Arc<T>> {
    map.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&id)
}

/// The error for work on a stream that waits for the device. CUDA's host functions must not do that either.
fn waits_on_a_stream() -> Error {
    let why = "work on a stream waited for the device, which may be waiting for that work: wait, and drop buffers and \
               readbacks, outside the work";
    Error::new(ErrorKind::Device, why)
}

/// Zeroed memory at an alignment that serves as page-locked and as device memory.
fn alloc(bytes: usize) -> Result<*mut u8> {
    let refuse = || Error::new(ErrorKind::Budget, format!("cannot allocate {bytes} bytes of host memory"));
    let layout = Layout::from_size_align(bytes, 4096).map_err(|_| refuse())?;
    if bytes == 0 {
        return Err(refuse());
    }
    // SAFETY: the size is not zero.
    let ptr = unsafe { alloc_zeroed(layout) };
    if ptr.is_null() { Err(refuse()) } else { Ok(ptr) }
}

/// Frees what `alloc` gave.
///
/// # Safety
/// From `alloc` with the same size, and not used again.
unsafe fn free(ptr: *mut u8, bytes: usize) {
    // SAFETY: `alloc` made this very layout, so it is valid.
    let layout = unsafe { Layout::from_size_align_unchecked(bytes, 4096) };
    // SAFETY: the caller's promise.
    unsafe { dealloc(ptr, layout) }
}

// SAFETY: `alloc` zeroes, streams run their commands one by one in order (`worker.rs`), and `synchronize` returns when
// the mark it saw has been reached (`event.rs`).
unsafe impl Backend for Host {
    fn kind(&self) -> BackendKind {
        BackendKind::Host
    }

    fn name(&self) -> String {
        "host".to_owned()
    }

    fn bind(&self) -> Result<()> {
        Ok(())
    }

    fn create_stream(&self, name: &str, _: Priority) -> Result<StreamId> {
        let id = self.next_id();
        insert(&self.streams, id, Worker::spawn(name, self.lost.clone())?);
        Ok(StreamId(id))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        remove(&self.streams, stream.0).map_or(Ok(()), |worker| worker.join())
    }

    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()> {
        let worker = self.stream(stream)?;
        if runs_a_stream() {
            return if worker.queue().is_done() { self.check_lost() } else { Err(waits_on_a_stream()) };
        }
        let mark = Arc::new(Mark::default());
        let ticket = mark.issue();
        // Also on a lost device: its streams still run to their end, they only skip the work.
        worker.queue().push(|| Command::Record(mark.clone(), ticket))?;
        mark.wait_for(ticket);
        self.check_lost()
    }

    fn create_event(&self, _timing: bool) -> Result<EventId> {
        let id = self.next_id();
        insert(&self.events, id, Mark::default());
        Ok(EventId(id))
    }

    unsafe fn destroy_event(&self, event: EventId) -> Result<()> {
        remove(&self.events, event.0);
        Ok(())
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.check_lost()?;
        let mark = self.mark(event)?;
        // Issued and queued in one step: a wait that another thread gives to this stream is queued behind it.
        self.stream(stream)?.queue().push(|| {
            let ticket = mark.issue();
            Command::Record(mark, ticket)
        })
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let mark = self.mark(event)?;
        match mark.latest() {
            None => Ok(()),
            Some(ticket) => self.give(stream, Command::Wait(mark, ticket)),
        }
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        self.check_lost()?;
        let mark = self.mark(event)?;
        Ok(mark.latest().is_none_or(|ticket| mark.reached(ticket)))
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        let mark = self.mark(event)?;
        if let Some(ticket) = mark.latest() {
            if runs_a_stream() && !mark.reached(ticket) {
                return Err(waits_on_a_stream());
            }
            mark.wait_for(ticket);
        }
        self.check_lost()
    }

    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32> {
        let time = |event| {
            self.mark(event)?.reached_at().ok_or_else(|| {
                Error::new(ErrorKind::Device, "an event was asked for its time before it was done")
            })
        };
        let (start, end) = (time(start)?, time(end)?);
        // A negative time is an answer too: the end came first.
        Ok(if end >= start { (end - start).as_secs_f32() } else { -(start - end).as_secs_f32() } * 1e3)
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        alloc(bytes)
    }

    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { free(ptr, bytes) };
        Ok(())
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        alloc(bytes).map(|ptr| Address(ptr as u64))
    }

    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { free(address.0 as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        self.give(stream, Command::Copy { from: from as u64, to: to.0, bytes })
    }

    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()> {
        self.give(stream, Command::Copy { from: from.0, to: to as u64, bytes })
    }

    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()> {
        self.give(stream, Command::Fill { to: to.0, value, bytes })
    }

    // Its memory is the host's.
    unsafe fn register_host(&self, ptr: *const u8, _: usize) -> Result<Option<Address>> {
        Ok(Some(Address(ptr as u64)))
    }

    unsafe fn gather(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        self.give(stream, Command::Gather(Box::new(gather.clone())))
    }

    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        self.give(stream, Command::Run(Box::new(task)))
    }

    fn lost(&self) -> Option<Error> {
        self.lost.get().cloned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Streams that their owners gave up on (a task that never returns) are left behind, not waited for.
        let streams = self.streams.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        streams.clear();
    }
}
