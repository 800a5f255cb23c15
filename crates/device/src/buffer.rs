//! Device memory that belongs to one stream: weights, activations, whatever is not a batch.

use std::marker::PhantomData;
use std::ops::Range;

use feedline_backend::{Access, Address, Span};
use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_slots::HostMemory;

use crate::Stream;
use crate::pinned::Pinned;
use crate::view::{View, ViewMut};

/// `len` elements of device memory, for use on one stream.
///
/// Dropping it waits for the stream: keep buffers, do not make them in a loop.
pub struct Buffer<T: Element> {
    stream: Stream,
    address: Address,
    len: usize,
    /// Work on another stream may still use the memory: it is never freed.
    leaked: bool,
    element: PhantomData<T>,
}

impl Stream {
    /// Zeroed device memory for `len` elements, for use on this stream.
    ///
    /// # Errors
    /// A device failure, or memory that the device does not have.
    pub fn buffer<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::zeroed(self, len)
    }
}

impl<T: Element> Buffer<T> {
    pub(crate) fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0).ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("a buffer of {len} x {} cannot be", T::DTYPE))
        })?;
        let core = stream.core();
        core.refuse("a new buffer")?;
        let address = core.device.backend.alloc_device(bytes)?;
        core.device.stats.device_bytes.add(bytes as u64);
        let buffer = Self { stream: stream.clone(), address, len, leaked: false, element: PhantomData };
        // SAFETY: the memory was just allocated with this size, and lives until the stream is drained in `drop`.
        unsafe { core.device.backend.fill(core.id(), address, 0, bytes) }?;
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream the buffer is used on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// All elements, to read.
    pub fn view(&self) -> View<'_, T> {
        View::new(self.address, self.len, self.stream.core(), None)
    }

    /// All elements, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.address, self.len, self.stream.core())
    }

    /// The elements of `range`, to read.
    ///
    /// # Errors
    /// `Config` for a range outside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<View<'_, T>> {
        self.view().slice(range)
    }

    /// The elements of `range`, to write.
    ///
    /// # Errors
    /// `Config` for a range outside the buffer.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<ViewMut<'_, T>> {
        self.view_mut().slice(range)
    }

    /// Drops everything but the memory, for the reason `why`.
    pub(crate) fn leak(mut self, why: Error) {
        self.leaked = true;
        self.stream.core().device.stats.report(why);
    }

    /// Copies `values` to the device; blocks until it is done. For set-up, not for loops.
    ///
    /// # Errors
    /// `Config` when the lengths differ; a device failure.
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len {
            let why = format!("{} values for a buffer of {}", values.len(), self.len);
            return Err(Error::new(ErrorKind::Config, why));
        }
        let core = self.stream.core();
        core.refuse("a copy")?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let staging = Pinned::new(&core.device, bytes.len())?;
        staging.host_access(0, bytes.len(), Access::Write)?;
        // SAFETY: the block is as long as `bytes`, fresh, and no copy reads it yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), staging.as_ptr(), bytes.len()) };
        // SAFETY: both ranges are this long, and live until the stream is drained, next; nothing writes the block again.
        let copied = unsafe {
            core.device.backend.copy_to_device(core.id(), staging.as_ptr(), self.address, bytes.len())
        };
        drain(copied, &self.stream, staging).map(drop)
    }

    /// Copies all elements to the host; blocks until it is done. For tests and checkpoints, not for loops.
    ///
    /// # Errors
    /// A device failure.
    pub fn read(&self) -> Result<Vec<T>> {
        let core = self.stream.core();
        core.refuse("a copy")?;
        let bytes = self.len * size_of::<T>();
        let staging = Pinned::new(&core.device, bytes)?;
        // SAFETY: both ranges are `bytes` long and live until the stream is drained, next.
        let copied =
            unsafe { core.device.backend.copy_to_host(core.id(), self.address, staging.as_ptr(), bytes) };
        let staging = drain(copied, &self.stream, staging)?;
        staging.host_access(0, bytes, Access::Read)?;
        // SAFETY: the block is initialised, 4096-byte aligned, as long as asked, and the copy into it has ended.
        Ok(unsafe { std::slice::from_raw_parts(staging.as_ptr().cast::<T>(), self.len) }.to_vec())
    }
}

/// Waits for a copy between `staging` and the device; leaks the block when nobody knows whether the copy has ended.
fn drain(copied: Result<()>, stream: &Stream, staging: Pinned) -> Result<Pinned> {
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
        // Work on the stream may still use the memory: without its end the memory is leaked, not freed.
        let freed = self.stream.synchronize().and_then(|()| {
            // SAFETY: from `alloc_device` with this size, freed once; the stream it is used on has just been drained.
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
