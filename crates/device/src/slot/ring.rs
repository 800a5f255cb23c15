//! The ring of device slots: addresses and events made once, handed out again and again.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use feedline_backend::Address;
use feedline_core::{BatchInfo, Error, ErrorKind, Result};

use crate::capture::SlotId;
use crate::device_core::Core;
use crate::mark::Marks;
use crate::slot::line::Line;
use crate::stream::StreamCore;
use crate::zero_copy::StridedColumns;
use crate::{Device, Event};

/// The most slots of one ring. A pipeline needs a handful; each takes about ten events.
pub const MAX_SLOTS: usize = 1 << 16;

/// The most streams that can read one batch at a time.
pub const MAX_READERS: usize = 8;

pub(crate) struct Slot {
    pub(crate) address: Address,
    /// Reader `i` records its end in `consumed[i]`.
    pub(crate) consumed: [Event; MAX_READERS],
    /// Readers that have joined since the last upload: how many of `consumed` count.
    pub(crate) joined: AtomicU32,
    /// Readers that have not recorded their end yet.
    pub(crate) live: AtomicU32,
    /// Which batch the slot holds. Written by the holder of the slot's `WriteLease` alone, read by those of its `Loaded`
    /// and its readers.
    pub(crate) info: UnsafeCell<BatchInfo>,
    /// The slot's memory may be in use by work that no event covers: it is never freed nor handed out again.
    pub(crate) lost: AtomicBool,
}

// SAFETY: `info` is reached through leases only (`slot/lease.rs`). A slot has one `WriteLease` at a time, and while it has
// one it has no `Loaded` and no reader: it is released only when the last of them is dropped, through the lock of `free`.
unsafe impl Sync for Slot {}

/// A slot, with a hold on its ring's memory.
pub(crate) struct SlotRef {
    shared: Arc<Shared>,
    index: usize,
}

impl SlotRef {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    pub(crate) fn id(&self) -> SlotId {
        self.shared.slot_id(self.index)
    }

    /// Says that this slot was expected and `found` was found.
    pub(crate) fn mismatch(&self, found: SlotId) -> String {
        let ring = if self.id().ring == found.ring { "" } else { " of another loader" };
        format!("slot {}, not slot {}{ring}", self.index, found.index)
    }
}

pub(crate) struct Shared {
    pub(crate) device: Arc<Core>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) bytes: usize,
    /// For the copies into all slots.
    pub(crate) marks: Marks,
    pub(super) free: Line,
    /// Slots in the hands of the consumer, or lost there.
    pub(crate) delivered: AtomicUsize,
    /// Batches that the consumer has and has not released; a lost slot counts only until its last reader is
    /// dropped.
    pub(crate) in_hand: AtomicUsize,
    /// Slots that never come home again.
    lost: AtomicUsize,
    /// Why the first of them does not.
    first_loss: OnceLock<Error>,
    /// The one stream that copies into these slots, once there was a copy.
    pub(crate) copier: OnceLock<Arc<StreamCore>>,
    /// What the copy stream reads beside host slots, if anything: kept until it has been drained.
    pub(crate) columns: OnceLock<Arc<StridedColumns>>,
}

/// A fixed set of device slots of equal size. Clones share the slots.
#[derive(Clone)]
pub struct SlotRing {
    pub(crate) shared: Arc<Shared>,
}

impl SlotRing {
    /// Allocates `count` slots of `bytes` bytes, and their events, on `device`.
    ///
    /// There are events for as many host slots as these and one more; with others, the first copies make those that lack.
    ///
    /// # Errors
    /// `Config` for more than [`MAX_SLOTS`] slots; a device failure, or memory that the device does not have.
    pub fn new(device: &Device, count: usize, bytes: usize) -> Result<Self> {
        if count > MAX_SLOTS {
            let why = format!("a ring cannot have {count} device slots: the most is {MAX_SLOTS}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let core = device.core();
        // For each slot and each host slot its last copy's, and one for who waits for a copy of a host slot still in line.
        let marks = Marks::new(core, 2 * count + 2)?;
        // Built slot by slot into the ring itself, so that an error half-way frees what there is.
        let mut slots = Vec::with_capacity(count);
        let built = (0..count).try_for_each(|_| Slot::new(core, bytes).map(|slot| slots.push(slot)));
        let shared = Arc::new(Shared {
            device: core.clone(),
            slots: slots.into(),
            bytes,
            marks,
            free: Line::new(count),
            delivered: AtomicUsize::new(0),
            in_hand: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            first_loss: OnceLock::new(),
            copier: OnceLock::new(),
            columns: OnceLock::new(),
        });
        built?;
        (0..count).for_each(|index| shared.come_home(index));
        Ok(Self { shared })
    }

    /// Ends every wait for a slot, now and later; leases already out stay valid. Calling it again does nothing.
    pub fn close(&self) {
        self.shared.free.close();
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.shared.slots.len()
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.shared.slots.is_empty()
    }

    /// Slots that are home now.
    pub fn free(&self) -> usize {
        self.shared.free.len()
    }

    /// Slots in the hands of the consumer now: delivered and not dropped, or lost because a reader could not record its
    /// end.
    pub fn delivered(&self) -> usize {
        self.shared.delivered.load(Ordering::Acquire)
    }

    /// Batches that the consumer has and has not released. Unlike [`delivered`](Self::delivered) it does not
    /// count a slot that is lost, once its readers are dropped.
    pub fn in_hand(&self) -> usize {
        self.shared.in_hand.load(Ordering::Acquire)
    }

    /// Waits until the device has run all copies into the slots and all work of readers that were dropped,
    /// for at most `limit`. Readers that still exist are not waited for.
    ///
    /// # Errors
    /// `Timeout` naming what still runs; a device failure.
    pub fn drain_timeout(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let wait = |event: &Event, what: std::fmt::Arguments<'_>| {
            let has_ended = event.synchronize_timeout(limit.saturating_sub(start.elapsed()))?;
            let late = || Error::new(ErrorKind::Timeout, format!("{what} has not ended on the device"));
            if has_ended { Ok(()) } else { Err(late()) }
        };
        for (index, slot) in self.shared.slots.iter().enumerate() {
            for consumed in slot.recorded() {
                wait(consumed, format_args!("work that reads device slot {index}"))?;
            }
        }
        for copied in self.shared.marks.all() {
            wait(&copied, format_args!("a copy into a device slot"))?;
        }
        Ok(())
    }

    /// The addresses of the slots, fixed for the life of the ring: a step captured once for each can be replayed.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        self.shared.slots.iter().map(|slot| slot.address)
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
            .map_err(|_| Error::new(ErrorKind::Device, "a slot did not get all its events"))?;
        let address = device.backend.alloc_device(bytes)?;
        device.stats.device_bytes.add(bytes as u64);
        Ok(Self {
            address,
            consumed,
            joined: AtomicU32::new(0),
            live: AtomicU32::new(0),
            info: UnsafeCell::new(BatchInfo::default()),
            lost: AtomicBool::new(false),
        })
    }

    /// The events that the readers since the last copy record.
    fn recorded(&self) -> &[Event] {
        &self.consumed[..self.joined.load(Ordering::Acquire) as usize]
    }

    /// Blocks until no reader given so far touches the slot.
    fn drain(&self) -> Result<()> {
        self.recorded().iter().try_for_each(Event::synchronize)
    }
}

impl Shared {
    pub(crate) fn slot_id(self: &Arc<Self>, index: usize) -> SlotId {
        SlotId { ring: Arc::as_ptr(self).addr(), index }
    }

    /// Puts a slot back among the free ones.
    pub(crate) fn come_home(&self, index: usize) {
        self.free.push(index);
    }

    /// Takes a slot out of use, for good, because of `why`; the loss of the last one ends every wait for a slot.
    pub(crate) fn lose(&self, index: usize, why: &Error) {
        self.first_loss.get_or_init(|| why.clone());
        let was_lost = self.slots[index].lost.swap(true, Ordering::AcqRel);
        if !was_lost && self.lost.fetch_add(1, Ordering::AcqRel) + 1 == self.slots.len() {
            self.free.close();
        }
    }

    /// Why the ring hands out no slot.
    pub(crate) fn closed(&self) -> Error {
        let (lost, total) = (self.lost.load(Ordering::Acquire), self.slots.len());
        if total > 0 && lost == total {
            let what = format!("no device slot is left: {lost} of {total} were lost to device failures");
            return match self.first_loss.get() {
                Some(first) => Error::new(first.kind(), what).caused_by(first.clone()),
                None => Error::new(ErrorKind::Device, what),
            };
        }
        Error::new(ErrorKind::Stopped, "the device slots were closed")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let drained = self.copier.get().map_or(Ok(()), |stream| stream.synchronize());
        for slot in &self.slots {
            let unknown = slot.lost.load(Ordering::Acquire) || slot.live.load(Ordering::Acquire) > 0;
            let freed = match (unknown, drained.clone().and_then(|()| slot.drain())) {
                // SAFETY: from `alloc_device` with this size, freed once; every copy and every reader has ended.
                (false, Ok(())) => unsafe { self.device.backend.free_device(slot.address, self.bytes) },
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

impl std::fmt::Debug for SlotRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotRing({} of {} free, {} bytes each)", self.free(), self.len(), self.shared.bytes)
    }
}
