//! Which thread holds a batch, as far as is known: a value can move to another thread unnoticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// Whether a batch of a loader has been opened or dropped on a thread other than the one that took it. Clones
/// share the flag, which is never reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrossThread(Arc<AtomicBool>);

impl CrossThread {
    /// Records that a batch has moved to another thread.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a batch has moved to another thread.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Part of every batch and every reader of one: records use and drop on a thread other than the one that took
/// the batch.
#[derive(Clone)]
pub(crate) struct Holder {
    taken_on: ThreadId,
    cross_thread: CrossThread,
}

impl Holder {
    /// The holder of a batch taken on thread `taken_on`.
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
