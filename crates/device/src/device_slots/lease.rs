//! The leases of a device slot: write, loaded and reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use feedline_core::timeline::now;
use feedline_core::{BatchInfo, Element, Error, ErrorKind, Result};

use crate::backend::Address;
use crate::backend::host::Host;
use crate::capture::SlotId;
use crate::device_slots::ring::{MAX_READERS, Slot, SlotRef, SlotRing};
use crate::slots::{HostMemory, ReadyLease};
use crate::stream::StreamCore;
use crate::view::View;
use crate::zero_copy::StridedColumns;
use crate::{Event, Pinned, Stream};

/// The right to overwrite a device slot. Dropping it releases the slot.
pub struct WriteLease {
    pub(super) ring: Arc<SlotRing>,
    pub(super) index: usize,
    /// Recorded after the wait for the last readers and before the copy.
    copy_start: Option<Arc<Event>>,
    pub(super) on_drop: OnDrop,
}

/// What dropping a [`WriteLease`] does with its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDrop {
    Release,
    /// The slot is lost, because work that no event covers may write it.
    Lose,
    /// Nothing, because another lease has the slot or the slot is lost.
    Nothing,
}

/// A slot whose copy is queued, but not necessarily complete. Dropping it unread releases the slot.
pub struct Loaded {
    lease: WriteLease,
    /// The event of the copy.
    copied: Arc<Event>,
    /// Whether the slot counts as delivered to the consumer.
    delivered: bool,
}

/// The right to read a slot on one stream. Dropping it records the `consumed` event on that stream.
pub struct Reader {
    ring: Arc<SlotRing>,
    index: usize,
    /// The index of this reader's `consumed` event.
    number: usize,
    stream: Stream,
    /// The event of the copy. Readers that join later wait for it.
    copied: Arc<Event>,
}

impl WriteLease {
    pub(crate) fn new(ring: Arc<SlotRing>, index: usize) -> Self {
        Self { ring, index, copy_start: None, on_drop: OnDrop::Release }
    }

    /// Information on the batch that the slot will hold. Swap it with the info of a host slot, so that the
    /// memory of both infos is reused.
    pub fn info_mut(&mut self) -> &mut BatchInfo {
        // SAFETY: this is the only lease of the slot, borrowed mutably (`ring.rs`, at `Slot`).
        unsafe { &mut *self.ring.slots[self.index].info.get() }
    }

    /// Records `event` on the copy stream directly before the copy, after the wait for the readers of the
    /// slot's last batch. With an event before the wait and an event after the copy, it separates the time of
    /// the wait from the time of the copy.
    pub fn record_copy_start(&mut self, event: &Arc<Event>) {
        self.copy_start = Some(event.clone());
    }

    /// Copies the first `bytes` bytes of a ready host slot into this slot, by one copy on `stream`.
    ///
    /// The copy stream first waits for every reader of the slot's last batch. The host slot is released at
    /// once. The host waits for its copy before the slot is filled again.
    ///
    /// # Errors
    /// `Config` for a stream of another device, or if the sizes do not fit; a device failure. A slot whose
    /// copy failed is not used again.
    #[track_caller]
    pub fn upload<T>(self, stream: &Stream, from: ReadyLease<Pinned, T>, bytes: usize) -> Result<Loaded> {
        self.upload_parts(stream, from, std::slice::from_ref(&(0..bytes)))
    }

    /// Like [`upload`](Self::upload), but copies only `parts` of the host slot. Each part is copied to the
    /// same offset in this slot, by a separate copy.
    ///
    /// # Errors
    /// As for [`upload`](Self::upload).
    #[track_caller]
    pub fn upload_parts<T>(
        self,
        stream: &Stream,
        from: ReadyLease<Pinned, T>,
        parts: &[Range<usize>],
    ) -> Result<Loaded> {
        let (slot, host) = (self.ring.bytes, from.bytes().len());
        if let Some(part) = parts.iter().find(|part| part.start > part.end || part.end > slot.min(host)) {
            let why = format!("bytes {part:?} do not fit a device slot of {slot} bytes");
            return Err(Error::new(ErrorKind::Config, why));
        }
        if self.ring.takes_over(host) {
            return self.hand_over(stream.core(), from);
        }
        self.fill(stream.core(), from, |copier, pinned, slot| {
            let (at, slot) = (pinned.as_ptr(), slot.address());
            parts.iter().try_for_each(|part| {
                let (at, slot) =
                    (at.wrapping_add(part.start).cast_const(), Address(slot.0 + part.start as u64));
                // SAFETY: both slots have these bytes, checked above. `fill` keeps the host away from the
                // block until the copies are done, and orders them after all readers of the slot.
                unsafe { copier.device.backend.copy_to_device(copier.id(), at, slot, part.len()) }
            })
        })
    }

    /// Fills this slot with rows of `columns`, on `stream`, without a copy on the host. The slot's
    /// [`info`](Self::info_mut) names the rows. The ready host slot holds the same ids, as written by the
    /// columns' [`gather_order`](StridedColumns::gather_order).
    ///
    /// As for [`upload`](Self::upload), the copy stream first waits for every reader of the slot's last
    /// batch, and the host slot is released at once. The host slot is filled again once the gather has ended.
    /// The ring keeps the columns alive.
    ///
    /// # Errors
    /// `Config` for a stream of another device, for another stream or other columns than the ring's first, or
    /// if the sizes do not fit; a device failure. A slot whose gather failed is not used again.
    #[track_caller]
    pub fn gather<T>(
        self,
        stream: &Stream,
        from: ReadyLease<Pinned, T>,
        columns: &Arc<StridedColumns>,
    ) -> Result<Loaded> {
        let ring = self.ring.clone();
        // SAFETY: this is the only lease of the slot, and the info is not written before `fill` returns
        // (`ring.rs`, at `Slot`).
        let ids = unsafe { &(*ring.slots[self.index].info.get()).ids };
        columns.accepts(stream.core(), ids.len(), from.bytes().len(), ring.bytes)?;
        if !Arc::ptr_eq(ring.columns.get_or_init(|| columns.clone()), columns) {
            return Err(Error::new(
                ErrorKind::Config,
                "a ring of device slots is filled from the columns of one data set only",
            ));
        }
        self.fill(stream.core(), from, |copier, pinned, slot| {
            let (at, slot) = (pinned.as_ptr().cast_const(), slot.address());
            // SAFETY: `accepts` returned Ok. `fill` keeps the host away from the block until the work is
            // done, and orders the work after all readers of the slot.
            unsafe { columns.send(copier, ids, at, slot) }
        })
    }

    /// As [`upload`](Self::upload), but without a copy: the two slots exchange their memory.
    #[track_caller]
    fn hand_over<T>(self, copier: &Arc<StreamCore>, from: ReadyLease<Pinned, T>) -> Result<Loaded> {
        self.fill(copier, from, |_, pinned, slot| {
            // SAFETY: `takes_over` says that the device is the host and that both have one size. This lease
            // owns the slot's memory. `submit` has the host slot's only lease, so nobody holds its address,
            // and lends it again once `event` has completed, which `fill` records behind the wait for the
            // slot's readers.
            let filled = unsafe { pinned.exchange(slot.address()) };
            slot.set_address(filled);
            Ok(())
        })
    }

    /// Returns an error unless work on `writer` may write the slot.
    pub(super) fn accepts(&self, writer: &Arc<StreamCore>) -> Result<()> {
        self.ring.accepts(writer)?;
        writer.refuse("a batch")
    }

    /// Submits `work`, which fills this slot, to `copier`. The work runs after all readers of the slot's last
    /// batch. Both slots are busy until the work has ended.
    #[track_caller]
    fn fill<T>(
        mut self,
        copier: &Arc<StreamCore>,
        from: ReadyLease<Pinned, T>,
        work: impl FnOnce(&Arc<StreamCore>, &Pinned, &Slot) -> Result<()>,
    ) -> Result<Loaded> {
        let _site = copier.device.call_site();
        // This check comes before the submission, because an error after it loses both slots.
        self.accepts(copier)?;
        from.memory().accepts(copier)?;
        let event = self.ring.copy_events.take(&self.ring.device)?;
        self.order(copier)?;
        // From here on, a panic must not release a slot that the device may write.
        self.on_drop = OnDrop::Lose;
        let slot = &self.ring.slots[self.index];
        let copied = from.submit(|pinned, _| {
            // `submit` keeps the host away from the block until `event` completes. The slot belongs to
            // this lease; every reader has recorded its end, and the stream waits for those events before
            // it writes.
            pinned.read_by(copier, &event, |_| work(copier, pinned, slot))
        });
        if let Err(error) = copied {
            self.lose(&error);
            return Err(error);
        }
        Ok(self.loaded(event))
    }

    /// Makes later work of `writer` wait for all uses of the slot's last batch.
    pub(super) fn order(&self, writer: &Arc<StreamCore>) -> Result<()> {
        let ring = &self.ring;
        let slot = &ring.slots[self.index];
        let joined = slot.joined.load(Ordering::Acquire) as usize;
        // There is no query first. Under load the readers are not done, because a slot is refilled as soon as
        // their work is submitted, and the device runs later. Without load, a query costs more than the wait
        // that it saves: 10.6 us per batch instead of 9.0 (H100, 2026-11-25, bench `guards` at 1 KB).
        #[cfg(not(planted = "consumed_wait"))]
        for consumed in &slot.consumed[..joined] {
            writer.wait(consumed)?;
        }
        // Readers have waited for the last copy themselves. If there was no reader, another stream may still
        // write the slot.
        if ring.has_several_writers() {
            let mut unread = slot.unread();
            if let Some(last) = &*unread {
                writer.wait(last)?;
            }
            *unread = None;
        }
        self.copy_start.as_ref().map_or(Ok(()), |copy_start| writer.record(copy_start))
    }

    /// Ends the writing. All work that fills the slot is submitted, and `copied` is recorded after this work.
    pub(super) fn loaded(mut self, copied: Arc<Event>) -> Loaded {
        self.on_drop = OnDrop::Release;
        // The reset comes only now. Before, the end events of the last readers were still needed to order the
        // work after them.
        self.ring.slots[self.index].joined.store(0, Ordering::Release);
        Loaded { lease: self, copied, delivered: false }
    }

    /// Stops using the slot, because of `why`.
    pub(super) fn lose(&mut self, why: &Error) {
        self.ring.lose(self.index, why);
        self.on_drop = OnDrop::Nothing;
    }
}

impl Loaded {
    /// Information on the batch in the slot.
    pub fn info(&self) -> &BatchInfo {
        if self.delivered {
            self.lease.ring.touch(self.lease.index);
        }
        // SAFETY: this owns the slot's only lease, and the slot has no reader, so nothing writes the info
        // (`ring.rs`, at `Slot`).
        unsafe { &*self.lease.ring.slots[self.lease.index].info.get() }
    }

    /// As [`info`](Self::info), for writing.
    pub fn info_mut(&mut self) -> &mut BatchInfo {
        self.lease.info_mut()
    }

    /// Counts the slot as delivered to the consumer.
    pub fn deliver(&mut self) {
        if !std::mem::replace(&mut self.delivered, true) {
            self.lease.ring.taken(self.lease.index);
            self.lease.ring.delivered.fetch_add(1, Ordering::AcqRel);
            self.lease.ring.unreleased.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The slot's index in its ring.
    pub fn index(&self) -> usize {
        self.lease.index
    }

    /// Whether the copy into the slot has ended; never blocks.
    ///
    /// # Errors
    /// A device failure.
    pub fn is_copied(&self) -> Result<bool> {
        self.copied.query()
    }

    /// Makes `stream` wait for the copy, on the device, and returns a reader on `stream`. The host does not
    /// block. The wait is skipped if the copy is already complete.
    ///
    /// # Errors
    /// `Config` for a stream of another device; a device failure.
    #[track_caller]
    pub fn wait_on(mut self, stream: &Stream) -> Result<Reader> {
        let _site = stream.core().device.call_site();
        // The slot counts as delivered until `Reader::drop`. Without a reader, it counts until the drop of
        // `self`.
        self.deliver();
        self.lease.ring.touch(self.lease.index);
        let reader = join(&self.lease.ring, self.lease.index, self.copied.clone(), stream)?;
        (self.delivered, self.lease.on_drop) = (false, OnDrop::Nothing);
        Ok(reader)
    }
}

impl Reader {
    /// Notes that the calling thread reads the batch.
    fn touch(&self) {
        self.ring.touch(self.index);
    }

    /// Returns a reader on another stream. The slot is overwritten only after all its readers.
    ///
    /// # Errors
    /// `Config` for a stream of another device, and for more than [`MAX_READERS`] readers. `Config` while the
    /// caller is recording this reader's stream, because a replay would not open the slot again. A device
    /// failure.
    #[track_caller]
    pub fn also_on(&self, stream: &Stream) -> Result<Reader> {
        self.touch();
        let _site = stream.core().device.call_site();
        self.stream.core().refuse("a batch for another stream")?;
        join(&self.ring, self.index, self.copied.clone(), stream)
    }

    /// Information on the batch in the slot.
    pub fn info(&self) -> &BatchInfo {
        self.touch();
        // SAFETY: a slot with a reader has no `WriteLease`, so nothing writes the info (`ring.rs`, at
        // `Slot`).
        unsafe { &*self.slot().info.get() }
    }

    /// `len` elements at byte `offset` of the slot, readable on this reader's stream.
    ///
    /// # Errors
    /// `Config` if they lie outside the slot or are not aligned.
    pub fn view<T: Element>(&self, offset: usize, len: usize) -> Result<View<'_, T>> {
        self.ring.check_range::<T>(offset, len)?;
        let address = Address(self.slot().address().0 + offset as u64);
        let view = View::new(address, len, self.stream.core(), Some(self.slot_id()));
        Ok(view.of_step(self.info().step))
    }

    /// Blocks until the slot's copy has ended. Does not wait for other work of this reader's stream. The time
    /// counts as a wait for data ([`SlotRing::take_host_waits`](super::SlotRing::take_host_waits)).
    ///
    /// # Errors
    /// `Config` while the stream is being recorded; a device failure.
    pub fn wait_until_copied(&self) -> Result<()> {
        self.stream.core().refuse("a wait for the copy of a batch")?;
        if self.copied.query()? {
            return Ok(());
        }
        let start = now();
        let waited = self.copied.synchronize();
        self.ring.host_waits.fetch_add(now() - start, Ordering::Relaxed);
        waited
    }

    /// Returns the bytes of the slot, in place. This works on the host device only, because its memory is
    /// host memory. Blocks until the slot's copy has ended.
    ///
    /// # Errors
    /// `Config` on another device; a device failure.
    pub fn host_bytes(&self) -> Result<&[u8]> {
        self.touch();
        let device = &self.ring.device;
        // Only the host backend is accepted, because other backends do not define what an address is.
        if device.backend.downcast_ref::<Host>().is_none() {
            let why = format!(
                "cannot read a batch on {device} in place, only one on the host device: copy it \
                 with to_vec, or build the loader with build_host"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.wait_until_copied()?;
        let address = self.slot().address().0 as *const u8;
        // SAFETY: on the host an address is a pointer, here to `bytes` initialised bytes. The copy into them
        // has ended, the next one waits for this reader, and the views of a batch can only be read.
        Ok(unsafe { std::slice::from_raw_parts(address, self.ring.bytes) })
    }

    /// The stream on which this reader reads.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The slot's index in its ring. The slot's address is fixed.
    pub fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn slot_id(&self) -> SlotId {
        self.ring.slot_id(self.index)
    }

    /// A reference that keeps the slot's memory alive after this reader is dropped.
    pub(crate) fn hold(&self) -> SlotRef {
        SlotRef::new(self.ring.clone(), self.index)
    }

    fn slot(&self) -> &Slot {
        &self.ring.slots[self.index]
    }
}

/// Adds `stream` to the readers of a slot that is loaded or has a reader. `copied` is the event of the slot's
/// copy.
fn join(ring: &Arc<SlotRing>, index: usize, copied: Arc<Event>, stream: &Stream) -> Result<Reader> {
    ring.device.same(&stream.core().device, "the stream")?;
    let slot = &ring.slots[index];
    let claim = slot.joined.fetch_update(Ordering::AcqRel, Ordering::Acquire, |joined| {
        (joined < MAX_READERS as u32).then_some(joined + 1)
    });
    let Ok(number) = claim else {
        let why = format!("a batch can have at most {MAX_READERS} readers: share the existing ones");
        return Err(Error::new(ErrorKind::Config, why));
    };
    // If the wait fails, the claimed number stays claimed. Its event holds an older recording, so a wait for
    // this event does no harm.
    #[cfg(not(planted = "copied_wait"))]
    stream.core().wait_unless_done(&copied)?;
    slot.live.fetch_add(1, Ordering::AcqRel);
    Ok(Reader { ring: ring.clone(), index, number: number as usize, stream: stream.clone(), copied })
}

impl Drop for Reader {
    fn drop(&mut self) {
        let slot = self.slot();
        if let Err(error) = self.stream.core().record(&slot.consumed[self.number]) {
            // It is unknown when this reader's work ends, so the slot must never be written again.
            self.ring.lose(self.index, &error);
            self.ring.device.stats.report(error);
        }
        if slot.live.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.ring.unreleased.fetch_sub(1, Ordering::AcqRel);
        // A lost slot counts as delivered for ever. Otherwise a thread that holds all other slots would wait
        // for a slot that never returns.
        if !slot.lost.load(Ordering::Acquire) {
            self.ring.delivered.fetch_sub(1, Ordering::AcqRel);
            self.ring.release(self.index);
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let WriteLease { ring, index, on_drop, .. } = &self.lease;
        if *on_drop == OnDrop::Release && ring.has_several_writers() {
            *ring.slots[*index].unread() = Some(self.copied.clone());
        }
        // The drop of the lease after this releases the slot.
        if self.delivered {
            self.lease.ring.unreleased.fetch_sub(1, Ordering::AcqRel);
            self.lease.ring.delivered.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        match self.on_drop {
            OnDrop::Release => self.ring.release(self.index),
            OnDrop::Lose => {
                let why = "work on a device slot was submitted, and the call that did so panicked";
                self.ring.lose(self.index, &Error::new(ErrorKind::Panic, why));
            }
            OnDrop::Nothing => {}
        }
    }
}

impl std::fmt::Debug for WriteLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteLease(slot {})", self.index)
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loaded(slot {})", self.index())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader(slot {} on {:?})", self.index, self.stream)
    }
}
