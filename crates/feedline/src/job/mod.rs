//! The batches that the stages pass to each other, and the requests that say which are wanted. `decode` and
//! `transfer` import this room; it imports neither.
//!
//! | part | file |
//! | --- | --- |
//! | a batch to decode, its description, what a stage delivers; the requests, and the inbox | `mod.rs` |
//! | the records of a source, read in sequence | `source.rs` |
//! | the same, shuffled within a number of bytes | `shuffle_buffer.rs` |

mod shuffle_buffer;
mod source;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use feedline_core::timeline::now;
use feedline_core::{BatchInfo, Error, ErrorKind, Result, SourcePosition, Timeline};
use feedline_device::Pinned;
use feedline_device::device_slots::Loaded;
use feedline_device::slots::{FillLease, Mailbox, ReadyLease, WAKE_UP};

pub(crate) use source::SourceReader;

/// A batch to decode.
pub(crate) struct Job {
    /// The request of the batch, advanced to its step.
    pub(crate) request: Request,
    /// The times so far, and the batch's number, counted over all batches of the loader.
    pub(crate) timeline: Timeline,
    /// The slot to fill. Its info describes the batch once a worker has [taken](Self::taken) the job.
    pub(crate) lease: FillLease<Pinned, HostInfo>,
    /// The worker that filled the slot last, if it is known.
    pub(crate) filled_by: Option<u32>,
    /// For a source, the reader of its records.
    pub(crate) reader: Option<Box<SourceReader>>,
}

/// The description of the batch in a host slot.
#[derive(Debug, Default)]
pub(crate) struct HostInfo {
    pub(crate) batch: BatchInfo,
    /// The global position in the epoch of each row of a data set; empty if the workers do not read the rows,
    /// and for a source.
    pub(crate) draws: Vec<u64>,
    /// The raw records of a source.
    pub(crate) records: Records,
}

/// The raw records of one batch of a source. The slot's next batch reuses their memory.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) ids: Vec<u64>,
    /// Record `i` belongs to sample `ids[i]`; buffers of older batches may follow.
    pub(crate) bytes: Vec<Vec<u8>>,
}

/// An item that a stage delivers to the next one.
pub(crate) enum Delivery {
    /// A decoded batch in its host slot.
    Filled(ReadyLease<Pinned, HostInfo>),
    /// A batch whose copy to the device, or whose device map, is queued.
    Copied(Loaded),
    /// There is no batch: the epoch of a source has ended.
    EpochEnd { request: u64, source_position: SourcePosition },
}

impl Job {
    /// Batch `number`, the next step of `request`, to be decoded into the slot of `lease`, which worker
    /// `filled_by` filled last. For a source, with the reader of its records.
    pub(crate) fn new(
        number: u64,
        request: Request,
        mut lease: FillLease<Pinned, HostInfo>,
        (filled_by, reader): (Option<u32>, Option<Box<SourceReader>>),
    ) -> Self {
        if reader.is_some() {
            lease.info_mut().records.clear();
        }
        let timeline = Timeline { number, ..Timeline::default() };
        Self { request, timeline, lease, filled_by, reader }
    }

    /// Describes the batch in the slot's info. Called by the thread that has just taken the job from the
    /// queue.
    pub(crate) fn taken(mut self) -> Self {
        let Request { number: request, epoch, step, start, .. } = self.request;
        let info = self.lease.info_mut();
        info.batch.reset(request, epoch, step);
        info.batch.timeline = self.timeline;
        info.batch.start = start;
        info.draws.clear();
        self
    }

    /// Prepares the job to be queued again. It keeps its times and the records read so far.
    pub(crate) fn put_off(mut self) -> Self {
        self.timeline = self.lease.info().batch.timeline;
        self
    }

    /// Whether the job may get another slot. A batch of a source may not: its slot may already hold some of
    /// its records.
    pub(crate) fn may_swap_slot(&self) -> bool {
        self.reader.is_none()
    }

    /// Whether the batch will be delivered; see [`Requests::is_wanted`].
    pub(crate) fn is_wanted(&self, requests: &Requests) -> bool {
        requests.is_wanted(self.request.number, self.timeline.number)
    }
}

impl HostInfo {
    /// The draw of each row, which keys its random numbers; a record's draw is its id.
    pub(crate) fn draws(&self) -> &[u64] {
        if self.draws.is_empty() { &self.batch.ids } else { &self.draws }
    }
}

impl Records {
    /// Forgets the records and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// An empty buffer for the next record.
    fn next(&mut self) -> &mut Vec<u8> {
        let index = self.ids.len();
        if index == self.bytes.len() {
            self.bytes.push(Vec::new());
        }
        self.bytes[index].clear();
        &mut self.bytes[index]
    }
}

/// The batches that a loader wants: from a position in an epoch to the end of its last epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Requests are numbered from 1; each batch carries the number of its request.
    pub(crate) number: u64,
    /// The first epoch.
    pub(crate) epoch: u64,
    /// The global position at which the first epoch begins; later epochs begin at 0.
    pub(crate) start: u64,
    /// For a source, the offset in the shard at `start` to begin at; later epochs begin at 0.
    pub(crate) offset: u64,
    /// For a source that is shuffled, the records taken from the block at `offset`.
    pub(crate) taken: u64,
    /// The epoch after the last one; nothing of it is read ahead.
    pub(crate) end: u64,
    /// Batches of the first epoch that are handed out, or delivered.
    pub(crate) step: u64,
}

impl Request {
    /// The rest of the request after the first epoch.
    pub(crate) fn next_epoch(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), start: 0, offset: 0, taken: 0, step: 0, ..self }
    }

    /// The position of a source at which the first epoch begins.
    pub(crate) fn source_position(self) -> SourcePosition {
        SourcePosition { position: self.start, offset: self.offset, taken: self.taken }
    }
}

/// A message to the transfer thread.
pub(crate) enum Message {
    /// The outcome of batch `number`; `None` if the batch is no longer wanted.
    Decoded { number: u64, outcome: Result<Option<Delivery>> },
    /// The reader of a source is free for another worker; its last worker read for `request`.
    Reader { reader: Box<SourceReader>, request: u64 },
    /// The source has no record yet: queue the batch again a moment later.
    NotYet(Box<Job>),
    /// The consumer has a new request.
    Wake,
}

/// The consumer's requests, and the inbox of the transfer thread. Tells all stages which batches are wanted.
pub(crate) struct Requests {
    /// The number of the latest request; `u64::MAX` after a stop. Changes under the lock of `next`.
    latest: AtomicU64,
    /// The number of the first batch that failed; no later batch is delivered.
    first_failed: AtomicU64,
    /// The latest request, until the transfer thread takes it.
    next: Mutex<Option<Request>>,
    /// Whether the inbox holds a [`Message::Wake`]: it has room for one.
    is_waking: AtomicBool,
    /// Whether the thread has ended.
    is_closed: AtomicBool,
    /// Whether the consumer waits for a batch.
    is_waited_for: AtomicBool,
    /// The messages to the transfer thread.
    pub(crate) inbox: Mailbox<Message>,
    host_slots: usize,
    /// The time at which a worker last woke the thread.
    woken_at: AtomicU64,
}

/// The max time that workers, decoding one short batch after another, leave the thread asleep. With 100 us
/// instead, four workers feed a GPU from memory at 0.78 of plain threads, not 0.90 (16 cores beside an H200,
/// 2026-11-24, bench `readers`, npy).
pub(crate) const QUIET: Duration = WAKE_UP.saturating_mul(3);

impl Requests {
    /// The requests to one transfer thread. Its inbox has room for every batch in `host_slots` slots, the
    /// reader of a source, and one wake-up.
    pub(crate) fn new(host_slots: usize) -> Self {
        Self {
            latest: AtomicU64::new(0),
            first_failed: AtomicU64::new(u64::MAX),
            next: Mutex::new(None),
            is_waking: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_waited_for: AtomicBool::new(false),
            inbox: Mailbox::new(host_slots + 2),
            host_slots,
            woken_at: AtomicU64::new(0),
        }
    }

    /// Requests other batches. Batches of earlier requests are no longer wanted.
    ///
    /// # Errors
    /// `Stopped` after a [`stop`](Self::stop).
    pub(crate) fn begin(&self, request: Request) -> Result<()> {
        let mut next = self.lock();
        if self.is_stopped() {
            return Err(Error::new(ErrorKind::Stopped, "the pipeline was stopped"));
        }
        *next = Some(request);
        self.latest.store(request.number, Ordering::Release);
        drop(next);
        self.wake();
        Ok(())
    }

    /// Asks the thread to end: no batch is wanted any more.
    pub(crate) fn stop(&self) {
        let next = self.lock();
        self.latest.store(u64::MAX, Ordering::Release);
        drop(next);
        self.wake();
    }

    /// Makes the thread look for a new request and for free slots.
    pub(crate) fn wake(&self) {
        if !self.is_waking.swap(true, Ordering::AcqRel) {
            self.send(Message::Wake);
        }
    }

    /// Sets whether the consumer waits for a batch: if loaders share a pool, those with waiting consumers go
    /// first.
    pub(crate) fn set_waited_for(&self, is_waited_for: bool) {
        self.is_waited_for.store(is_waited_for, Ordering::Relaxed);
    }

    /// Whether the consumer waits for a batch.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// The number of host slots: at most this many batches are queued or decoded at a time.
    pub(crate) fn host_slots(&self) -> usize {
        self.host_slots
    }

    /// Sends a message to the thread. Once the thread has ended, the message is dropped, and the slot in it
    /// is released.
    pub(crate) fn send(&self, message: Message) {
        self.post(message, true);
    }

    /// Hands in the outcome of batch `number`, and wakes nobody: the caller calls
    /// [`wake_for_outcomes`](Self::wake_for_outcomes) next.
    pub(crate) fn hand_in(&self, number: u64, outcome: Result<Option<Delivery>>) {
        if outcome.is_err() {
            self.set_failed(number);
        }
        self.post(Message::Decoded { number, outcome }, false);
    }

    fn post(&self, message: Message, wake: bool) {
        self.inbox.send(message, wake);
        // Either `close` finds the message, or this call finds the inbox closed: both lock the inbox.
        if self.is_closed.load(Ordering::SeqCst) {
            self.drop_messages();
        }
    }

    /// The thread has ended: drops the messages that it has not received, and all later ones.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.drop_messages();
    }

    fn drop_messages(&self) {
        while let Some(message) = self.inbox.recv(Some(Duration::ZERO)) {
            drop(message);
        }
    }

    /// Wakes the thread for the outcomes that were handed in, unless `is_busy` and it was woken [`QUIET`] ago
    /// or less: a caller that is busy calls again soon.
    pub(crate) fn wake_for_outcomes(&self, is_busy: bool) {
        if self.inbox.is_empty() {
            return;
        }
        let now = now();
        // Relaxed: a heuristic.
        let since = now.saturating_sub(self.woken_at.load(Ordering::Relaxed));
        if !is_busy || Duration::from_nanos(since) >= QUIET {
            self.woken_at.store(now, Ordering::Relaxed);
            self.inbox.wake();
        }
    }

    /// Whether the batches of `request` are no longer wanted.
    pub(crate) fn is_stale(&self, request: u64) -> bool {
        self.latest.load(Ordering::Acquire) != request
    }

    /// Whether batch `number` of `request` will be delivered: false after another request, after a stop, and
    /// after the failure of an earlier batch, for good.
    pub(crate) fn is_wanted(&self, request: u64, number: u64) -> bool {
        !self.is_stale(request) && number <= self.first_failed.load(Ordering::Relaxed)
    }

    /// [`is_wanted`](Self::is_wanted) of the batch of `info`.
    pub(crate) fn wants(&self, info: &BatchInfo) -> bool {
        self.is_wanted(info.request, info.timeline.number)
    }

    /// Batch `number` has failed, so no later one is delivered.
    pub(crate) fn set_failed(&self, number: u64) {
        self.first_failed.fetch_min(number, Ordering::Relaxed);
    }

    /// Whether a batch has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.first_failed.load(Ordering::Relaxed) != u64::MAX
    }

    pub(crate) fn is_stopped(&self) -> bool {
        !self.is_stale(u64::MAX)
    }

    /// The thread has received the [`Message::Wake`].
    pub(crate) fn woken(&self) {
        self.is_waking.swap(false, Ordering::AcqRel);
    }

    /// Takes the latest request, if the thread does not have it yet.
    pub(crate) fn take(&self) -> Option<Request> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
