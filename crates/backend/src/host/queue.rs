//! The command queue of one stream. It is bounded, except for threads that run a stream themselves.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_slots::{Moves, Spin};

use super::event::Mark;
use crate::gather::Gather;
use crate::task::Task;

/// Commands a queue holds before `push` blocks; about what a GPU's queue holds.
const BOUND: usize = 1024;

thread_local! {
    /// Whether this thread runs the commands of a stream.
    static RUNS_A_STREAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs the commands of a stream. Such a thread must not block on any stream: that
/// stream may, directly or through others, be waiting for this one.
pub(super) fn runs_a_stream() -> bool {
    RUNS_A_STREAM.get()
}

/// Marks the calling thread as one that runs a stream.
pub(super) fn mark_thread() {
    RUNS_A_STREAM.set(true);
}

/// One piece of a stream's work; addresses are numbers, so that a command can go to another thread.
pub(super) enum Command {
    Copy { from: u64, to: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Gather(Box<Gather>),
    Run(Box<Task>),
    Record(Arc<Mark>, u64),
    Wait(Arc<Mark>, u64),
}

pub(super) struct Queue {
    state: Mutex<State>,
    added: Condvar,
    removed: Condvar,
    /// Counts additions. The stream's thread polls it briefly before it sleeps.
    additions: Moves,
    waits: Spin,
}

struct State {
    commands: VecDeque<Command>,
    closed: bool,
    /// Whether the command that was removed last still runs.
    running: bool,
    /// Whether the stream's thread sleeps, and how many other threads sleep until there is room.
    sleeps: bool,
    blocked: usize,
}

impl Queue {
    pub(super) fn new() -> Self {
        // Allocated in full here, so that giving work to a stream does not allocate.
        let commands = VecDeque::with_capacity(BOUND);
        let state = State { commands, closed: false, running: false, sleeps: false, blocked: 0 };
        Self {
            state: Mutex::new(state),
            added: Condvar::new(),
            removed: Condvar::new(),
            additions: Moves::default(),
            waits: Spin::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the command that `command` makes. `command` runs under the queue's lock: no other command is
    /// added between what it does and the addition.
    ///
    /// Blocks while the queue is full, unless the calling thread runs a stream.
    pub(super) fn push(&self, command: impl FnOnce() -> Command) -> Result<()> {
        let mut state = self.state();
        while state.commands.len() >= BOUND && !state.closed && !runs_a_stream() {
            state.blocked += 1;
            state = self.removed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
        if state.closed {
            return Err(Error::new(ErrorKind::Device, "the stream's thread has ended"));
        }
        state.commands.push_back(command());
        self.additions.count();
        let wake = state.sleeps;
        drop(state);
        if wake {
            self.added.notify_one();
        }
        Ok(())
    }

    /// Removes the first command, waiting for one; `None` when the queue is closed and empty. Only the
    /// stream's thread calls this, after it has run the previous command.
    pub(super) fn pop(&self) -> Option<Command> {
        let mut wait = self.waits.wait();
        let mut state = self.state();
        state.running = false;
        loop {
            if let Some(command) = state.commands.pop_front() {
                state.running = true;
                let wake = state.blocked > 0;
                drop(state);
                if wake {
                    self.removed.notify_one();
                }
                return Some(command);
            }
            if state.closed {
                return None;
            }
            let before = self.additions.now();
            if wait.looks() {
                drop(state);
                wait.looks_for(&self.additions, before);
                state = self.state();
                continue;
            }
            state.sleeps = true;
            state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeps = false;
        }
    }

    /// Refuses further commands; those in the queue still run.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.added.notify_one();
        self.removed.notify_all();
    }

    /// Whether every command has run.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.commands.is_empty() && !state.running
    }
}
