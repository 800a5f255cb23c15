//! Results on their way back: device to page-locked memory, on a stream of their own, read when they are there.

use std::mem::ManuallyDrop;

use feedline_backend::{Access, Address, Priority};
use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_slots::HostMemory;

use crate::slot::MAX_SLOTS;
use crate::view::ViewMut;
use crate::{Buffer, Event, Pinned, Stream};

/// A ring of result cells of `width` elements each: a step writes one on its stream, and the host reads it later.
///
/// Nothing here blocks the host but [`wait`](Self::wait).
///
/// ```
/// use feedline_device::{Device, Output, Readback};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut losses = Readback::<f32>::new(&stream, 1, 4)?;
/// let cell = losses.begin()?;
/// stream.run("loss", [], [cell.into()], |memory| memory.output::<f32>(0)[0] = 0.5)?;
/// losses.send()?;
/// assert_eq!(losses.wait()?, Some(&[0.5][..]));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Readback<T: Element> {
    // Freed only after the results stream is drained, leaked when that fails.
    cells: ManuallyDrop<Buffer<T>>,
    host: ManuallyDrop<Pinned>,
    results: Stream,
    written: Event,
    arrived: Vec<Event>,
    width: usize,
    /// The device cell that was begun and is not sent yet.
    begun: Option<usize>,
    /// Of each device cell, the number of the last result that was sent from it.
    last: Vec<Option<usize>>,
    sent: usize,
    read: usize,
}

impl<T: Element> Readback<T> {
    /// A ring of `depth` cells of `width` elements, written on `stream`.
    ///
    /// # Errors
    /// `Config` for a width or depth of zero, for more than [`MAX_SLOTS`](crate::slot::MAX_SLOTS) cells, and
    /// for cells beyond the address space; a device failure.
    pub fn new(stream: &Stream, width: usize, depth: usize) -> Result<Self> {
        let elements = width.checked_mul(depth).filter(|_| (1..=MAX_SLOTS).contains(&depth));
        // A slice must not have more than `isize::MAX` bytes.
        let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<T>()));
        let bytes = bytes.filter(|&bytes| bytes > 0 && isize::try_from(bytes).is_ok());
        let Some((elements, bytes)) = elements.zip(bytes) else {
            let why = format!(
                "a readback cannot have {depth} cells of {width} x {}: it has 1 to {MAX_SLOTS} cells of at least one \
                 element, which lie in the address space",
                T::DTYPE
            );
            return Err(Error::new(ErrorKind::Config, why));
        };
        let device = &stream.core().device;
        let arrived = (0..depth).map(|_| Event::new(device, false)).collect::<Result<_>>()?;
        let written = Event::new(device, false)?;
        let results = Stream::create(device, "results", Priority::Normal)?;
        let cells = stream.buffer(elements)?;
        let host = Pinned::new(device, bytes)?;
        // Only now: an error above drops what there is.
        let (cells, host) = (ManuallyDrop::new(cells), ManuallyDrop::new(host));
        let last = vec![None; depth];
        Ok(Self { cells, host, results, written, arrived, width, begun: None, last, sent: 0, read: 0 })
    }

    fn depth(&self) -> usize {
        self.arrived.len()
    }

    /// Whether every cell is on its way: the next [`begin`](Self::begin) would fail.
    pub fn is_full(&self) -> bool {
        self.sent - self.read == self.depth()
    }

    /// Results sent and not read yet.
    pub fn pending(&self) -> usize {
        self.sent - self.read
    }

    /// The next cell, to be written on the ring's stream, and then sent.
    ///
    /// # Errors
    /// `Config` when every cell is on its way: read one first.
    pub fn begin(&mut self) -> Result<ViewMut<'_, T>> {
        self.begin_at(self.sent % self.depth())
    }

    /// As [`begin`](Self::begin), with a cell of the caller's choice on the device, below `depth`: a step that is replayed
    /// writes to the address it was recorded with, so each device slot has a cell of its own.
    ///
    /// The stream, not the host, waits for the last copy out of that cell.
    ///
    /// # Errors
    /// `Config` for no such cell, or when every result is on its way: read one first; a device failure.
    pub fn begin_at(&mut self, cell: usize) -> Result<ViewMut<'_, T>> {
        if cell >= self.depth() {
            let why = format!("there is no result cell {cell}: there are {}", self.depth());
            return Err(Error::new(ErrorKind::Config, why));
        }
        if self.is_full() {
            let why =
                format!("all {} result cells are on their way: read one before the next step", self.depth());
            return Err(Error::new(ErrorKind::Config, why));
        }
        // What the host has read has left its cell.
        if let Some(sent) = self.last[cell].filter(|&sent| sent >= self.read) {
            self.cells.stream().wait(&self.arrived[sent % self.depth()])?;
        }
        self.begun = Some(cell);
        self.cells.slice_mut(cell * self.width..(cell + 1) * self.width)
    }

    /// Starts the copy of the cell that [`begin`](Self::begin) returned last, after the work given to the
    /// stream so far. Call it once per `begin`.
    ///
    /// # Errors
    /// `Config` when no cell was begun since the last call; a device failure.
    pub fn send(&mut self) -> Result<()> {
        let Some(from) = self.begun else {
            let why =
                "there is no result to send: call begin, give the stream the work that writes it, then send";
            let lost = self.results.core().device.backend.lost();
            return Err(lost.unwrap_or_else(|| Error::new(ErrorKind::Config, why)));
        };
        let to = self.sent % self.depth();
        self.cells.stream().record(&self.written)?;
        self.begun = None;
        self.results.wait(&self.written)?;
        let bytes = self.width * size_of::<T>();
        let source = Address(self.cells.view().address().0 + (from * bytes) as u64);
        // SAFETY: the cell lies in the page-locked block, which has `depth` of them.
        let target = unsafe { self.host.as_ptr().add(to * bytes) };
        let core = self.results.core();
        // SAFETY: both ranges live until the drop below has drained the stream. The cell is not written on the device before
        // the copy's end, for `begin_at` makes the stream wait for `arrived`; nor is the target read before, for `read`
        // follows `arrived`, nor copied to again before it was read: `begin_at` refuses that, and
        // nothing is sent that was not begun.
        unsafe { core.device.backend.copy_to_host(core.id(), source, target, bytes) }?;
        self.results.record(&self.arrived[to])?;
        self.last[from] = Some(self.sent);
        self.sent += 1;
        Ok(())
    }

    /// The oldest result, when it is there; never blocks.
    ///
    /// # Errors
    /// A device failure.
    pub fn try_next(&mut self) -> Result<Option<&[T]>> {
        if self.pending() == 0 || !self.arrived[self.read % self.depth()].query()? {
            return Ok(None);
        }
        self.take().map(Some)
    }

    /// The oldest result, waiting for it; `None` when none is on its way.
    ///
    /// # Errors
    /// A device failure.
    pub fn wait(&mut self) -> Result<Option<&[T]>> {
        if self.pending() == 0 {
            return Ok(None);
        }
        self.arrived[self.read % self.depth()].synchronize()?;
        self.take().map(Some)
    }

    fn take(&mut self) -> Result<&[T]> {
        let cell = self.read % self.depth();
        self.read += 1;
        let bytes = self.width * size_of::<T>();
        self.host.host_access(cell * bytes, bytes, Access::Read)?;
        // SAFETY: the cell lies in the block.
        let first = unsafe { self.host.as_ptr().add(cell * bytes) }.cast::<T>();
        // SAFETY: the block is initialised and 4096-byte aligned; the copy into this cell has ended, and the next one into it
        // cannot start while this borrow of the ring lives.
        Ok(unsafe { std::slice::from_raw_parts(first, self.width) })
    }
}

impl<T: Element> Drop for Readback<T> {
    fn drop(&mut self) {
        let drained = self.results.synchronize();
        // SAFETY: taken once, here, and not used after.
        let cells = unsafe { ManuallyDrop::take(&mut self.cells) };
        // SAFETY: as above.
        let host = unsafe { ManuallyDrop::take(&mut self.host) };
        if let Err(error) = drained {
            // A copy between the two may still run.
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
