//! The command queue of one stream: FIFO, bounded for threads that do not run a stream.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};

use super::event::Event;
use crate::backend::gather::Gather;
use crate::backend::task::Task;
use crate::slots::Monitor;

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
    /// The stream's thread waits for a command, pushing threads wait for room.
    state: Monitor<State>,
}

struct State {
    commands: VecDeque<Command>,
    closed: bool,
    /// Whether a popped command is still running.
    running: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        // Allocated up front, so that a running stream does not allocate.
        let commands = VecDeque::with_capacity(BOUND);
        Self { state: Monitor::new(State { commands, closed: false, running: false }) }
    }

    /// Pushes the command that `command` returns. `command` runs under the queue's lock, so its side
    /// effects and the push are one atomic step.
    ///
    /// Blocks while the queue is full, unless the calling thread runs a stream.
    pub(super) fn push(&self, command: impl FnOnce() -> Command) -> Result<()> {
        let is_full = |state: &State| state.commands.len() >= BOUND && !state.closed && !on_stream_thread();
        let mut command = Some(command);
        loop {
            let pushed = self.state.add(1, |state| {
                let pushed = match command.take_if(|_| !is_full(state)) {
                    None => None,
                    Some(_) if state.closed => {
                        Some(Err(Error::new(ErrorKind::Device, "the stream's thread has ended")))
                    }
                    Some(command) => {
                        state.commands.push_back(command());
                        Some(Ok(()))
                    }
                };
                (pushed, state.commands.len())
            });
            match pushed {
                Some(pushed) => return pushed,
                None => self.state.wait(None, |state| (!is_full(state)).then_some(())),
            };
        }
    }

    /// Records `event` after the commands so far. If all of them have run, records it at once, without waking
    /// the stream's thread.
    pub(super) fn record(&self, event: Arc<Event>) -> Result<()> {
        let is_recorded = self.state.with(|state| {
            let is_done = state.is_done() && !state.closed;
            if is_done {
                event.complete(event.issue());
            }
            is_done
        });
        if is_recorded {
            return Ok(());
        }
        // The number is issued under the queue's lock: a wait for it that another thread submits to the same
        // stream is queued after it.
        self.push(|| {
            let number = event.issue();
            Command::Record(event, number)
        })
    }

    /// Pops the first command, blocking until there is one; `None` when the queue is closed and empty.
    /// Only the stream's thread calls it, after it has run the previous command.
    pub(super) fn pop(&self) -> Option<Command> {
        let popped = self.state.wait(None, |state| {
            let command = state.commands.pop_front();
            state.running = command.is_some();
            let has_room_again = state.running && state.commands.len() == BOUND - 1;
            (state.running || state.closed).then_some((command, has_room_again))
        });
        let (command, has_room_again) = popped?;
        if has_room_again {
            self.state.change(|_| {});
        }
        command
    }

    /// Rejects further commands; queued ones still run.
    pub(super) fn close(&self) {
        self.state.change(|state| state.closed = true);
    }

    /// Whether every command has run.
    pub(super) fn is_done(&self) -> bool {
        self.state.with(|state| state.is_done())
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.commands.is_empty() && !self.running
    }
}
