//! Asynchronous results. They are copied from the device to pinned memory on a separate stream, and read once
//! they have arrived.

use std::mem::ManuallyDrop;

use feedline_core::{Element, Error, ErrorKind, Result};

use crate::backend::{Access, Address, Priority};
use crate::device_slots::MAX_SLOTS;
use crate::slots::HostMemory;
use crate::view::ViewMut;
use crate::{Buffer, Event, Pinned, Stream};

/// A ring of result cells of `width` elements each. A step writes a cell on its stream, and the host
/// reads it later.
///
/// Only [`wait`](Self::wait) blocks the host.
///
/// ```
/// use feedline_device::{Device, Readback, launch_host};
/// let device = Device::new_host();
/// let stream = device.stream()?;
/// let mut losses = Readback::<f32>::new(&stream, 1, 4)?;
/// let cell = losses.begin()?;
/// launch_host(&stream, "loss", [], [cell.into()], |memory| memory.output::<f32>(0)[0] = 0.5)?;
/// losses.send()?;
/// assert_eq!(losses.wait()?, Some(&[0.5][..]));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Readback<T: Element> {
    // Freed only after the results stream is drained. Leaked if draining fails.
    cells: ManuallyDrop<Buffer<T>>,
    host: ManuallyDrop<Pinned>,
    results: Stream,
    written: Event,
    arrived: Vec<Event>,
    width: usize,
    /// The device cell that was begun but is not sent yet.
    begun: Option<usize>,
    /// For each device cell, the number of the last result sent from it.
    last: Vec<Option<usize>>,
    sent: usize,
    read: usize,
}

impl<T: Element> Readback<T> {
    /// Creates a ring of `depth` cells of `width` elements, written on `stream`.
    ///
    /// # Errors
    /// `Config` for a width or depth of zero, more than
    /// [`MAX_SLOTS`](crate::device_slots::MAX_SLOTS) cells, or
    /// cells that are larger than the address space; a device failure.
    #[track_caller]
    pub fn new(stream: &Stream, width: usize, depth: usize) -> Result<Self> {
        let _site = stream.core().device.call_site();
        let elements = width.checked_mul(depth).filter(|_| (1..=MAX_SLOTS).contains(&depth));
        // A Rust slice has at most `isize::MAX` bytes.
        let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<T>()));
        let bytes = bytes.filter(|&bytes| bytes > 0 && isize::try_from(bytes).is_ok());
        let Some((elements, bytes)) = elements.zip(bytes) else {
            let why = format!(
                "cannot create a readback of {depth} cells of {width} x {}: it needs 1 to {MAX_SLOTS} cells \
                 of at least one element, and memory for them",
                T::DTYPE
            );
            return Err(Error::new(ErrorKind::Config, why));
        };
        let device = &stream.core().device;
        let arrived = (0..depth).map(|_| Event::new(device, false)).collect::<Result<_>>()?;
        let written = Event::new(device, false)?;
        let results = Stream::create(device, "results", Priority::Normal)?;
        let cells = Buffer::new(stream, elements)?.named("readback");
        let host = Pinned::on(device, bytes)?.named("readback");
        // Both are wrapped only here, so that an error above drops them.
        let (cells, host) = (ManuallyDrop::new(cells), ManuallyDrop::new(host));
        let last = vec![None; depth];
        Ok(Self { cells, host, results, written, arrived, width, begun: None, last, sent: 0, read: 0 })
    }

    fn depth(&self) -> usize {
        self.arrived.len()
    }

    /// Whether every cell is in flight. The next [`begin`](Self::begin) would then fail.
    pub fn is_full(&self) -> bool {
        self.sent - self.read == self.depth()
    }

    /// The number of results sent but not read yet.
    pub fn pending(&self) -> usize {
        self.sent - self.read
    }

    /// The next cell, to be written on the ring's stream and then sent.
    ///
    /// # Errors
    /// `Config` if every cell is in flight: read one first.
    #[track_caller]
    pub fn begin(&mut self) -> Result<ViewMut<'_, T>> {
        self.begin_at(self.sent % self.depth())
    }

    /// Like [`begin`](Self::begin), but the caller chooses the device cell, below `depth`. A replayed step
    /// writes to the address with which it was recorded, so each device slot has its own cell.
    ///
    /// The stream, not the host, waits for the last copy out of that cell.
    ///
    /// # Errors
    /// `Config` if there is no such cell, or if every result is in flight: then read one first. A device
    /// failure.
    #[track_caller]
    pub fn begin_at(&mut self, cell: usize) -> Result<ViewMut<'_, T>> {
        if cell >= self.depth() {
            let why = format!("there is no result cell {cell}: the readback has {}", self.depth());
            return Err(Error::new(ErrorKind::Config, why));
        }
        if self.is_full() {
            let why =
                format!("all {} result cells are in flight: read one before the next step", self.depth());
            return Err(Error::new(ErrorKind::Config, why));
        }
        // A result that the host has read no longer uses its cell.
        if let Some(sent) = self.last[cell].filter(|&sent| sent >= self.read) {
            self.cells.stream().wait(&self.arrived[sent % self.depth()])?;
        }
        self.begun = Some(cell);
        self.cells.slice_mut(cell * self.width..(cell + 1) * self.width)
    }

    /// Starts the copy of the cell that [`begin`](Self::begin) returned last, ordered after all work
    /// submitted to the stream so far. Each cell is sent once.
    ///
    /// # Errors
    /// `Config` if no cell was begun since the last call; a device failure.
    #[track_caller]
    pub fn send(&mut self) -> Result<()> {
        let _site = self.results.core().device.call_site();
        let Some(from) = self.begun else {
            let why =
                "there is no result to send: call begin, submit the work that writes it, then call send";
            let lost = self.results.core().device.backend.lost();
            return Err(lost.unwrap_or_else(|| Error::new(ErrorKind::Config, why)));
        };
        let to = self.sent % self.depth();
        self.cells.stream().record(&self.written)?;
        self.begun = None;
        self.results.wait(&self.written)?;
        let bytes = self.width * size_of::<T>();
        let source = Address(self.cells.view().address().0 + (from * bytes) as u64);
        // SAFETY: the cell lies in the pinned block, which has `depth` cells.
        let target = unsafe { self.host.as_ptr().add(to * bytes) };
        let core = self.results.core();
        // SAFETY: both ranges live until `drop` below has drained the stream. The device cell is not
        // written before the copy has ended, since `begin_at` makes the stream wait for `arrived`. The
        // host does not read the target before that, since `read` follows `arrived`. The target is not
        // overwritten before it was read, since `begin_at` rejects that and only begun cells are sent.
        unsafe { core.device.backend.copy_to_host(core.id(), source, target, bytes) }?;
        self.results.record(&self.arrived[to])?;
        self.last[from] = Some(self.sent);
        self.sent += 1;
        Ok(())
    }

    /// The oldest result, if it has arrived; never blocks.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn try_next(&mut self) -> Result<Option<&[T]>> {
        if self.pending() == 0 || !self.arrived[self.read % self.depth()].query()? {
            return Ok(None);
        }
        self.take().map(Some)
    }

    /// Blocks until the oldest result has arrived; `None` if no result is in flight.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn wait(&mut self) -> Result<Option<&[T]>> {
        if self.pending() == 0 {
            return Ok(None);
        }
        self.arrived[self.read % self.depth()].synchronize()?;
        self.take().map(Some)
    }

    #[track_caller]
    fn take(&mut self) -> Result<&[T]> {
        let _site = self.results.core().device.call_site();
        let cell = self.read % self.depth();
        self.read += 1;
        let bytes = self.width * size_of::<T>();
        self.host.host_access(cell * bytes, bytes, Access::Read)?;
        // SAFETY: the cell lies in the block.
        let first = unsafe { self.host.as_ptr().add(cell * bytes) }.cast::<T>();
        // SAFETY: the block is initialised and 4096-byte aligned; the copy into this cell has ended, and
        // the next copy into it cannot start while this borrow of the ring lives.
        Ok(unsafe { std::slice::from_raw_parts(first, self.width) })
    }
}

impl<T: Element> Drop for Readback<T> {
    fn drop(&mut self) {
        let drained = self.results.synchronize();
        // SAFETY: taken once, here, and not used afterwards.
        let cells = unsafe { ManuallyDrop::take(&mut self.cells) };
        // SAFETY: as above.
        let host = unsafe { ManuallyDrop::take(&mut self.host) };
        if let Err(error) = drained {
            // A copy between the two blocks may still be running.
            cells.leak(error.clone());
            host.leak(error);
        }
    }
}

impl<T: Element> std::fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Readback({} cells of {} {})", self.depth(), self.width, T::DTYPE)
    }
}
