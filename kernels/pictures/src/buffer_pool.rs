//! Device buffers that return to the worker that filled them once their readers are done.

use std::sync::mpsc::{Receiver, Sender, channel};

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_device::{SharedBuffer, Stream, View, ViewMut};

/// The device buffers of a worker.
pub(crate) struct BufferPool<T: Element> {
    free: Receiver<SharedBuffer<T>>,
    release: Sender<SharedBuffer<T>>,
}

impl<T: Element> BufferPool<T> {
    pub(crate) fn new() -> Self {
        let (release, free) = channel();
        Self { free, release }
    }

    /// A free buffer of at least `elements`, or a new one.
    pub(crate) fn get(&self, stream: &Stream, elements: usize) -> Result<PooledBuffer<T>> {
        let memory = match self.free.try_iter().find(|memory| memory.len() >= elements) {
            Some(memory) => memory,
            None => SharedBuffer::new(stream, elements.max(1))?,
        };
        Ok(PooledBuffer { memory: Some(memory), elements, release: self.release.clone() })
    }
}

/// A buffer that returns to its pool when it is dropped.
pub(crate) struct PooledBuffer<T: Element> {
    /// `None` only in `drop`.
    memory: Option<SharedBuffer<T>>,
    pub(crate) elements: usize,
    release: Sender<SharedBuffer<T>>,
}

impl<T: Element> PooledBuffer<T> {
    pub(crate) fn memory(&self) -> Result<&SharedBuffer<T>> {
        self.memory.as_ref().ok_or_else(dropped)
    }

    /// A view to write on the worker's stream, after all reads so far.
    pub(crate) fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        self.memory.as_mut().ok_or_else(dropped)?.view_mut()?.slice(0..self.elements)
    }

    /// A view to read on `stream`, after the write.
    pub(crate) fn on<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, T>> {
        self.memory()?.on(stream)?.slice(0..self.elements)
    }
}

fn dropped() -> Error {
    Error::new(ErrorKind::Config, "the batch was dropped")
}

impl<T: Element> Drop for PooledBuffer<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // If the worker has ended, the memory is freed here.
            let _ = self.release.send(memory);
        }
    }
}
