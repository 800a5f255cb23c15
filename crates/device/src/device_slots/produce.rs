//! Fills a device slot by work of a stream, such as kernels that read another batch or a filled host slot.

use std::cell::Cell;
use std::sync::Arc;

use feedline_core::{Element, Error, ErrorKind, Result};

use super::lease::{Loaded, OnDrop, WriteLease};
use crate::backend::Address;
use crate::slots::{HostMemory, ReadyLease};
use crate::stream::StreamCore;
use crate::view::ViewMut;
use crate::{Pinned, Stream, submit};

impl WriteLease {
    /// Fills this slot by the work that `work` submits to `stream`, such as kernels that read another batch.
    ///
    /// As for [`upload`](Self::upload), the stream first waits for every reader of the slot's last batch. A
    /// reader of this batch waits for all work that `work` has submitted. `work` gets the slot's views.
    ///
    /// ```
    /// use feedline_device::device_slots::SlotRing;
    /// use feedline_device::{Device, launch_host};
    /// let device = Device::new_host();
    /// let (stream, compute) = (device.stream()?, device.stream()?);
    /// let slots = SlotRing::new(&device, 2, 4)?;
    /// let loaded = slots.acquire()?.produce(&stream, |slot| {
    ///     let ones = slot.view_mut::<u8>(0, 4)?;
    ///     launch_host(&stream, "ones", [], [ones.into()], |memory| memory.output::<u8>(0).fill(1))
    /// })?;
    /// assert_eq!(loaded.wait_on(&compute)?.view::<u8>(0, 4)?.to_vec()?, [1; 4]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a stream of another device, or one that does not write the ring's slots. The error of
    /// `work`, after the stream has run the submitted work. A device failure. If the submitted work cannot be
    /// waited for, or if `work` panics, the slot is not used again.
    #[track_caller]
    pub fn produce(
        mut self,
        stream: &Stream,
        work: impl FnOnce(SlotMut<'_>) -> Result<()>,
    ) -> Result<Loaded> {
        let writer = stream.core();
        let _site = writer.device.call_site();
        self.accepts(writer)?;
        let copied = self.ring.copy_events.take(&self.ring.device)?;
        // From here on, a panic must not release a slot that the device may write.
        self.on_drop = OnDrop::Lose;
        let is_open = Cell::new(false);
        let slot = SlotMut { lease: &self, writer, is_open: &is_open };
        let done = slot.open().and_then(|()| work(slot)).and_then(|()| writer.record(&copied));
        let Err(error) = done else { return Ok(self.loaded(copied)) };
        match writer.synchronize() {
            Ok(()) => self.on_drop = OnDrop::Release,
            Err(_) => self.lose(&error),
        }
        Err(error)
    }

    /// As [`produce`](Self::produce), but `work` may also read the host slot `from` and its info. It may read
    /// them on the host, or on `stream` by [`PinnedSlot::copy`]. The host slot is released when `work`
    /// returns, and filled again once the device has read it.
    ///
    /// The stream waits for the readers of the slot's last batch at the first view of the slot. So work that
    /// needs no view runs before this wait.
    ///
    /// # Errors
    /// As [`produce`](Self::produce); `Config` for a stream that does not read the host slot.
    #[track_caller]
    pub fn produce_from<T>(
        mut self,
        stream: &Stream,
        from: ReadyLease<Pinned, T>,
        work: impl FnOnce(PinnedSlot<'_>, &T, SlotMut<'_>) -> Result<()>,
    ) -> Result<Loaded> {
        let writer = stream.core();
        let _site = writer.device.call_site();
        self.accepts(writer)?;
        from.memory().accepts(writer)?;
        let copied = self.ring.copy_events.take(&self.ring.device)?;
        // From here on, a panic must not release a slot that the device may write.
        self.on_drop = OnDrop::Lose;
        let is_open = Cell::new(false);
        let slot = SlotMut { lease: &self, writer, is_open: &is_open };
        let done = from.submit(|pinned, info| {
            let mut done = Ok(());
            pinned.read_by(writer, &copied, |_| {
                done = work(PinnedSlot { pinned, stream }, info, slot).and_then(|()| slot.open());
                match &done {
                    // Both slots can be released once the submitted work has ended.
                    Err(error) => writer.synchronize().map_err(|_| error.clone()),
                    Ok(()) => Ok(()),
                }
            })?;
            Ok(done)
        });
        match done {
            Ok(Ok(())) => Ok(self.loaded(copied)),
            Ok(Err(error)) => {
                self.on_drop = OnDrop::Release;
                Err(error)
            }
            Err(error) => {
                self.lose(&error);
                Err(error)
            }
        }
    }
}

/// A device slot that work of one stream writes; from [`WriteLease::produce`].
#[derive(Clone, Copy)]
pub struct SlotMut<'a> {
    lease: &'a WriteLease,
    writer: &'a Arc<StreamCore>,
    /// Whether the stream already waits for all uses of the slot's last batch.
    is_open: &'a Cell<bool>,
}

impl<'a> SlotMut<'a> {
    /// `len` elements at byte `offset` of the slot, writable on the stream. Uses of the same bytes by several
    /// views run in the order of their submission.
    ///
    /// # Errors
    /// `Config` if they lie outside the slot or are not aligned; a device failure.
    pub fn view_mut<T: Element>(&self, offset: usize, len: usize) -> Result<ViewMut<'a, T>> {
        let (ring, index) = (&self.lease.ring, self.lease.index);
        ring.check_range::<T>(offset, len)?;
        self.open()?;
        let address = Address(ring.slots[index].address().0 + offset as u64);
        Ok(ViewMut::new(address, len, self.writer, Some(ring.slot_id(index))))
    }

    /// Makes the stream wait for all uses of the slot's last batch.
    fn open(&self) -> Result<()> {
        if !self.is_open.get() {
            self.lease.order(self.writer)?;
            self.is_open.set(true);
        }
        Ok(())
    }
}

/// A filled host slot that work of one stream reads; from [`WriteLease::produce_from`].
#[derive(Clone, Copy)]
pub struct PinnedSlot<'a> {
    pinned: &'a Pinned,
    stream: &'a Stream,
}

impl<'a> PinnedSlot<'a> {
    /// All bytes of the slot. Work of the stream may read them in place, until the slot's last copy has
    /// ended.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: the block is valid for `len` bytes (`HostMemory`). The slot is in flight, and is handed out
        // again after the call that lends `self`, so nothing writes it.
        unsafe { std::slice::from_raw_parts(self.pinned.as_ptr(), self.pinned.len()) }
    }

    /// Queues a copy of the bytes from `offset` on into `to`, on the stream.
    ///
    /// # Errors
    /// `Config` for bytes outside the slot, or a view of another stream; a device failure.
    #[track_caller]
    pub fn copy<T: Element>(&self, offset: usize, to: ViewMut<'_, T>) -> Result<()> {
        let (bytes, address) = (to.len() * size_of::<T>(), to.address());
        if offset.checked_add(bytes).is_none_or(|end| end > self.pinned.len()) {
            let why = format!("{bytes} bytes at byte {offset} are outside a slot of {}", self.pinned.len());
            return Err(Error::new(ErrorKind::Config, why));
        }
        submit(self.stream, "copy", &[], &[to.into()], |to| {
            if bytes == 0 {
                return Ok(());
            }
            let (backend, at) =
                (&self.stream.core().device.backend, self.pinned.as_ptr().wrapping_add(offset));
            // SAFETY: both memories have these bytes: checked above, and by the view. The host keeps away
            // from the block until the slot's `copied` has completed, which is recorded after this copy.
            unsafe { backend.copy_to_device(to.stream, at, address, bytes) }
        })
    }
}

impl std::fmt::Debug for SlotMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotMut(slot {})", self.lease.index)
    }
}

impl std::fmt::Debug for PinnedSlot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedSlot({} bytes)", self.pinned.len())
    }
}
