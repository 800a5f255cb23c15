//! The ring of device slots. Addresses and events are created once and reused.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{BatchInfo, Element, Error, ErrorKind, Result};

use crate::backend::Address;
use crate::backend::host::Host;
use crate::capture::SlotId;
use crate::device_core::Core;
use crate::device_slots::lease::WriteLease;
use crate::event::EventPool;
use crate::slots::Monitor;
use crate::stream::StreamCore;
use crate::zero_copy::StridedColumns;
use crate::{Device, Event, Stream};

/// The maximum number of slots in a ring. Each slot uses about ten events, and a pipeline needs only a
/// few slots.
pub const MAX_SLOTS: usize = 1 << 16;

/// The maximum number of streams that can read a batch at the same time.
pub const MAX_READERS: usize = 8;

/// Who holds the slots of a ring, from the point of view of a thread that waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The consumer holds fewer than all slots.
    Free,
    /// Unreleased batches of the consumer hold all slots, and no other thread seems to work with one of these
    /// batches.
    Idle,
    /// Batches hold all slots, but another thread took one of them, or has opened or read one while others
    /// wait. This thread may release its batch when it is done.
    InUse,
}

pub(crate) struct Slot {
    /// Changes only in a ring that takes over host slots. Only the holder of the slot's `WriteLease` changes
    /// it, and the leases order this change with other uses.
    address: AtomicU64,
    /// Reader `i` records its end in `consumed[i]`.
    pub(crate) consumed: [Event; MAX_READERS],
    /// The number of readers since the last upload. So the first `joined` events of `consumed` are valid.
    pub(crate) joined: AtomicU32,
    /// The number of readers that have not recorded their end yet.
    pub(crate) live: AtomicU32,
    /// Information on the batch in the slot. Only the holder of the slot's `WriteLease` or `Loaded` writes
    /// it. The slot's readers read it.
    pub(crate) info: UnsafeCell<BatchInfo>,
    /// The event of the last copy, if the batch was dropped unread and the ring has several writers. Then no
    /// reader has waited for this event.
    unread: Mutex<Option<Arc<Event>>>,
    /// The thread that took the batch in the slot ([`this_thread`]).
    pub(crate) taken_on: AtomicUsize,
    /// Whether another thread has opened or read this batch.
    pub(crate) is_used_elsewhere: AtomicBool,
    /// Whether the memory is never freed nor used again, because work that no event covers may still use it.
    pub(crate) lost: AtomicBool,
}

// SAFETY: `info` is accessed through leases only (`lease.rs`). A slot has at most one `WriteLease`,
// which a `Loaded` may own, and while it has one it has no reader: it is released only when the last of
// them is dropped, through the lock of `free`.
unsafe impl Sync for Slot {}

/// A slot reference that keeps its ring's memory alive.
pub(crate) struct SlotRef {
    ring: Arc<SlotRing>,
    index: usize,
}

impl SlotRef {
    pub(crate) fn new(ring: Arc<SlotRing>, index: usize) -> Self {
        Self { ring, index }
    }

    pub(crate) fn id(&self) -> SlotId {
        self.ring.slot_id(self.index)
    }

    /// Describes the error that `found` was passed where this slot was expected.
    pub(crate) fn mismatch(&self, found: SlotId) -> String {
        let ring = if self.id().ring == found.ring { "" } else { " of another loader" };
        format!("slot {}, not slot {}{ring}", self.index, found.index)
    }
}

/// A fixed set of device slots of equal size, shared by the leases.
pub struct SlotRing {
    pub(crate) device: Arc<Core>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) bytes: usize,
    /// The events of the copies into the slots.
    pub(crate) copy_events: EventPool,
    free: Monitor<VecDeque<usize>>,
    /// Changes only under the lock of `free`.
    is_closed: AtomicBool,
    /// Number of slots that are delivered to the consumer, or were lost there.
    pub(crate) delivered: AtomicUsize,
    /// Number of batches that the consumer has not released. A lost slot counts only until its last reader is
    /// dropped.
    pub(crate) unreleased: Arc<AtomicUsize>,
    /// Nanoseconds that host threads were blocked until a copy had ended, since the last call of
    /// `take_host_waits`.
    pub(crate) host_waits: AtomicU64,
    /// Number of slots that are never used again.
    lost: AtomicUsize,
    /// The reason why the first slot was lost.
    first_loss: OnceLock<Error>,
    /// The streams that write these slots: those passed to [`set_writers`](Self::set_writers), or else the
    /// stream of the first copy.
    writers: OnceLock<Box<[Arc<StreamCore>]>>,
    /// Whether a batch is handed over by exchanging the memory of its two slots.
    takes_over: AtomicBool,
    /// The columns that the copy stream gathers from, if any. Kept until that stream has been drained.
    pub(crate) columns: OnceLock<Arc<StridedColumns>>,
}

impl SlotRing {
    /// Allocates `count` slots of `bytes` bytes, and their events, on `device`.
    ///
    /// Creates enough copy events for `count` + 1 host slots. With more host slots, the first copies create
    /// the missing events.
    ///
    /// # Errors
    /// `Config` for more than [`MAX_SLOTS`] slots; a device failure, for example if the device is out of
    /// memory.
    pub fn new(device: &Device, count: usize, bytes: usize) -> Result<Arc<Self>> {
        if count > MAX_SLOTS {
            let why = format!("cannot create a ring of {count} device slots: the maximum is {MAX_SLOTS}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let core = device.core();
        // One event per device slot and one per host slot, for its last copy. One more for a thread that
        // waits for the copy of a host slot.
        let copy_events = EventPool::new(core, 2 * count + 2)?;
        // Each slot is added to the ring as soon as it is built, so that an error in between frees the slots
        // built before it.
        let mut slots = Vec::with_capacity(count);
        let built = (0..count).try_for_each(|index| {
            let slot = Slot::new(core, bytes)?;
            core.backend.name_memory(slot.address().0, &format!("device slot {index}"));
            slots.push(slot);
            Ok(())
        });
        let ring = Arc::new(Self {
            device: core.clone(),
            slots: slots.into(),
            bytes,
            copy_events,
            free: Monitor::new(VecDeque::with_capacity(count)),
            is_closed: AtomicBool::new(false),
            delivered: AtomicUsize::new(0),
            unreleased: Arc::default(),
            host_waits: AtomicU64::new(0),
            lost: AtomicUsize::new(0),
            first_loss: OnceLock::new(),
            writers: OnceLock::new(),
            takes_over: AtomicBool::new(false),
            columns: OnceLock::new(),
        });
        built?;
        (0..count).for_each(|index| ring.release(index));
        Ok(ring)
    }

    /// Lets `streams` and no other stream write these slots. Without this call, only the stream of the first
    /// copy writes them.
    ///
    /// # Errors
    /// `Config` for a stream of another device, and if the streams of the ring are already set.
    pub fn set_writers(&self, streams: &[Stream]) -> Result<()> {
        StreamCore::set_owners(streams, &self.writers, &self.device, "a ring of device slots")
    }

    /// On the host device, lets the two slots of a batch exchange their memory. So nothing is copied, and
    /// [`addresses`](Self::addresses) change. Does nothing on another device.
    pub fn take_over_host_slots(&self) {
        // Only the host backend is accepted, because other devices do not read host memory in place.
        let is_host = self.device.backend.downcast_ref::<Host>().is_some();
        self.takes_over.store(is_host, Ordering::Relaxed);
    }

    /// Whether a batch in a host slot of `bytes` bytes is handed over by exchanging memory.
    pub(crate) fn takes_over(&self, bytes: usize) -> bool {
        self.takes_over.load(Ordering::Relaxed) && bytes == self.bytes
    }

    /// Returns an error for a stream of another device, and for a stream that does not write these slots.
    pub(crate) fn accepts(&self, writer: &Arc<StreamCore>) -> Result<()> {
        writer.is_one_of(&self.writers, &self.device, "a ring of device slots is filled")
    }

    /// Whether writes of a slot may come from several streams, so that the order of one stream is not enough.
    pub(crate) fn has_several_writers(&self) -> bool {
        self.writers.get().is_some_and(|writers| writers.len() > 1)
    }

    /// Takes a slot to write. Blocks until a slot is free. The drop of a reader and [`close`](Self::close)
    /// end the wait.
    ///
    /// # Errors
    /// `Stopped` if the ring is closed; a device failure if device failures have lost every slot.
    pub fn acquire(self: &Arc<Self>) -> Result<WriteLease> {
        // A wait without a limit ends with a slot or an error.
        self.take(None)?.ok_or_else(|| self.closed())
    }

    /// Takes a slot to write if one is free; never blocks.
    ///
    /// # Errors
    /// `Stopped` if the ring is closed; a device failure if device failures have lost every slot.
    pub fn try_acquire(self: &Arc<Self>) -> Result<Option<WriteLease>> {
        self.acquire_timeout(Duration::ZERO)
    }

    /// Like [`acquire`](Self::acquire), but blocks for at most `limit`; `None` on timeout.
    ///
    /// # Errors
    /// `Stopped` if the ring is closed; a device failure if device failures have lost every slot.
    pub fn acquire_timeout(self: &Arc<Self>, limit: Duration) -> Result<Option<WriteLease>> {
        self.take(Some(limit))
    }

    fn take(self: &Arc<Self>, limit: Option<Duration>) -> Result<Option<WriteLease>> {
        let taken = self.free.wait(limit, |free| match self.is_closed.load(Ordering::Relaxed) {
            true => Some(Err(self.closed())),
            false => free.pop_front().map(Ok),
        });
        Ok(taken.transpose()?.map(|index| WriteLease::new(self.clone(), index)))
    }

    /// Ends all current and future waits for a slot. Existing leases stay valid. Idempotent.
    pub fn close(&self) {
        self.free.change(|_| self.is_closed.store(true, Ordering::Relaxed));
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes of all slots together.
    pub fn bytes(&self) -> usize {
        self.bytes * self.slots.len()
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.free.with(|free| free.len())
    }

    /// The number of slots that are delivered to the consumer and not dropped. A slot that was lost because a
    /// reader could not record its end counts too.
    pub fn delivered(&self) -> usize {
        self.delivered.load(Ordering::Acquire)
    }

    /// Who holds the slots. Call it on the thread that waits for a slot, because the result depends on the
    /// calling thread.
    pub fn held(&self) -> Held {
        if self.delivered() < self.len() {
            return Held::Free;
        }
        let this = this_thread();
        let (mut all, mut used, mut are_own) = (0, 0, true);
        // A lost slot has no holder any more.
        for slot in self.slots.iter().filter(|slot| !slot.lost.load(Ordering::Acquire)) {
            all += 1;
            used += usize::from(slot.is_used_elsewhere.load(Ordering::Relaxed));
            are_own &= slot.taken_on.load(Ordering::Relaxed) == this;
        }
        // A thread that works through a queue of batches has used one batch and not yet the others. A thread
        // that keeps every batch has used none of them, or all.
        let has_one_in_hand = used > 0 && (used < all || all == 1);
        if has_one_in_hand || !are_own { Held::InUse } else { Held::Idle }
    }

    /// The number of batches that the consumer has not released. Unlike [`delivered`](Self::delivered),
    /// it does not count a lost slot once its readers are dropped.
    pub fn unreleased(&self) -> &Arc<AtomicUsize> {
        &self.unreleased
    }

    /// The nanoseconds for which [`Reader::wait_until_copied`](super::Reader::wait_until_copied) has blocked
    /// host threads since the last call.
    pub fn take_host_waits(&self) -> u64 {
        // A plain load comes first. So the common case without waits does not take the cache line from
        // another core.
        let waits = &self.host_waits;
        if waits.load(Ordering::Relaxed) == 0 { 0 } else { waits.swap(0, Ordering::Relaxed) }
    }

    /// Blocks until the device has run all copies into the slots and all work of dropped readers, for at most
    /// `limit`. Does not wait for readers that still exist.
    ///
    /// # Errors
    /// `Timeout` with the name of the work that is still running; a device failure.
    pub fn drain_timeout(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let wait = |event: &Event, what: std::fmt::Arguments<'_>| {
            let has_ended = event.synchronize_timeout(limit.saturating_sub(start.elapsed()))?;
            let late = || Error::new(ErrorKind::Timeout, format!("{what} has not ended on the device"));
            if has_ended { Ok(()) } else { Err(late()) }
        };
        for (index, slot) in self.slots.iter().enumerate() {
            for consumed in slot.recorded() {
                wait(consumed, format_args!("work that reads device slot {index}"))?;
            }
        }
        for copied in self.copy_events.all() {
            wait(&copied, format_args!("a copy into a device slot"))?;
        }
        Ok(())
    }

    /// The addresses of the slots. They are fixed for the life of the ring. So a step that is recorded once
    /// per slot can be replayed.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        self.slots.iter().map(Slot::address)
    }
}

impl Slot {
    fn new(device: &Arc<Core>, bytes: usize) -> Result<Self> {
        let mut consumed = arrayvec::ArrayVec::<Event, MAX_READERS>::new();
        for _ in 0..MAX_READERS {
            consumed.push(Event::new(device, false)?);
        }
        let consumed = consumed
            .into_inner()
            .map_err(|_| Error::new(ErrorKind::Device, "a device slot did not get all its events"))?;
        let address = device.backend.alloc_device(bytes)?;
        device.stats.device_bytes.add(bytes as u64);
        Ok(Self {
            address: AtomicU64::new(address.0),
            consumed,
            joined: AtomicU32::new(0),
            live: AtomicU32::new(0),
            info: UnsafeCell::new(BatchInfo::default()),
            unread: Mutex::default(),
            taken_on: AtomicUsize::new(0),
            is_used_elsewhere: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        })
    }

    /// The memory.
    pub(crate) fn address(&self) -> Address {
        Address(self.address.load(Ordering::Relaxed))
    }

    /// Sets other memory of the same size. Only the holder of the slot's `WriteLease` may call it.
    pub(crate) fn set_address(&self, address: Address) {
        self.address.store(address.0, Ordering::Relaxed);
    }

    /// The event of the last copy, if its batch was dropped unread.
    pub(crate) fn unread(&self) -> MutexGuard<'_, Option<Arc<Event>>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One event per reader that has joined since the last copy. A reader records it when it ends.
    fn recorded(&self) -> &[Event] {
        &self.consumed[..self.joined.load(Ordering::Acquire) as usize]
    }

    /// Blocks until no reader accesses the slot any more.
    fn drain(&self) -> Result<()> {
        self.recorded().iter().try_for_each(Event::synchronize)
    }
}

impl SlotRing {
    pub(crate) fn slot_id(&self, index: usize) -> SlotId {
        SlotId { ring: std::ptr::from_ref(self).addr(), index }
    }

    /// Returns an error for `len` elements at byte `offset` that lie outside a slot or are not aligned.
    pub(crate) fn check_range<T: Element>(&self, offset: usize, len: usize) -> Result<()> {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        if end.is_some_and(|end| end <= self.bytes) && offset.is_multiple_of(size_of::<T>()) {
            return Ok(());
        }
        let why = format!("{len} x {} at byte {offset} do not fit a slot of {}", T::DTYPE, self.bytes);
        Err(Error::new(ErrorKind::Config, why))
    }

    /// Notes that the calling thread takes the batch in slot `index`.
    pub(crate) fn taken(&self, index: usize) {
        let slot = &self.slots[index];
        // Relaxed, as below, because it orders nothing.
        slot.taken_on.store(this_thread(), Ordering::Relaxed);
        slot.is_used_elsewhere.store(false, Ordering::Relaxed);
    }

    /// Notes that the calling thread opens or reads the batch in slot `index`.
    pub(crate) fn touch(&self, index: usize) {
        let slot = &self.slots[index];
        if slot.taken_on.load(Ordering::Relaxed) != this_thread() {
            slot.is_used_elsewhere.store(true, Ordering::Relaxed);
        }
    }

    /// Returns a slot to the free list.
    pub(crate) fn release(&self, index: usize) {
        self.free.add(1, |free| {
            free.push_back(index);
            ((), free.len())
        });
    }

    /// Stops using a slot, because of `why`. The loss of the last slot ends every wait for a slot.
    pub(crate) fn lose(&self, index: usize, why: &Error) {
        self.first_loss.get_or_init(|| why.clone());
        let was_lost = self.slots[index].lost.swap(true, Ordering::AcqRel);
        if !was_lost && self.lost.fetch_add(1, Ordering::AcqRel) + 1 == self.slots.len() {
            self.close();
        }
    }

    /// The error of a ring that hands out no more slots.
    pub(crate) fn closed(&self) -> Error {
        let (lost, total) = (self.lost.load(Ordering::Acquire), self.slots.len());
        if total > 0 && lost == total {
            let what = format!("no device slot is left: {lost} of {total} were lost to device failures");
            return match self.first_loss.get() {
                Some(first) => Error::new(first.kind(), what).with_source(first.clone()),
                None => Error::new(ErrorKind::Device, what),
            };
        }
        Error::new(ErrorKind::Stopped, "the device slots were closed")
    }
}

impl Drop for SlotRing {
    fn drop(&mut self) {
        let mut writers = self.writers.get().into_iter().flatten();
        let drained = writers.try_for_each(|writer| writer.synchronize());
        for slot in &self.slots {
            let unknown = slot.lost.load(Ordering::Acquire) || slot.live.load(Ordering::Acquire) > 0;
            let freed = match (unknown, drained.clone().and_then(|()| slot.drain())) {
                // SAFETY: from `alloc_device` with this size, or exchanged for such memory, and freed once;
                // every copy and every reader has ended.
                (false, Ok(())) => unsafe { self.device.backend.free_device(slot.address(), self.bytes) },
                (true, _) => Err(Error::new(
                    ErrorKind::Device,
                    "a device slot was leaked: its reader was forgotten, or could not record its end",
                )),
                (false, Err(error)) => Err(error),
            };
            if let Err(error) = freed {
                self.device.stats.report(error);
            }
            self.device.stats.device_bytes.subtract(self.bytes as u64);
        }
    }
}

/// A number of the calling thread, never 0. Another thread may get the same number once this thread has
/// ended.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl std::fmt::Debug for SlotRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotRing({} of {} free, {} bytes each)", self.free(), self.len(), self.bytes)
    }
}
