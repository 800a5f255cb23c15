//! The content of a trace: spans in lanes.

use std::borrow::Cow;

use super::Trace;

/// The content of a trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The spans, in the order in which they were added.
    pub spans: Vec<Span>,
    /// The lanes of the user.
    pub names: Vec<Name>,
    /// One batch in this many was recorded.
    pub one_in: u64,
}

/// The lane of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// A lane of the user, by its index in the names.
    Own(u32),
    /// The thread that takes batches.
    Consumer,
    /// The stream of the copies.
    CopyStream,
    /// The transfer thread.
    Transfer,
    /// The stream of a lane of the device map.
    MapStream(u32),
    /// The thread of a lane of the device map.
    Map(u32),
    /// A worker.
    Worker(u32),
}

/// A lane of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its name.
    pub name: String,
    /// Whether it is a stream; else a thread.
    pub is_stream: bool,
}

/// The identity of a batch in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchId {
    /// The number of the batch in the life of its loader.
    pub number: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Its step in the epoch.
    pub step: u64,
}

/// A span of time in a lane, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Span {
    /// 0 for the user's own lanes, else the number of the loader.
    pub loader: u32,
    /// The lane.
    pub lane: Lane,
    /// What was done.
    pub name: Cow<'static, str>,
    /// The start.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// The batch, if it was done for one.
    pub batch: Option<BatchId>,
    /// The key that sampling uses: the number of the batch, or a count.
    pub key: u64,
}

/// A copy of the trace so far.
pub fn recorded(trace: &Trace) -> Recorded {
    let state = trace.shared.state();
    Recorded { spans: state.spans.clone(), names: state.names.clone(), one_in: trace.shared.stride() }
}
