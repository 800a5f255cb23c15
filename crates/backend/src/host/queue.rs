//! The command queue of one stream: FIFO, bounded for threads that do not run a stream.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_slots::{Backoff, Version};

use super::event::Event;
use crate::gather::Gather;
use crate::task::Task;

/// Commands that a queue holds before a pushing thread blocks; about the capacity of a GPU's queue.
const BOUND: usize = 1024;

thread_local! {
    /// Whether this thread runs the commands of a stream.
    static ON_STREAM_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a stream. Such a thread must not wait for a stream, since that stream
/// may be its own or may be waiting for it.
pub(super) fn on_stream_thread() -> bool {
    ON_STREAM_THREAD.get()
}

/// Declares that the calling thread runs a stream.
pub(super) fn enter_stream_thread() {
    ON_STREAM_THREAD.set(true);
}

/// One command of a stream. Addresses are numbers, so that a command can move to another thread.
pub(super) enum Command {
    Copy { from: u64, to: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Gather(Box<Gather>),
    Run(Box<Task>),
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
}

pub(super) struct Queue {
    state: Mutex<State>,
    added: Condvar,
    removed: Condvar,
    /// Counts additions: the stream's thread polls it for a moment before it sleeps.
    additions: Version,
    waits: Backoff,
}

struct State {
    commands: VecDeque<Command>,
    closed: bool,
    /// Whether a popped command is still running.
    running: bool,
    /// Whether the stream's thread is asleep, and how many pushing threads wait for room.
    asleep: bool,
    blocked: usize,
}

impl Queue {
    pub(super) fn new() -> Self {
        // Allocated up front, so that a running stream does not allocate.
        let commands = VecDeque::with_capacity(BOUND);
        let state = State { commands, closed: false, running: false, asleep: false, blocked: 0 };
        Self {
            state: Mutex::new(state),
            added: Condvar::new(),
            removed: Condvar::new(),
            additions: Version::default(),
            waits: Backoff::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes the command that `command` returns. `command` runs under the queue's lock, so its side
    /// effects and the push are one atomic step.
    ///
    /// Blocks while the queue is full, unless the calling thread runs a stream.
    pub(super) fn push(&self, command: impl FnOnce() -> Command) -> Result<()> {
        let mut state = self.state();
        while state.commands.len() >= BOUND && !state.closed && !on_stream_thread() {
            state.blocked += 1;
            state = self.removed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
        if state.closed {
            return Err(Error::new(ErrorKind::Device, "the stream's thread has ended"));
        }
        state.commands.push_back(command());
        self.additions.bump();
        let wake = state.asleep;
        drop(state);
        if wake {
            self.added.notify_one();
        }
        Ok(())
    }

    /// Pops the first command, blocking until there is one; `None` when the queue is closed and empty.
    /// Only the stream's thread calls it, after it has run the previous command.
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
            let before = self.additions.get();
            if wait.should_spin() {
                drop(state);
                wait.spin_until_changed(&self.additions, before);
                state = self.state();
                continue;
            }
            state.asleep = true;
            state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep = false;
        }
    }

    /// Rejects further commands; queued ones still run.
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
