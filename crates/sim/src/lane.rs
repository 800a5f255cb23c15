//! One stream of the simulator: its commands, what its work knows, and how far it is.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use feedline_backend::{Gather, Task};

use super::clocks::Clock;

/// A point in a stream's work.
pub(super) struct Mark {
    /// What the stream knew when it was recorded.
    pub(super) clock: Clock,
    /// For messages.
    pub(super) stream: usize,
    pub(super) call: u64,
    /// The virtual time at which the stream came to it, in nanoseconds.
    pub(super) reached: OnceLock<u64>,
}

pub(super) enum Command {
    Copy { from: u64, to: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Gather(Box<Gather>),
    Run(Box<Task>),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
}

/// One stream: what it has to do, and how far it is.
pub(super) struct Lane {
    pub(super) name: String,
    /// What its work knows by the time it runs what it is given next.
    pub(super) clock: Clock,
    /// Commands, each with the virtual time of the call that gave it.
    pub(super) queue: VecDeque<(Command, u64)>,
    /// Commands given, and commands ended.
    pub(super) given: u64,
    pub(super) ended: u64,
    /// When its last command ended, in virtual nanoseconds.
    pub(super) time: u64,
    /// Passed over until nobody else can run.
    pub(super) starved: bool,
    /// Passed over until the test lets it go.
    pub(super) held: bool,
    pub(super) destroyed: bool,
}
