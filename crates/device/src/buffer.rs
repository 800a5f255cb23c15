//! Device memory for use on one stream: weights, activations, anything but batches.

use std::marker::PhantomData;
use std::ops::Range;

use feedline_core::{Element, Error, ErrorKind, Result};

use crate::Stream;
use crate::backend::{Access, Address, Span};
use crate::pinned::Pinned;
use crate::slots::HostMemory;
use crate::stream::StreamCore;
use crate::view::{View, ViewMut};

/// `len` elements of device memory, for use on one stream.
///
/// Dropping a buffer blocks until the stream has drained. So reuse buffers instead of creating them in a
/// loop.
pub struct Buffer<T: Element> {
    stream: Stream,
    address: Address,
    len: usize,
    /// Whether the memory is never freed, because work on another stream may still use it.
    leaked: bool,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Allocates zeroed device memory for `len` elements, for use on `stream`.
    ///
    /// # Errors
    /// A device failure, for example if the device is out of memory.
    #[track_caller]
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let _site = stream.core().device.call_site();
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0).ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("cannot allocate a buffer of {len} x {}", T::DTYPE))
        })?;
        let core = stream.core();
        core.refuse("a new buffer")?;
        let address = core.device.backend.alloc_device(bytes)?;
        core.device.stats.device_bytes.add(bytes as u64);
        let buffer = Self { stream: stream.clone(), address, len, leaked: false, element: PhantomData };
        // SAFETY: the memory was just allocated with this size, and lives until `drop` has drained the
        // stream.
        unsafe { core.device.backend.fill(core.id(), address, 0, bytes) }?;
        Ok(buffer)
    }

    /// Names the buffer in messages of the simulator.
    ///
    /// ```
    /// # use feedline_device::{Buffer, Device};
    /// # let stream = Device::new_host().stream()?;
    /// let weights = Buffer::<f32>::new(&stream, 100)?.named("weights");
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn named(self, name: &str) -> Self {
        self.stream.core().device.backend.name_memory(self.address.0, name);
        self
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream on which the buffer is used.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// All elements, for reading.
    pub fn view(&self) -> View<'_, T> {
        View::new(self.address, self.len, self.stream.core(), None)
    }

    /// All elements, for writing.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.address, self.len, self.stream.core(), None)
    }

    /// The elements of `range`, for reading.
    ///
    /// # Errors
    /// `Config` for a range outside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<View<'_, T>> {
        self.view().slice(range)
    }

    /// The elements of `range`, for writing.
    ///
    /// # Errors
    /// `Config` for a range outside the buffer.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<ViewMut<'_, T>> {
        self.view_mut().slice(range)
    }

    /// Drops the buffer but leaks its memory, and reports `why`.
    pub(crate) fn leak(mut self, why: Error) {
        self.leaked = true;
        self.stream.core().device.stats.report(why);
    }

    /// Copies `values` to the device and blocks until the copy is done. For set-up, not for loops.
    ///
    /// # Errors
    /// `Config` if the lengths differ; a device failure.
    #[track_caller]
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        let _site = self.stream.core().device.call_site();
        if values.len() != self.len {
            let why = format!("cannot write {} values to a buffer of {} elements", values.len(), self.len);
            return Err(Error::new(ErrorKind::Config, why));
        }
        let core = self.stream.core();
        core.refuse("a copy")?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let staging = Pinned::on(&core.device, bytes.len())?;
        staging.host_access(0, bytes.len(), Access::Write)?;
        // SAFETY: the block is new and as long as `bytes`, and no copy reads it yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), staging.as_ptr(), bytes.len()) };
        // SAFETY: both ranges have this length and live until `drain` below has drained the stream;
        // nothing writes the block again.
        let copied = unsafe {
            core.device.backend.copy_to_device(core.id(), staging.as_ptr(), self.address, bytes.len())
        };
        drain(copied, core, staging).map(drop)
    }

    /// Copies all elements to the host and blocks until the copy is done. For tests and checkpoints, not
    /// for loops.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<T>> {
        self.view().to_vec()
    }
}

impl<T: Element> View<'_, T> {
    /// Copies the elements to the host. Blocks until all work submitted to the stream so far, and the copy
    /// after it, have ended. Use it in tests and for checkpoints, not in loops, because it allocates pinned
    /// memory.
    ///
    /// # Errors
    /// `Config` while the stream is being recorded; a device failure.
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let stream = self.stream();
        let _site = stream.device.call_site();
        stream.refuse("a copy")?;
        if self.len() == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.len() * size_of::<T>();
        let staging = Pinned::on(&stream.device, bytes)?;
        // SAFETY: both ranges are `bytes` long and live until `drain` below has drained the stream; the
        // stream orders the copy after the work that wrote the elements.
        let copied = unsafe {
            stream.device.backend.copy_to_host(stream.id(), self.address(), staging.as_ptr(), bytes)
        };
        let staging = drain(copied, stream, staging)?;
        staging.host_access(0, bytes, Access::Read)?;
        // SAFETY: the block is initialised, 4096-byte aligned and `bytes` long, and the copy into it has
        // ended.
        Ok(unsafe { std::slice::from_raw_parts(staging.as_ptr().cast::<T>(), self.len()) }.to_vec())
    }
}

/// Waits for a copy between `staging` and the device. Leaks the block if it cannot tell whether the copy has
/// ended.
fn drain(copied: Result<()>, stream: &StreamCore, staging: Pinned) -> Result<Pinned> {
    match stream.synchronize() {
        Ok(()) => copied.map(|()| staging),
        Err(error) => {
            staging.leak(error.clone());
            Err(copied.err().unwrap_or(error))
        }
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        let core = self.stream.core();
        let bytes = self.len * size_of::<T>();
        if self.leaked {
            core.device.stats.device_bytes.subtract(bytes as u64);
            return;
        }
        if core.recorder.keep(Span { address: self.address, bytes }) {
            return;
        }
        // Work on the stream may still use the memory. If the stream cannot be drained, the memory is leaked.
        let freed = self.stream.synchronize().and_then(|()| {
            // SAFETY: from `alloc_device` with this size, freed once; its stream has just been drained.
            unsafe { core.device.backend.free_device(self.address, bytes) }
        });
        if let Err(error) = freed {
            core.device.stats.report(error);
        }
        core.device.stats.device_bytes.subtract(bytes as u64);
    }
}

impl<T: Element> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer<{}>({})", T::DTYPE, self.len)
    }
}
