//! The leases of a device slot: write, loaded, reader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use feedline_backend::Address;
use feedline_core::{BatchInfo, Element, Error, ErrorKind, Result};
use feedline_slots::ReadyLease;

use crate::capture::SlotId;
use crate::slot::line::Closed;
use crate::slot::ring::{MAX_READERS, Shared, Slot, SlotRef, SlotRing};
use crate::stream::StreamCore;
use crate::view::View;
use crate::zero_copy::StridedColumns;
use crate::{Event, Pinned, Stream};

/// The right to overwrite a device slot. Dropped, it sends the slot home.
pub struct WriteLease {
    held: Held,
}

/// A slot with a batch on its way: the copy is queued, not necessarily done. Dropped unread, it sends the slot home.
pub struct Loaded {
    held: Held,
    /// Of the copy.
    copied: Arc<Event>,
}

/// The right to read a slot on one stream, until dropped: then `consumed` is recorded on that stream.
pub struct Reader {
    shared: Arc<Shared>,
    index: usize,
    /// Which of the slot's `consumed` events is this reader's.
    number: usize,
    stream: Stream,
    /// The mark of the copy, for further readers.
    copied: Arc<Event>,
}

impl SlotRing {
    /// Takes a slot to write, waiting for one; woken by a reader's drop and by [`close`](Self::close).
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; a device failure once every slot is lost to one.
    pub fn acquire(&self) -> Result<WriteLease> {
        loop {
            if let Some(lease) = self.take(None)? {
                return Ok(lease);
            }
        }
    }

    /// Takes a slot to write when one is home; never blocks.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; a device failure once every slot is lost to one.
    pub fn try_acquire(&self) -> Result<Option<WriteLease>> {
        self.acquire_timeout(Duration::ZERO)
    }

    /// Like [`acquire`](Self::acquire), for at most `limit`; `None` when it passed.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; a device failure once every slot is lost to one.
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Option<WriteLease>> {
        self.take(Some(limit))
    }

    fn take(&self, limit: Option<Duration>) -> Result<Option<WriteLease>> {
        let index = self.shared.free.pop(limit).map_err(|Closed| self.shared.closed())?;
        Ok(index.map(|index| WriteLease::new(self.shared.clone(), index)))
    }
}

impl WriteLease {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { held: Held { shared, index, delivered: false, armed: true } }
    }

    /// Which batch the slot will hold. Swap it with a host slot's, so that the memory of both is used again.
    pub fn info_mut(&mut self) -> &mut BatchInfo {
        let slot = &self.held.shared.slots[self.held.index];
        // SAFETY: this is the slot's one lease, borrowed mutably (`ring.rs`, at `Slot`).
        unsafe { &mut *slot.info.get() }
    }

    /// Copies the first `bytes` bytes of a ready host slot into this slot, on `stream`, in one copy.
    ///
    /// The copy stream first waits for every reader of the slot's last batch. The host slot goes home at once; the host
    /// waits for its copy when it is filled next.
    ///
    /// # Errors
    /// `Config` for another device's stream or sizes that do not fit; a device failure. A slot whose copy failed is
    /// out of use.
    pub fn upload<T>(self, stream: &Stream, from: ReadyLease<Pinned, T>, bytes: usize) -> Result<Loaded> {
        let shared = &self.held.shared;
        if bytes > shared.bytes || bytes > from.bytes().len() {
            let why = format!("{bytes} bytes do not fit a device slot of {}", shared.bytes);
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.fill(stream.core(), from, |copier, at, slot| {
            // SAFETY: both are that long, checked above. `fill` keeps the block away from the host until the copy is done, and
            // orders it behind all readers of the slot.
            unsafe { copier.device.backend.copy_to_device(copier.id(), at, slot, bytes) }
        })
    }

    /// Fills this slot with the rows of `columns` that its [`info`](Self::info_mut) names, on `stream`, without a copy on the host: a
    /// ready host slot carries the same ids, as the columns' [`gather_order`](StridedColumns::gather_order) writes them.
    ///
    /// As for [`upload`](Self::upload), the copy stream first waits for every reader of the slot's last batch, and the host
    /// slot goes home at once, to be filled when the work behind it has ended. The ring keeps the tables.
    ///
    /// # Errors
    /// `Config` for another device's stream, another stream or other tables than the ring had, or sizes that do not fit; a
    /// device failure. A slot whose gather failed is out of use.
    pub fn gather<T>(
        self,
        stream: &Stream,
        from: ReadyLease<Pinned, T>,
        columns: &Arc<StridedColumns>,
    ) -> Result<Loaded> {
        let shared = self.held.shared.clone();
        // SAFETY: this is the slot's one lease, and nobody writes the info before `fill` returns (`ring.rs`, at `Slot`).
        let ids = unsafe { &(*shared.slots[self.held.index].info.get()).ids };
        columns.accepts(stream.core(), ids.len(), from.bytes().len(), shared.bytes)?;
        if !Arc::ptr_eq(shared.columns.get_or_init(|| columns.clone()), columns) {
            return Err(Error::new(
                ErrorKind::Config,
                "a ring of device slots is filled from one set's tables only",
            ));
        }
        self.fill(stream.core(), from, |copier, at, slot| {
            // SAFETY: `accepts` was asked; `fill` keeps the block away from the host until the work is done, and orders it behind
            // all readers of the slot.
            unsafe { columns.send(copier, ids, at, slot) }
        })
    }

    /// Gives `copier` the `work` that fills this slot: behind all readers of its last batch, and with both slots marked as
    /// busy until it has ended.
    fn fill<T>(
        self,
        copier: &Arc<StreamCore>,
        from: ReadyLease<Pinned, T>,
        work: impl FnOnce(&Arc<StreamCore>, *const u8, Address) -> Result<()>,
    ) -> Result<Loaded> {
        let Held { shared, index, .. } = &self.held;
        let slot = &shared.slots[*index];
        shared.device.same(&copier.device, "the copy stream")?;
        let owner = shared.copier.get_or_init(|| copier.clone());
        if !Arc::ptr_eq(owner, copier) {
            let why =
                format!("a ring of device slots is filled by one stream only: by {owner}, not by {copier}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        // Before the submission: after it an error costs both slots.
        copier.refuse("a batch")?;
        from.memory().accepts(copier)?;
        let mark = shared.marks.take(&shared.device)?;
        let joined = slot.joined.load(Ordering::Acquire) as usize;
        // Without asking whether they are done. Where it counts they are not: a slot is filled again as soon as its readers were
        // given to their streams, and the device is behind.
        #[cfg(not(planted = "consumed_wait"))]
        for consumed in &slot.consumed[..joined] {
            copier.wait(consumed)?;
        }
        let copied = from.submit(|pinned, _| {
            // `submit` keeps the block away from the host until `mark` is done. The slot is this lease's; every reader has
            // recorded its end, and the stream waits for those events before it writes.
            pinned.read_by(copier, &mark, |at| work(copier, at, slot.address))
        });
        if let Err(error) = copied {
            shared.lose(*index, &error);
            self.held.abandon();
            return Err(error);
        }
        // Only now: the ends of the last readers counted until the copy was ordered behind them.
        slot.joined.store(0, Ordering::Release);
        Ok(Loaded { held: self.held, copied: mark })
    }
}

impl Loaded {
    /// Which batch the slot holds.
    pub fn info(&self) -> &BatchInfo {
        // SAFETY: as long as a slot is loaded it has no `WriteLease`, so nobody writes (`ring.rs`, at `Slot`).
        unsafe { &*self.held.shared.slots[self.held.index].info.get() }
    }

    /// Counts the slot as being in the consumer's hands.
    pub fn deliver(&mut self) {
        if !std::mem::replace(&mut self.held.delivered, true) {
            self.held.shared.delivered.fetch_add(1, Ordering::AcqRel);
            self.held.shared.in_hand.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The slot's number in its ring.
    pub fn index(&self) -> usize {
        self.held.index
    }

    /// Whether the copy into the slot has ended; never blocks.
    ///
    /// # Errors
    /// A device failure.
    pub fn arrived(&self) -> Result<bool> {
        self.copied.query()
    }

    /// Makes `stream` wait for the copy, on the device, and opens the slot to it; the host does not block. Where the copy is seen
    /// to be done, the stream need not wait.
    ///
    /// # Errors
    /// `Config` for another device's stream; a device failure.
    pub fn wait_on(mut self, stream: &Stream) -> Result<Reader> {
        // A reader counts as delivered; `Reader::drop` takes it back, and so does `held` when there is to be none.
        self.deliver();
        let Self { held, copied, .. } = self;
        let reader = join(&held.shared, held.index, copied, stream)?;
        held.abandon();
        Ok(reader)
    }
}

impl Reader {
    /// Opens the slot to one more stream: the slot is overwritten only after all its readers.
    ///
    /// # Errors
    /// `Config` for another device's stream, for more than [`MAX_READERS`] readers, and while this reader's stream is being
    /// recorded by the caller: a replay would not open it again. A device failure.
    pub fn also_on(&self, stream: &Stream) -> Result<Reader> {
        self.stream.core().refuse("a batch for another stream")?;
        join(&self.shared, self.index, self.copied.clone(), stream)
    }

    /// Which batch the slot holds.
    pub fn info(&self) -> &BatchInfo {
        // SAFETY: as long as there is a reader the slot has no `WriteLease`, so nobody writes (`ring.rs`, at `Slot`).
        unsafe { &*self.slot().info.get() }
    }

    /// `len` elements at byte `offset` of the slot, readable on this reader's stream.
    ///
    /// # Errors
    /// `Config` when they lie outside the slot or are not aligned.
    pub fn view<T: Element>(&self, offset: usize, len: usize) -> Result<View<'_, T>> {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > self.shared.bytes) || !offset.is_multiple_of(size_of::<T>()) {
            let why =
                format!("{len} x {} at byte {offset} is not in a slot of {}", T::DTYPE, self.shared.bytes);
            return Err(Error::new(ErrorKind::Config, why));
        }
        let address = Address(self.slot().address.0 + offset as u64);
        Ok(View::new(address, len, self.stream.core(), Some(self.slot_id())))
    }

    /// The stream this reader reads on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The slot's number in its ring; its address is fixed.
    pub fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn slot_id(&self) -> SlotId {
        self.shared.slot_id(self.index)
    }

    /// A hold on the slot's memory beyond this reader.
    pub(crate) fn hold(&self) -> SlotRef {
        SlotRef::new(self.shared.clone(), self.index)
    }

    fn slot(&self) -> &Slot {
        &self.shared.slots[self.index]
    }
}

/// Adds `stream` to the readers of a slot that is loaded, by the copy that `copied` marks, or has a reader already.
fn join(shared: &Arc<Shared>, index: usize, copied: Arc<Event>, stream: &Stream) -> Result<Reader> {
    shared.device.same(&stream.core().device, "the stream")?;
    let slot = &shared.slots[index];
    let claim = slot.joined.fetch_update(Ordering::AcqRel, Ordering::Acquire, |joined| {
        (joined < MAX_READERS as u32).then_some(joined + 1)
    });
    let Ok(number) = claim else {
        let why =
            format!("a batch can be opened to {MAX_READERS} streams in all: share the readers there are");
        return Err(Error::new(ErrorKind::Config, why));
    };
    // A claimed number whose wait fails stays claimed: its event is an older mark, and waiting for it is harmless.
    #[cfg(not(planted = "copied_wait"))]
    stream.core().wait_unless_done(&copied)?;
    slot.live.fetch_add(1, Ordering::AcqRel);
    Ok(Reader { shared: shared.clone(), index, number: number as usize, stream: stream.clone(), copied })
}

impl Drop for Reader {
    fn drop(&mut self) {
        let slot = self.slot();
        if let Err(error) = self.stream.core().record(&slot.consumed[self.number]) {
            // Nobody can know when this reader's work ends: the slot must never be written again.
            self.shared.lose(self.index, &error);
            self.shared.device.stats.report(error);
        }
        if slot.live.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.shared.in_hand.fetch_sub(1, Ordering::AcqRel);
        // A lost slot counts as delivered for good: who holds all others waits for none that could come.
        if !slot.lost.load(Ordering::Acquire) {
            self.shared.delivered.fetch_sub(1, Ordering::AcqRel);
            self.shared.come_home(self.index);
        }
    }
}

/// One lease's hold on a slot.
struct Held {
    shared: Arc<Shared>,
    index: usize,
    delivered: bool,
    /// Whether dropping this sends the slot home.
    armed: bool,
}

impl Held {
    /// Drops the hold without sending the slot home.
    fn abandon(mut self) {
        self.armed = false;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.armed {
            if self.delivered {
                self.shared.in_hand.fetch_sub(1, Ordering::AcqRel);
                self.shared.delivered.fetch_sub(1, Ordering::AcqRel);
            }
            self.shared.come_home(self.index);
        }
    }
}

impl std::fmt::Debug for WriteLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteLease(slot {})", self.held.index)
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loaded(slot {})", self.held.index)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader(slot {} on {:?})", self.index, self.stream)
    }
}
