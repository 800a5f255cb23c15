//! The queue of one stream: commands in order, bounded for the threads of the program.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_slots::{Backoff, Version};

use super::event::Mark;
use crate::gather::Gather;
use crate::task::Task;

/// Commands a queue holds before a thread that adds one blocks; about what a GPU's queue holds.
const BOUND: usize = 1024;

thread_local! {
    /// Whether this thread runs the commands of a stream.
    static RUNS_A_STREAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is that of a stream, so that it must not wait for one: the stream it waits for, or one that
/// this one waits for, may be its own.
pub(super) fn runs_a_stream() -> bool {
    RUNS_A_STREAM.get()
}

/// Marks the calling thread as that of a stream.
pub(super) fn becomes_a_stream() {
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
    /// Counts additions: the stream's thread polls it for a moment before it sleeps.
    additions: Version,
    waits: Backoff,
}

struct State {
    commands: VecDeque<Command>,
    closed: bool,
    /// Whether a command that was removed still runs.
    running: bool,
    /// Whether the stream's thread sleeps, and how many other threads sleep until there is room.
    sleeps: bool,
    blocked: usize,
}

impl Queue {
    pub(super) fn new() -> Self {
        // All at once: a stream in use is not to allocate.
        let commands = VecDeque::with_capacity(BOUND);
        let state = State { commands, closed: false, running: false, sleeps: false, blocked: 0 };
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

    /// Adds what `command` returns, which is called at the moment of the addition: what it does and the addition are one
    /// step for all who add commands to this queue.
    ///
    /// Blocks while the queue is full, unless the calling thread is that of a stream.
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
        self.additions.bump();
        let wake = state.sleeps;
        drop(state);
        if wake {
            self.added.notify_one();
        }
        Ok(())
    }

    /// Removes the first command, waiting for one; `None` when the queue is closed and empty. Called by the stream's thread
    /// alone, when it has run the command before.
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
