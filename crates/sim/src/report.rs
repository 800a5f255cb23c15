//! The messages of findings: both sides, the memory, and the missing wait.

use feedline_core::{Error, ErrorKind};
use feedline_device::backend::Access;

use super::clocks::{Actor, HOST};
use super::lane::{Call, Lane};
use super::memory::Allocation;
use super::shadow::{Conflict, Touch};

/// Describes a stream.
pub(super) fn stream(lanes: &[Lane], index: usize) -> String {
    let name = lanes.get(index).map_or("", |lane| &lane.name);
    format!("stream {index} \"{name}\"")
}

/// Describes one side: `"step" on stream 1 "compute" (call 9 at src/main.rs:12)`.
pub(super) fn side(lanes: &[Lane], actor: Actor, what: &str, call: Call) -> String {
    match actor {
        HOST => format!("the host ({call})"),
        _ => format!("\"{what}\" on {} ({call})", stream(lanes, actor - 1)),
    }
}

fn touching(lanes: &[Lane], touch: &Touch) -> String {
    side(lanes, touch.actor, touch.what, touch.call)
}

/// The error for two unordered accesses.
pub(super) fn race(lanes: &[Lane], memory: &Allocation, now: &Touch, conflict: &Conflict) -> Error {
    let earlier = &conflict.earlier;
    let (does, may) = match (now.access, earlier.access) {
        (Access::Write, Access::Read) => ("writes", "may still read"),
        (Access::Write, Access::Write) => ("writes", "may still write"),
        (Access::Read, _) => ("reads", "may still write"),
    };
    let missing = missing(lanes, now.actor, earlier);
    let (start, end) = (conflict.bytes.start, conflict.bytes.end);
    let message = format!(
        "race on bytes {start}..{end} of {memory}: {} {does} what {} {may}; {missing}",
        touching(lanes, now),
        touching(lanes, earlier),
    );
    Error::new(ErrorKind::Race, message)
}

/// The error for memory that is freed while work may still use it.
pub(super) fn freed(lanes: &[Lane], memory: &Allocation, call: Call, conflict: &Conflict) -> Error {
    let earlier = &conflict.earlier;
    let missing = missing(lanes, HOST, earlier);
    let message =
        format!("{memory} is freed ({call}) while {} may still use it; {missing}", touching(lanes, earlier));
    Error::new(ErrorKind::Race, message)
}

/// Describes the wait that would order `earlier` before the work of `now`.
fn missing(lanes: &[Lane], now: Actor, earlier: &Touch) -> String {
    // The host's own accesses come before every later call, so the earlier side is always a stream.
    let theirs = stream(lanes, earlier.actor.saturating_sub(1));
    let call = earlier.call.number;
    match now {
        HOST => format!("synchronize first with an event recorded on {theirs} after call {call}"),
        _ => format!(
            "make {} wait for an event recorded on {theirs} after call {call}, or submit both to one stream",
            stream(lanes, now - 1)
        ),
    }
}
