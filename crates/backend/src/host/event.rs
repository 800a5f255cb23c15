//! An event of the host device: a counter of marks, and which of them have not been reached.

use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// One event. Every `record` issues a ticket; the stream reaches it later.
///
/// Tickets of different streams may be reached in any order, so the open ones are kept one by one.
#[derive(Default)]
pub(super) struct Mark {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    issued: u64,
    open: Vec<u64>,
    reached_at: Option<Instant>,
}

impl Mark {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A new mark: the event now stands for this ticket.
    pub(super) fn issue(&self) -> u64 {
        let mut state = self.state();
        state.issued += 1;
        let ticket = state.issued;
        state.open.push(ticket);
        ticket
    }

    /// The mark the event stands for; `None` when it was never recorded.
    pub(super) fn latest(&self) -> Option<u64> {
        let issued = self.state().issued;
        (issued > 0).then_some(issued)
    }

    /// The stream has come to the mark.
    pub(super) fn reach(&self, ticket: u64) {
        let mut state = self.state();
        state.open.retain(|&open| open != ticket);
        if ticket == state.issued {
            state.reached_at = Some(Instant::now());
        }
        self.moved.notify_all();
    }

    pub(super) fn reached(&self, ticket: u64) -> bool {
        !self.state().open.contains(&ticket)
    }

    /// Blocks until the mark is reached.
    pub(super) fn wait_for(&self, ticket: u64) {
        let mut state = self.state();
        while state.open.contains(&ticket) {
            state = self.moved.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// When the latest mark was reached; `None` before.
    pub(super) fn reached_at(&self) -> Option<Instant> {
        let state = self.state();
        if state.open.contains(&state.issued) { None } else { state.reached_at }
    }
}
