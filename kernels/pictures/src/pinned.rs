//! Pinned host memory for copies to one stream.

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_device::{Backend, Stream, ViewMut, submit};

/// A block of pinned host memory for copies to one stream.
pub(crate) struct Pinned {
    stream: Stream,
    first: *mut u8,
    bytes: usize,
}

// SAFETY: this value alone owns the memory.
unsafe impl Send for Pinned {}

impl Pinned {
    /// # Errors
    /// A device failure; `Unavailable` on a device that is not CUDA.
    pub(crate) fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        let Some(cuda) = stream.cuda_backend() else {
            return Err(Error::new(ErrorKind::Unavailable, "pinned memory is for CUDA devices"));
        };
        let bytes = bytes.max(1);
        Ok(Self { first: cuda.alloc_host(bytes)?, bytes, stream: stream.clone() })
    }

    /// The memory. No copy is in flight, because [`copy`](Self::copy) waits.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block is initialised, `bytes` long and owned; `copy` returns only after the device has
        // read it.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.bytes) }
    }

    /// Copies `ranges` of bytes to the same offsets of `to`, and waits for the copies.
    ///
    /// # Errors
    /// `Config` for a range outside this memory or `to`; a device failure.
    pub(crate) fn copy<T: Element>(
        &mut self,
        ranges: &[std::ops::Range<usize>],
        to: ViewMut<'_, T>,
    ) -> Result<()> {
        let max = self.bytes.min(to.len() * size_of::<T>());
        if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > max) {
            let why = format!("a copy of bytes {range:?} is outside its memory of {max} bytes");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let address = to.address();
        let stream = self.stream.clone();
        let queued = submit(&stream, "pictures", &[], &[to.into()], |submission| {
            let Some(cuda) = stream.cuda_backend() else { return Ok(()) };
            for range in ranges.iter().filter(|range| !range.is_empty()) {
                let (from, mut target) = (self.first.wrapping_add(range.start), address);
                target.0 += range.start as u64;
                // SAFETY: both ranges lie in their memory (checked above), which lives until the stream is
                // drained below; the stream orders the copy with other uses of the target.
                unsafe { cuda.copy_to_device(submission.stream, from, target, range.len()) }?;
            }
            Ok(())
        });
        stream.synchronize()?;
        queued
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Some(cuda) = self.stream.cuda_backend() else { return };
        let freed = self.stream.synchronize().and_then(|()| {
            // SAFETY: from `alloc_host` with this size, freed once, after its copies.
            unsafe { cuda.free_host(self.first, self.bytes) }
        });
        if let Err(error) = freed {
            self.stream.device().report(error);
        }
    }
}
