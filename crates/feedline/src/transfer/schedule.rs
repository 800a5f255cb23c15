//! The order of the batches: the consumer's requests, the next batch to decode, and the reorder buffer for
//! decoded batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use feedline_core::{BatchSampler, Error, ErrorKind, Result, SourcePosition};
use feedline_device::Pinned;
use feedline_slots::{FillLease, Mailbox, WAKE_UP};

use crate::decode::{HostInfo, Message, SourceReader, Undecoded};

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

/// The longest time for which workers that decode one short batch after another leave the thread asleep. With
/// 100 us instead, four workers feed a GPU from memory at 0.78 of plain threads, not 0.90 (16 cores beside an
/// H200, 2026-11-24, bench `readers`, npy).
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

    /// Requests other batches; those of earlier requests are no longer wanted.
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

    /// Says whether the consumer waits for a batch: then its loader goes first where several share a pool.
    pub(crate) fn set_waited_for(&self, is_waited_for: bool) {
        self.is_waited_for.store(is_waited_for, Ordering::Relaxed);
    }

    /// Whether the consumer waits for a batch.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// The number of host slots: so many batches are queued or decoded at a time.
    pub(crate) fn host_slots(&self) -> usize {
        self.host_slots
    }

    /// Sends a message to the thread. Once the thread has ended, the message is dropped, and the slot in it
    /// is released.
    pub(crate) fn send(&self, message: Message) {
        self.post(message, true);
    }

    /// The same; without `wake`, the caller wakes the thread later ([`wake_at`](Self::wake_at)).
    pub(crate) fn post(&self, message: Message, wake: bool) {
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

    /// Wakes the thread at `now` for the messages posted, unless `is_busy` and it was woken [`QUIET`] ago or
    /// less: a caller that is busy calls again soon.
    pub(crate) fn wake_at(&self, now: u64, is_busy: bool) {
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

    /// Batch `number` has failed, so no later one is delivered.
    pub(crate) fn set_failed(&self, number: u64) {
        self.first_failed.fetch_min(number, Ordering::Relaxed);
    }

    /// Whether a batch before `number` failed, so that `number` will not be delivered.
    pub(crate) fn is_after_failure(&self, number: u64) -> bool {
        self.first_failed.load(Ordering::Relaxed) < number
    }

    pub(super) fn is_stopped(&self) -> bool {
        !self.is_stale(u64::MAX)
    }

    /// The thread has received the [`Message::Wake`].
    pub(crate) fn woken(&self) {
        self.is_waking.swap(false, Ordering::AcqRel);
    }

    /// Takes the latest request, if the thread does not have it yet.
    pub(super) fn take(&self) -> Option<Request> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands out the batches of the current request, in order.
pub(super) struct Schedule {
    batch_sampler: Arc<BatchSampler>,
    /// The request, advanced to the epoch that is being handed out; `None` when nothing is left to hand out.
    request: Option<Request>,
    /// Batches of the epoch; 0 for a source, whose end is not known in advance.
    steps: u64,
    /// The number of the next batch, over all requests.
    number: u64,
    is_source: bool,
    /// The reader of a source; `None` while a worker has it.
    reader: Option<Box<SourceReader>>,
}

impl Schedule {
    /// The batches of `batch_sampler`; for a source, `reader` reads its records.
    pub(super) fn new(batch_sampler: Arc<BatchSampler>, reader: Option<Box<SourceReader>>) -> Self {
        let is_source = reader.is_some();
        Self { batch_sampler, request: None, steps: 0, number: 0, is_source, reader }
    }

    /// Begins another request; the rest of the previous one is abandoned.
    pub(super) fn begin(&mut self, request: Request) {
        let Request { epoch, start, .. } = request;
        self.request = Some(request);
        match &mut self.reader {
            None if self.is_source => {} // `accept_reader` moves it when the worker returns it.
            None => self.steps = self.batch_sampler.steps(epoch, start),
            Some(reader) => reader.seek(epoch, request.source_position()),
        }
    }

    /// Takes the reader of a source back from the worker that read for request `number`.
    pub(super) fn accept_reader(&mut self, mut reader: Box<SourceReader>, number: u64) {
        if let Some(request) = self.request
            && (request.number != number || request.step == 0)
        {
            reader.seek(request.epoch, request.source_position());
        }
        self.reader = Some(reader);
    }

    /// Whether a worker has the reader of the source; until it is back no batch can be handed out.
    pub(super) fn is_reader_away(&self) -> bool {
        self.is_source && self.reader.is_none()
    }

    /// Whether there is a batch to hand out.
    pub(super) fn has_next(&mut self) -> bool {
        while let Some(request) = self.request {
            let is_at_end = match &self.reader {
                Some(reader) => reader.is_at_end(),
                None if self.is_source => return false,
                None => request.step >= self.steps,
            };
            if !is_at_end {
                return true;
            }
            if request.epoch >= request.end.saturating_sub(1) {
                self.request = None;
                break;
            }
            self.begin(request.next_epoch());
        }
        false
    }

    /// Hands out the batch that [`has_next`](Self::has_next) has reported, to be decoded into the slot of
    /// `lease`, which worker `filled_by` filled last.
    pub(super) fn next(&mut self, lease: FillLease<Pinned, HostInfo>, filled_by: Option<u32>) -> Undecoded {
        let request = self.request.get_or_insert_default();
        let batch = Undecoded::new(self.number, *request, lease, (filled_by, self.reader.take()));
        request.step += 1;
        self.number += 1;
        batch
    }
}

/// Items by number, from the next one to deliver on.
pub(crate) struct Reorder<T> {
    /// The number of the first item in `places`.
    next: u64,
    places: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    /// An empty buffer; numbers begin at 0. Up to `capacity` numbers at a time need no further allocation.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { next: 0, places: VecDeque::with_capacity(capacity) }
    }

    /// Whether `number` is the next one to deliver.
    pub(super) fn is_next(&self, number: u64) -> bool {
        number == self.next
    }

    /// Whether the buffer holds no item.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Inserts an item. A number that was already delivered is a bug and is ignored.
    pub(crate) fn put(&mut self, number: u64, item: T) {
        let Some(index) = number.checked_sub(self.next) else { return };
        let index = index as usize;
        while self.places.len() <= index {
            self.places.push_back(None);
        }
        debug_assert!(self.places[index].is_none(), "number {number} twice");
        self.places[index] = Some(item);
    }

    /// Removes the next item, if it has arrived.
    pub(crate) fn take(&mut self) -> Option<T> {
        let item = self.places.front_mut()?.take()?;
        self.places.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_the_order_of_their_numbers() {
        let mut reorder = Reorder::new(4);
        assert_eq!(reorder.take(), None::<char>);
        reorder.put(2, 'c');
        reorder.put(0, 'a');
        assert_eq!([reorder.take(), reorder.take()], [Some('a'), None]);
        reorder.put(1, 'b');
        assert_eq!([reorder.take(), reorder.take(), reorder.take()], [Some('b'), Some('c'), None]);
        reorder.put(1, 'x');
        assert_eq!(reorder.take(), None, "number 1 has already left");
    }
}
