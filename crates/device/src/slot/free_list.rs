//! The free list of slots. A thread that waits for a slot sleeps, and allocates nothing to do so.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_slots::{Backoff, Version};

/// The indices of free slots, first in, first out, until closed.
pub(super) struct FreeList {
    state: Mutex<State>,
    moved: Condvar,
    moves: Version,
    waits: Backoff,
}

struct State {
    free: VecDeque<usize>,
    closed: bool,
    /// Threads asleep until a slot is released. `notify_one` costs a system call even if no thread is
    /// asleep.
    sleepers: usize,
}

/// The free list was closed.
pub(super) struct Closed;

impl FreeList {
    /// An empty list with room for `slots` indices.
    pub(super) fn new(slots: usize) -> Self {
        let state = State { free: VecDeque::with_capacity(slots), closed: false, sleepers: 0 };
        let (moves, waits) = (Version::default(), Backoff::new());
        Self { state: Mutex::new(state), moved: Condvar::new(), moves, waits }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a slot, and wakes one waiting thread.
    pub(super) fn push(&self, index: usize) {
        let mut state = self.state();
        state.free.push_back(index);
        self.moves.bump();
        let asleep = state.sleepers > 0;
        drop(state);
        if asleep {
            self.moved.notify_one();
        }
    }

    /// Takes the first slot, blocking for at most `limit`, or without limit if `limit` is `None`. Returns
    /// `None` on timeout.
    pub(super) fn pop(&self, limit: Option<Duration>) -> Result<Option<usize>, Closed> {
        let mut since = None;
        let mut wait = self.waits.wait();
        let mut state = self.state();
        loop {
            if state.closed {
                return Err(Closed);
            }
            if let Some(index) = state.free.pop_front() {
                return Ok(Some(index));
            }
            let before = self.moves.get();
            if limit.is_none() && wait.should_spin() {
                drop(state);
                wait.spin_until_changed(&self.moves, before);
                state = self.state();
                continue;
            }
            state.sleepers += 1;
            state = match limit {
                None => self.moved.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    // The clock is read only by threads that have to wait.
                    let left = limit.saturating_sub(since.get_or_insert_with(Instant::now).elapsed());
                    if left.is_zero() {
                        state.sleepers -= 1;
                        return Ok(None);
                    }
                    self.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.sleepers -= 1;
        }
    }

    /// Ends all current and future waits.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.moves.bump();
        drop(state);
        self.moved.notify_all();
    }

    /// The number of free slots.
    pub(super) fn len(&self) -> usize {
        self.state().free.len()
    }
}
