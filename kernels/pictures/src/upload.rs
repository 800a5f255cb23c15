//! Device buffers that are filled from the host.

use std::ops::Range;

use feedline_core::{Element, Result};
use feedline_device::{BackendKind, Buffer, Stream, ViewMut, launch_host};

use crate::pinned::Pinned;

/// A device buffer, and host memory of the same size to fill it from.
pub(crate) struct Upload<T: Element> {
    pub(crate) host: HostMemory,
    pub(crate) device: Buffer<T>,
}

/// Pinned memory for copies to a GPU, plain memory for other devices.
pub(crate) enum HostMemory {
    Pinned(Pinned),
    Plain(Vec<u8>),
}

impl HostMemory {
    pub(crate) fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        Ok(match stream.device().kind() {
            BackendKind::Cuda => Self::Pinned(Pinned::new(stream, bytes)?),
            _ => Self::Plain(vec![0; bytes]),
        })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(pinned) => pinned.bytes_mut(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Copies `values` to the device through this memory, which grows if it is too small. Blocks until the
    /// values are copied.
    pub(crate) fn write<T: Element>(
        &mut self,
        stream: &Stream,
        values: &[T],
        to: ViewMut<'_, T>,
    ) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if self.bytes_mut().len() < bytes.len() {
            *self = Self::new(stream, bytes.len())?;
        }
        self.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.copy(stream, std::slice::from_ref(&(0..bytes.len())), to)
    }

    /// Copies ranges of bytes to the same offsets of the device's memory.
    pub(crate) fn copy<T: Element>(
        &mut self,
        stream: &Stream,
        ranges: &[Range<usize>],
        to: ViewMut<'_, T>,
    ) -> Result<()> {
        match self {
            Self::Pinned(pinned) => pinned.copy(ranges, to),
            Self::Plain(bytes) => {
                let parts: Vec<_> =
                    ranges.iter().map(|range| (range.clone(), bytes[range.clone()].to_vec())).collect();
                launch_host(stream, "pictures", [], [to.into()], move |memory| {
                    let to: &mut [u8] = bytemuck::cast_slice_mut(memory.output::<T>(0));
                    parts.into_iter().for_each(|(range, bytes)| to[range].copy_from_slice(&bytes));
                })
            }
        }
    }
}

impl<T: Element> Upload<T> {
    pub(crate) fn new(stream: &Stream, elements: usize) -> Result<Self> {
        let host = HostMemory::new(stream, elements * size_of::<T>())?;
        Ok(Self { host, device: Buffer::new(stream, elements)? })
    }

    /// The bytes of pinned memory and of device memory. On other devices no memory is pinned.
    pub(crate) fn bytes(&self) -> [u64; 2] {
        let device = (self.device.len() * size_of::<T>()) as u64;
        [if matches!(self.host, HostMemory::Pinned(_)) { device } else { 0 }, device]
    }

    /// Grows both memories to `elements` plus a quarter, so that larger batches fit.
    pub(crate) fn reserve(&mut self, stream: &Stream, elements: usize) -> Result<()> {
        if self.device.len() < elements {
            *self = Self::new(stream, elements + elements / 4)?;
        }
        Ok(())
    }

    /// Copies `values` to the device.
    pub(crate) fn write(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        self.reserve(stream, values.len())?;
        self.host.write(stream, values, self.device.slice_mut(0..values.len())?)
    }

    /// Copies ranges of bytes to the same offsets of the device's memory.
    pub(crate) fn copy(&mut self, stream: &Stream, ranges: &[Range<usize>]) -> Result<()> {
        self.host.copy(stream, ranges, self.device.view_mut())
    }
}
