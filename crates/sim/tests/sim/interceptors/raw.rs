//! Raw backend calls, so that tests can omit a wait.

use std::sync::mpsc::{Receiver, Sender, channel};

use feedline_core::{DType, Result};
use feedline_device::{Access, Address, Backend, EventId, Memory, Priority, Span, StreamId, Task};
use feedline_testkit::pattern;

use super::{BYTES, LIMIT};

/// A pinned block, a device slot and two streams, used by raw backend calls.
pub(crate) struct Raw<D: Backend> {
    pub(crate) backend: D,
    pub(crate) copier: StreamId,
    pub(crate) reader: StreamId,
    pub(crate) copied: EventId,
    pub(crate) host: *mut u8,
    pub(crate) slot: Address,
}

impl<D: Backend> Raw<D> {
    pub(crate) fn new(backend: D) -> Self {
        Self {
            copier: backend.create_stream("copier", Priority::High).unwrap(),
            reader: backend.create_stream("reader", Priority::Normal).unwrap(),
            copied: backend.create_event(false).unwrap(),
            host: backend.alloc_host(BYTES).unwrap(),
            slot: backend.alloc_device(BYTES).unwrap(),
            backend,
        }
    }

    pub(crate) fn batch(&self, id: u64) -> Vec<u8> {
        pattern::bytes(0, id).take(BYTES).collect()
    }

    /// Requests write access to the host block, and writes batch `id`.
    pub(crate) fn fill_host(&self, id: u64) {
        // SAFETY: the block is `BYTES` long, and written next.
        unsafe { self.backend.host_access(self.host, BYTES, Access::Write) }.unwrap();
        // SAFETY: the block has this size; the callers queue no copy that would still read it, or have
        // stopped the stream.
        unsafe { std::slice::from_raw_parts_mut(self.host, BYTES) }.copy_from_slice(&self.batch(id));
    }

    pub(crate) fn copy(&self) -> Result<()> {
        // SAFETY: both ranges have this size and outlive the streams.
        unsafe { self.backend.copy_to_device(self.copier, self.host, self.slot, BYTES) }?;
        // SAFETY: both belong to this backend.
        unsafe { self.backend.record(self.copied, self.copier) }
    }

    pub(crate) fn reader_waits(&self) {
        // SAFETY: both belong to this backend.
        unsafe { self.backend.wait(self.reader, self.copied) }.unwrap();
    }

    /// Starts a task on the reader's stream that sends the bytes of the slot.
    pub(crate) fn read(&self) -> Receiver<Vec<u8>> {
        let (sender, bytes) = channel();
        let span = Span { address: self.slot, bytes: BYTES }.of(DType::U8);
        let send = move |memory: &mut Memory<'_>| {
            sender.send(memory.input::<u8>(0).to_vec()).ok();
        };
        let task = Task::new("read", [span], [], send).unwrap();
        // SAFETY: the span outlives the stream. Nothing writes it meanwhile: the callers wait, or have
        // stopped the copier.
        unsafe { self.backend.run(self.reader, task) }.unwrap();
        bytes
    }

    pub(crate) fn read_after_all(&self) -> Vec<u8> {
        self.synchronize();
        self.read().recv_timeout(LIMIT).unwrap()
    }

    /// Stops the copy stream until the returned sender sends or is dropped.
    pub(crate) fn stop_copier(&self) -> Sender<()> {
        let (open, opened) = channel::<()>();
        let wait = move |_: &mut Memory<'_>| {
            opened.recv_timeout(LIMIT).ok();
        };
        // SAFETY: the stream belongs to this backend; the task has no spans.
        unsafe { self.backend.run(self.copier, Task::new("stop", [], [], wait).unwrap()) }.unwrap();
        open
    }

    pub(crate) fn synchronize(&self) {
        // SAFETY: the stream belongs to this backend.
        unsafe { self.backend.synchronize_stream(self.copier) }.unwrap();
        // SAFETY: as above.
        unsafe { self.backend.synchronize_stream(self.reader) }.unwrap();
    }
}

impl<D: Backend> Drop for Raw<D> {
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one argument covers all of them")]
    fn drop(&mut self) {
        // SAFETY: each belongs to this backend and is not used again; destroying a stream runs it to its
        // end first.
        unsafe {
            self.backend.destroy_stream(self.copier).ok();
            self.backend.destroy_stream(self.reader).ok();
            self.backend.destroy_event(self.copied).ok();
            self.backend.free_host(self.host, BYTES).ok();
            self.backend.free_device(self.slot, BYTES).ok();
        }
    }
}
