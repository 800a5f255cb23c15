//! The host as a device: streams are FIFO threads, events are counters, device memory is host memory.
//!
//! It is asynchronous with the semantics of a GPU, so the same pipeline and training loop run, and can
//! race, here.
//!
//! Work on a stream never blocks on a stream. It may submit work to any stream, even past the 1,024
//! commands at which other threads block. It may drop batches, streams and events. A wait for the device
//! returns an error unless the awaited work has already ended. Dropping a buffer or a readback has to
//! wait; on a stream thread such a drop leaks the memory and reports that to the device's `DeviceStats`.

mod event;
mod queue;
mod worker;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::calls::Backend;
use crate::backend::gather::Gather;
use crate::backend::task::Task;
use crate::backend::types::{Address, BackendKind, EventId, Priority, StreamId};
use event::Event;
use queue::{Command, on_stream_thread};
use worker::Worker;

/// The backend of the host device.
#[derive(Default)]
pub struct Host {
    next_id: AtomicU64,
    streams: RwLock<HashMap<u64, Arc<Worker>>>,
    events: RwLock<HashMap<u64, Arc<Event>>>,
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

    fn event(&self, event: EventId) -> Result<Arc<Event>> {
        find(&self.events, event.0, "event")
    }

    fn check_lost(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn submit(&self, stream: StreamId, command: Command) -> Result<()> {
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

/// The error for work on a stream that would wait for the device. Like a CUDA host function, it must not.
fn wait_on_stream_thread() -> Error {
    let why = "work on a stream waited for the device, which may wait for that work: wait outside the task, \
               and drop buffers, readbacks and rings outside it too";
    Error::new(ErrorKind::Device, why)
}

/// Zeroed memory, aligned for both pinned and device memory.
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

/// Frees memory from `alloc`.
///
/// # Safety
/// The memory is from `alloc` with the same size, and is not used again.
unsafe fn free(ptr: *mut u8, bytes: usize) {
    // SAFETY: `alloc` checked the same size and alignment.
    let layout = unsafe { Layout::from_size_align_unchecked(bytes, 4096) };
    // SAFETY: the caller's contract.
    unsafe { dealloc(ptr, layout) }
}

// SAFETY: `alloc` zeroes the memory; streams run their commands one by one in order (`worker.rs`);
// `synchronize` returns when the recording it found has completed (`event.rs`).
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
        if on_stream_thread() {
            return if worker.queue().is_done() { self.check_lost() } else { Err(wait_on_stream_thread()) };
        }
        let event = Arc::new(Event::default());
        let number = event.issue();
        // Also done on a lost device: its streams run on and only skip the work.
        worker.queue().push(|| Command::Record(event.clone(), number))?;
        event.wait_for(number);
        self.check_lost()
    }

    fn create_event(&self, _timing: bool) -> Result<EventId> {
        let id = self.next_id();
        insert(&self.events, id, Event::default());
        Ok(EventId(id))
    }

    unsafe fn destroy_event(&self, event: EventId) -> Result<()> {
        remove(&self.events, event.0);
        Ok(())
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.check_lost()?;
        let event = self.event(event)?;
        self.stream(stream)?.queue().record(event)
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let event = self.event(event)?;
        match event.latest() {
            None => Ok(()),
            Some(number) => self.submit(stream, Command::Wait(event, number)),
        }
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        self.check_lost()?;
        let event = self.event(event)?;
        Ok(event.latest().is_none_or(|number| event.is_complete(number)))
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        let event = self.event(event)?;
        if let Some(number) = event.latest() {
            if on_stream_thread() && !event.is_complete(number) {
                return Err(wait_on_stream_thread());
            }
            event.wait_for(number);
        }
        self.check_lost()
    }

    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32> {
        let time = |event| {
            self.event(event)?.completed_at().ok_or_else(|| {
                Error::new(ErrorKind::Device, "the time of an event was requested before it was done")
            })
        };
        let (start, end) = (time(start)?, time(end)?);
        // A negative time is valid: the end came first.
        Ok(if end >= start { (end - start).as_secs_f32() } else { -(start - end).as_secs_f32() } * 1e3)
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        alloc(bytes)
    }

    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { free(ptr, bytes) };
        Ok(())
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        alloc(bytes).map(|ptr| Address(ptr as u64))
    }

    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract.
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
        self.submit(stream, Command::Copy { from: from as u64, to: to.0, bytes })
    }

    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()> {
        self.submit(stream, Command::Copy { from: from.0, to: to as u64, bytes })
    }

    unsafe fn copy_on_device(
        &self,
        stream: StreamId,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        self.submit(stream, Command::Copy { from: from.0, to: to.0, bytes })
    }

    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()> {
        self.submit(stream, Command::Fill { to: to.0, value, bytes })
    }

    unsafe fn register_host(&self, ptr: *const u8, _: usize) -> Result<Option<Address>> {
        Ok(Some(Address(ptr as u64)))
    }

    unsafe fn gather(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        self.submit(stream, Command::Gather(Box::new(gather.clone())))
    }

    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        self.submit(stream, Command::Run(Box::new(task)))
    }

    fn lost(&self) -> Option<Error> {
        self.lost.get().cloned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Streams that were never destroyed (their task never returns) are detached, not joined.
        let streams = self.streams.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        streams.clear();
    }
}
