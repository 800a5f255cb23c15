//! Which thread holds a batch, as far as can be known: values move to another thread unseen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// Whether the batches of a loader are known to cross threads: another thread than the one that took it has
/// opened or dropped one. Clones share the answer; it never goes back to no.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrossThread(Arc<AtomicBool>);

impl CrossThread {
    /// A batch has crossed to another thread.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether one has.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of every batch and every reader of one: notes when it is used or dropped on another thread than the
/// one that took the batch.
#[derive(Clone)]
pub(crate) struct Holder {
    taken_on: ThreadId,
    cross_thread: CrossThread,
}

impl Holder {
    /// Of a batch that `taken_on` takes.
    pub(crate) fn new(taken_on: ThreadId, cross_thread: CrossThread) -> Self {
        Self { taken_on, cross_thread }
    }

    /// The calling thread uses the batch.
    pub(crate) fn touch(&self) {
        if !self.cross_thread.is_noted() && std::thread::current().id() != self.taken_on {
            self.cross_thread.note();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.touch();
    }
}
