//! One worker thread: it tells what it is reading, and keeps its scratch memory.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use feedline_core::{Scratch, Timeline, catch_panic};

use super::activity::Activity;

/// One worker thread of a pool.
pub(crate) struct Worker<'a> {
    activity: &'a Activity,
    index: usize,
    /// Kept across batches; empty while a batch uses it.
    scratch: Cell<Scratch>,
    /// When it last finished some work; 0 before.
    idle_since: Cell<u64>,
    /// When its last batch was handed out, and since when it was idle then.
    last: Cell<(u64, u64)>,
}

impl<'a> Worker<'a> {
    /// Worker number `index` of the pool of `activity`.
    pub(crate) fn new(activity: &'a Activity, index: usize) -> Self {
        Self { activity, index, scratch: Cell::default(), idle_since: Cell::default(), last: Cell::default() }
    }

    /// This worker begins the batch of `timeline` at `at`. It counts as idle before the first of the batches
    /// that were handed out together, for all of them.
    pub(crate) fn begin_batch(&self, at: u64, timeline: &mut Timeline) {
        if self.last.get().0 != timeline.handed_out {
            self.last.set((timeline.handed_out, self.idle_since.get()));
        }
        timeline.begin(at, self.index, self.last.get().1);
    }

    /// The worker's index in the pool.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// This worker has finished some work.
    pub(crate) fn set_idle_since(&self, at: u64) {
        self.idle_since.set(at);
    }

    /// The worker begins to read rows of `step`. Returns the cell in which it stores the id of each sample.
    pub(crate) fn begin(&self, step: u64, sample: u64) -> Arc<AtomicU64> {
        self.activity.begin(self.index, step, sample)
    }

    /// The worker has finished reading.
    pub(crate) fn end(&self) {
        self.activity.end(self.index);
    }

    /// Takes the scratch memory for a batch.
    pub(crate) fn take_scratch(&self) -> Scratch {
        self.scratch.take()
    }

    /// Keeps the scratch memory for the next batch.
    pub(crate) fn keep_scratch(&self, scratch: Scratch) {
        self.scratch.set(scratch);
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // Types of users, whose drop may panic: the thread ends all the same.
        let scratch = self.scratch.take();
        let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(scratch));
    }
}
