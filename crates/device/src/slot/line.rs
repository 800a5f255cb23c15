//! The free slots, in line: who waits for one sleeps, and takes no heap block to do so.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of free slots, first in, first out, until closed.
pub(super) struct Line {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    free: VecDeque<usize>,
    closed: bool,
}

/// The line was closed.
pub(super) struct Closed;

impl Line {
    /// An empty line with room for `slots`.
    pub(super) fn new(slots: usize) -> Self {
        let state = State { free: VecDeque::with_capacity(slots), closed: false };
        Self { state: Mutex::new(state), moved: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a slot at the end, and wakes one who waits.
    pub(super) fn push(&self, index: usize) {
        self.state().free.push_back(index);
        self.moved.notify_one();
    }

    /// Takes the first slot, waiting for one for at most `limit`; `None` when it passed, no limit when there is none.
    pub(super) fn pop(&self, limit: Option<Duration>) -> Result<Option<usize>, Closed> {
        let start = Instant::now();
        let mut state = self.state();
        loop {
            if state.closed {
                return Err(Closed);
            }
            if let Some(index) = state.free.pop_front() {
                return Ok(Some(index));
            }
            let Some(limit) = limit else {
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends every wait, now and later.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.moved.notify_all();
    }

    /// Slots in line.
    pub(super) fn len(&self) -> usize {
        self.state().free.len()
    }
}
