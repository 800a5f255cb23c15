//! One simulated stream: its commands, its vector clock and its progress.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use feedline_device::backend::{Gather, Task};

use super::clocks::Clock;

/// One recording of an event.
pub(super) struct Recording {
    /// The stream's clock when the event was recorded.
    pub(super) clock: Clock,
    /// The stream and the call, for messages.
    pub(super) stream: usize,
    pub(super) call: Call,
    /// The virtual time of completion, in nanoseconds.
    pub(super) completed_at: OnceLock<u64>,
}

pub(super) enum Command {
    Copy { from: u64, to: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Gather(Box<Gather>),
    Run(Box<Task>),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
}

/// A call of the backend, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The number of the call, from 1.
    pub(super) number: u64,
    /// The source line, unless the call was made on the backend itself.
    pub(super) site: Option<&'static Location<'static>>,
}

/// Writes `call 9 at src/main.rs:12`.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call {}", self.number)?;
        match self.site {
            Some(site) => write!(f, " at {}:{}", site.file(), site.line()),
            None => Ok(()),
        }
    }
}

/// A command in the queue of a stream.
pub(super) struct Queued {
    pub(super) command: Command,
    /// The virtual time of its call.
    pub(super) submitted_at: u64,
    pub(super) what: &'static str,
    pub(super) call: Call,
}

/// One simulated stream.
pub(super) struct Lane {
    pub(super) name: String,
    /// The clock of the stream's next command.
    pub(super) clock: Clock,
    pub(super) queue: VecDeque<Queued>,
    /// The numbers of commands submitted and ended.
    pub(super) submitted: u64,
    pub(super) ended: u64,
    /// The virtual time at which the last command ended, in nanoseconds.
    pub(super) time: u64,
    /// Whether the stream is skipped until no other stream can run.
    pub(super) starved: bool,
    /// Whether the stream is skipped until the test releases it.
    pub(super) held: bool,
    pub(super) destroyed: bool,
}
