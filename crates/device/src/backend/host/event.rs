//! An event of the host device: a counter of recordings, and the recordings that are still pending.

use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// One event. Each `record` gets a number; the stream completes it later.
///
/// Streams may complete recordings in any order, so the pending ones are kept individually.
#[derive(Default)]
pub(super) struct Event {
    state: Mutex<State>,
    completed: Condvar,
}

struct State {
    issued: u64,
    pending: Vec<u64>,
    completed_at: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        // Room for the recordings that are usually pending, so that the first one allocates nothing.
        Self { issued: 0, pending: Vec::with_capacity(4), completed_at: None }
    }
}

impl Event {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Starts a new recording, which replaces the event's current one.
    pub(super) fn issue(&self) -> u64 {
        let mut state = self.state();
        state.issued += 1;
        let number = state.issued;
        state.pending.push(number);
        number
    }

    /// The current recording; `None` if the event was never recorded.
    pub(super) fn latest(&self) -> Option<u64> {
        let issued = self.state().issued;
        (issued > 0).then_some(issued)
    }

    /// Called when the stream has reached the recording.
    pub(super) fn complete(&self, number: u64) {
        let mut state = self.state();
        state.pending.retain(|&pending| pending != number);
        if number == state.issued {
            state.completed_at = Some(Instant::now());
        }
        self.completed.notify_all();
    }

    pub(super) fn is_complete(&self, number: u64) -> bool {
        !self.state().pending.contains(&number)
    }

    /// Blocks until the recording has completed.
    pub(super) fn wait_for(&self, number: u64) {
        let mut state = self.state();
        while state.pending.contains(&number) {
            state = self.completed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// When the current recording completed; `None` while it is pending.
    pub(super) fn completed_at(&self) -> Option<Instant> {
        let state = self.state();
        if state.pending.contains(&state.issued) { None } else { state.completed_at }
    }
}
