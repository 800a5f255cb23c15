//! Memory on the host that is copied to the device.

use std::ops::Range;

use feedline_core::{Element, Result};
use feedline_device::{BackendKind, Buffer, Stream, ViewMut};

use crate::nvjpeg::Staging;

/// Memory on the host, and as much on the device.
pub(super) struct Staged<T: Element> {
    pub(super) staging: Host,
    pub(super) memory: Buffer<T>,
}

/// Pinned memory for copies to a GPU, plain memory elsewhere.
pub(super) enum Host {
    Pinned(Staging),
    Plain(Vec<u8>),
}

impl Host {
    pub(super) fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        Ok(match stream.kind() {
            BackendKind::Cuda => Self::Pinned(Staging::new(stream, bytes)?),
            _ => Self::Plain(vec![0; bytes]),
        })
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(staging) => staging.bytes_mut(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Copies `values` to the device, through this memory, which grows where it is too small.
    pub(super) fn write<T: Element>(
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

    /// Copies ranges of bytes to the same places of the device's memory.
    pub(super) fn copy<T: Element>(
        &mut self,
        stream: &Stream,
        ranges: &[Range<usize>],
        to: ViewMut<'_, T>,
    ) -> Result<()> {
        match self {
            Self::Pinned(staging) => staging.copy(ranges, to),
            Self::Plain(bytes) => {
                let parts: Vec<_> =
                    ranges.iter().map(|range| (range.clone(), bytes[range.clone()].to_vec())).collect();
                stream.run("pictures", [], [to.into()], move |memory| {
                    let to: &mut [u8] = bytemuck::cast_slice_mut(memory.output::<T>(0));
                    parts.into_iter().for_each(|(range, bytes)| to[range].copy_from_slice(&bytes));
                })
            }
        }
    }
}

impl<T: Element> Staged<T> {
    pub(super) fn new(stream: &Stream, elements: usize) -> Result<Self> {
        let staging = Host::new(stream, elements * size_of::<T>())?;
        Ok(Self { staging, memory: stream.buffer(elements)? })
    }

    /// Grows both to `elements`, with room for larger batches.
    pub(super) fn reserve(&mut self, stream: &Stream, elements: usize) -> Result<()> {
        if self.memory.len() < elements {
            *self = Self::new(stream, elements + elements / 4)?;
        }
        Ok(())
    }

    /// Copies `values` to the device.
    pub(super) fn write(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        self.reserve(stream, values.len())?;
        self.staging.write(stream, values, self.memory.slice_mut(0..values.len())?)
    }

    /// Copies ranges of bytes to the same places of the device's memory.
    pub(super) fn copy(&mut self, stream: &Stream, ranges: &[Range<usize>]) -> Result<()> {
        self.staging.copy(stream, ranges, self.memory.view_mut())
    }
}
