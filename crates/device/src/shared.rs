//! Device memory that one stream writes and any stream reads, for fork and join.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_core::{Element, Result};

use crate::capture::SlotId;
use crate::view::{View, ViewMut};
use crate::{Buffer, Event, Stream};

/// `len` elements of device memory that one stream writes and any stream of the device reads.
///
/// Use it to fork and join work. Fork: a stream that reads with [`on`](Self::on) after a write waits for this
/// write. Join: the owner waits for all readers before it writes again with [`view_mut`](Self::view_mut).
/// Both waits are on the device, through two events that are created once. The host does not block. A stream
/// waits once per write, however often it reads. Reads on the owner's own stream need no event.
///
/// So a step with branches looks like a step without branches. Each branch has a stream, owns the buffers
/// that it writes, and reads the buffers of other branches.
///
/// ```
/// use feedline_device::{Buffer, Device, SharedBuffer, launch_host};
/// let device = Device::new_host();
/// let (main, left, right) = (device.stream()?, device.stream()?, device.stream()?);
/// let mut x = SharedBuffer::<f32>::new(&main, 1)?;
/// let (mut a, mut b) = (SharedBuffer::<f32>::new(&left, 1)?, SharedBuffer::<f32>::new(&right, 1)?);
/// let mut sum = Buffer::<f32>::new(&main, 1)?;
/// for step in 0..3 {
///     // Waits for the reads of the last step, on the device.
///     launch_host(&main, "input", [], [x.view_mut()?.into()], move |m| {
///         m.output::<f32>(0)[0] = step as f32;
///     })?;
///     // Fork: both branches wait for the input, and run beside each other.
///     launch_host(&left, "left", [x.on(&left)?.into()], [a.view_mut()?.into()], |m| {
///         m.output::<f32>(0)[0] = m.input::<f32>(0)[0] + 1.0;
///     })?;
///     launch_host(&right, "right", [x.on(&right)?.into()], [b.view_mut()?.into()], |m| {
///         m.output::<f32>(0)[0] = m.input::<f32>(0)[0] * 10.0;
///     })?;
///     // Join: the main stream waits for both.
///     launch_host(&main, "sum", [a.on(&main)?.into(), b.on(&main)?.into()], [sum.view_mut().into()], |m| {
///         m.output::<f32>(0)[0] = m.input::<f32>(0)[0] + m.input::<f32>(1)[0];
///     })?;
/// }
/// assert_eq!(sum.read()?, [3.0 + 20.0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// A recorded step cannot use a shared buffer, because its launches would not wait. Dropping the buffer
/// blocks until the owner and the readers have drained.
pub struct SharedBuffer<T: Element> {
    // Freed after the readers. Leaked if waiting for them fails.
    buffer: ManuallyDrop<Buffer<T>>,
    /// Recorded on the owner's stream by `publish`, or at the first foreign read after a write.
    written: Event,
    /// When the owner waits for the readers, this event is recorded on one reader after another.
    read: Event,
    readers: Mutex<Readers>,
}

/// The streams that read the latest write.
#[derive(Default)]
struct Readers {
    /// Whether `written` is recorded after the last write.
    is_published: bool,
    streams: Vec<Stream>,
}

impl<T: Element> SharedBuffer<T> {
    /// Allocates zeroed device memory for `len` elements that `stream` writes, and any stream of the device
    /// reads.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    #[track_caller]
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let (written, read) = (stream.device().event()?, stream.device().event()?);
        let buffer = ManuallyDrop::new(Buffer::new(stream, len)?);
        Ok(Self { buffer, written, read, readers: Mutex::default() })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the buffer has no elements; never true.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The stream that writes the buffer.
    pub fn stream(&self) -> &Stream {
        self.buffer.stream()
    }

    /// Returns all elements, for reading on `stream`. Work submitted to `stream` from now on runs after the
    /// last write. The host does not block.
    ///
    /// At the first call for another stream after a write, "the last write" means all work submitted to the
    /// owner's stream so far. To let a branch start early, call this method or [`publish`](Self::publish)
    /// before submitting other work to the owner.
    ///
    /// # Errors
    /// `Config` for a stream of another device, or one that is being recorded; a device failure.
    pub fn on<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, T>> {
        let owner = self.stream();
        let mut readers = self.readers();
        if stream != owner && !readers.streams.contains(stream) {
            self.publish_to(&mut readers)?;
            stream.wait(&self.written)?;
            readers.streams.push(stream.clone());
        }
        drop(readers);
        Ok(View::new(self.buffer.view().address(), self.len(), stream.core(), Some(SlotId::SHARED)))
    }

    /// Ends the last write. Streams that read later wait for the work submitted to the owner's stream so far,
    /// but not for later work. Without this call, the first read from another stream ends the write.
    ///
    /// ```
    /// use feedline_device::{Device, SharedBuffer, launch_host};
    /// let device = Device::new_host();
    /// let (owner, other) = (device.stream()?, device.stream()?);
    /// let mut x = SharedBuffer::<f32>::new(&owner, 1)?;
    /// launch_host(&owner, "x", [], [x.view_mut()?.into()], |m| m.output::<f32>(0)[0] = 1.0)?;
    /// x.publish()?;
    /// // Whatever `owner` gets to do now, `other` does not wait for it.
    /// let x = x.on(&other)?;
    /// # let _ = x;
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` while the owner's stream is being recorded; a device failure.
    pub fn publish(&self) -> Result<()> {
        self.publish_to(&mut self.readers())
    }

    fn publish_to(&self, readers: &mut Readers) -> Result<()> {
        if !readers.is_published {
            self.stream().record(&self.written)?;
            readers.is_published = true;
        }
        Ok(())
    }

    /// Returns all elements, for writing on the owner's stream after all reads so far. The host does not
    /// block.
    ///
    /// # Errors
    /// `Config` while the owner's stream or a reader is being recorded; a device failure.
    pub fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        self.join()?;
        let (address, len) = (self.buffer.view().address(), self.len());
        Ok(ViewMut::new(address, len, self.buffer.stream().core(), Some(SlotId::SHARED)))
    }

    /// Copies `values` to the device and blocks until the copy is done. For set-up, not for loops.
    ///
    /// # Errors
    /// `Config` if the lengths differ, and as [`view_mut`](Self::view_mut).
    #[track_caller]
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.join()?;
        self.buffer.write(values)
    }

    /// Copies all elements to the host and blocks until the copy is done. For tests and checkpoints, not
    /// for loops.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<T>> {
        self.buffer.read()
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the owner's stream wait for all readers. The mutable borrow proves that no view is alive. So
    /// every use was submitted before.
    fn join(&mut self) -> Result<()> {
        let readers = self.readers.get_mut().unwrap_or_else(PoisonError::into_inner);
        while let Some(reader) = readers.streams.last() {
            reader.record(&self.read)?;
            self.buffer.stream().wait(&self.read)?;
            readers.streams.pop();
        }
        readers.is_published = false;
        Ok(())
    }
}

impl<T: Element> Drop for SharedBuffer<T> {
    fn drop(&mut self) {
        let joined = self.join();
        // SAFETY: taken once, here, and not used afterwards.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        match joined {
            // The drop of the buffer drains its stream before it frees the memory. This stream waits for the
            // readers.
            Ok(()) => drop(buffer),
            Err(error) => buffer.leak(error),
        }
    }
}

impl<T: Element> std::fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared{:?}", &*self.buffer)
    }
}
