//! Device memory that goes back to the thread that filled it, once nobody reads it.

use std::sync::mpsc::{Receiver, Sender, channel};

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_device::{SharedBuffer, Stream, View, ViewMut};

/// Device memory of a thread, used again and again.
pub(super) struct Lender<T: Element> {
    /// Memory that was given back.
    spare: Receiver<SharedBuffer<T>>,
    home: Sender<SharedBuffer<T>>,
}

impl<T: Element> Lender<T> {
    pub(super) fn new() -> Self {
        let (home, spare) = channel();
        Self { spare, home }
    }

    pub(super) fn lend(&self, stream: &Stream, elements: usize) -> Result<Lent<T>> {
        let memory = match self.spare.try_iter().find(|memory| memory.len() >= elements) {
            Some(memory) => memory,
            None => stream.shared_buffer(elements.max(1))?,
        };
        Ok(Lent { memory: Some(memory), elements, home: self.home.clone() })
    }
}

/// Memory of a thread, which goes back to it.
pub(super) struct Lent<T: Element> {
    /// `None` only in `drop`.
    memory: Option<SharedBuffer<T>>,
    pub(super) elements: usize,
    home: Sender<SharedBuffer<T>>,
}

impl<T: Element> Lent<T> {
    pub(super) fn memory(&self) -> Result<&SharedBuffer<T>> {
        self.memory.as_ref().ok_or_else(dropped)
    }

    /// For writing on the thread's stream, after all reads so far.
    pub(super) fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        self.memory.as_mut().ok_or_else(dropped)?.view_mut()?.slice(0..self.elements)
    }

    /// For reading on `stream`, after the write.
    pub(super) fn on<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, T>> {
        self.memory()?.on(stream)?.slice(0..self.elements)
    }
}

fn dropped() -> Error {
    Error::new(ErrorKind::Config, "the batch was dropped")
}

impl<T: Element> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Without its thread, the memory is freed here.
            let _ = self.home.send(memory);
        }
    }
}
