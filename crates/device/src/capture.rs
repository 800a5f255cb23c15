//! The recording of a stream's work: the recording thread, the work that a recording may contain, and the
//! memory that it must keep alive.
//!
//! Work of the recording thread goes to a separate stream, which is created for the recording. Meanwhile,
//! work that other threads submit to the recorded stream runs as usual. Memory that a recording may use is
//! kept until the stream's last graph is dropped; see [`Recorder::keep`].

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{EventId, Span, StreamId};

/// A resource other than memory that recorded work needs, such as a kernel's module.
pub(crate) type Needed = Arc<dyn Any + Send + Sync>;

/// Identifies a device slot: the address of its ring's shared state, and its index. It is unique while the
/// ring lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(crate) ring: usize,
    pub(crate) index: usize,
}

impl SlotId {
    /// Stands for every shared buffer. No recording accepts one, because other streams may use it when the
    /// graph is launched.
    pub(crate) const SHARED: Self = Self { ring: 0, index: usize::MAX };
}

/// Memory that a unit of work uses.
pub(crate) enum Use {
    /// A batch, or a shared buffer. The batch's reader is borrowed while the recording runs.
    Slot(SlotId),
    /// A buffer.
    Buffer(Span),
}

/// The recording state of one stream.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Whether `current` may be set. While nothing is being recorded, reading this flag is the only cost of a
    /// launch.
    recording: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Recording>,
    /// The number of live recordings and graphs of this stream.
    live: usize,
    /// Memory that recorded work uses.
    used: Vec<Span>,
    /// Memory of dropped buffers that a graph may still use.
    kept: Vec<Span>,
}

/// A recording in progress.
struct Recording {
    thread: ThreadId,
    stream: StreamId,
    /// The side branch, for work that may run concurrently with the main branch.
    side: Side,
    /// The slot of the recorded batch. The batch's reader is borrowed until the recording ends.
    slot: Option<SlotId>,
    needed: Vec<Needed>,
}

/// The side branch of a recording: its stream, and the events of its fork and join.
pub(crate) struct Side {
    pub(crate) stream: StreamId,
    pub(crate) fork: EventId,
    pub(crate) join: EventId,
    active: bool,
}

impl Side {
    pub(crate) fn new(stream: StreamId, fork: EventId, join: EventId) -> Self {
        Self { stream, fork, join, active: false }
    }
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redirects the calling thread's work to `stream`, and keeps memory until
    /// [`release`](Self::release).
    pub(crate) fn begin(&self, stream: StreamId, side: Side, slot: Option<SlotId>) -> Result<()> {
        let mut state = self.state();
        if state.current.is_some() {
            return Err(refused("a recording", "the stream is already being recorded"));
        }
        let thread = std::thread::current().id();
        state.current = Some(Recording { thread, stream, side, slot, needed: Vec::new() });
        state.live += 1;
        self.recording.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the recording, and returns the resources that its work needs.
    pub(crate) fn end(&self) -> Vec<Needed> {
        self.recording.store(false, Ordering::Release);
        self.state().current.take().map(|recording| recording.needed).unwrap_or_default()
    }

    /// Returns the recording stream for the calling thread's work on the memory `used`; `None` if the work
    /// goes to the stream itself. A recording accepts only batches of its own slot, because no other batch is
    /// held while it is replayed.
    pub(crate) fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<Option<StreamId>> {
        if !self.recording.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut state = self.state();
        let Some(mine) = state.mine() else { return Ok(None) };
        let (own, target) = (mine.slot, if mine.side.active { mine.side.stream } else { mine.stream });
        for one in used {
            match one {
                Use::Slot(slot) if own != Some(slot) => {
                    let why = if slot == SlotId::SHARED {
                        "it uses a shared buffer, which other streams may use at the launch"
                    } else {
                        "it reads a batch other than the one being recorded"
                    };
                    return Err(refused(name, why));
                }
                Use::Buffer(span) if !state.used.contains(&span) => state.used.push(span),
                Use::Slot(_) | Use::Buffer(_) => {}
            }
        }
        Ok(Some(target))
    }

    /// The recording's stream, its side stream, and the fork and join events. `None` if the calling thread is
    /// not recording, or is already on the side branch.
    pub(crate) fn branches(&self) -> Option<(StreamId, StreamId, EventId, EventId)> {
        if !self.recording.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        let recording = state.mine().filter(|recording| !recording.side.active)?;
        let Side { stream, fork, join, .. } = recording.side;
        Some((recording.stream, stream, fork, join))
    }

    /// Redirects the recording thread's work to the side branch, or back.
    pub(crate) fn set_on_side(&self, on_side: bool) {
        if let Some(recording) = self.state().mine_mut() {
            recording.side.active = on_side;
        }
    }

    /// Whether the calling thread's work currently goes to the side branch.
    pub(crate) fn is_on_side(&self) -> bool {
        self.recording.load(Ordering::Acquire)
            && self.state().mine().is_some_and(|recording| recording.side.active)
    }

    /// Keeps `needed` alive with the graph, if the calling thread is recording.
    pub(crate) fn need(&self, needed: impl FnOnce() -> Needed) {
        if !self.recording.load(Ordering::Acquire) {
            return;
        }
        let needed = needed();
        if let Some(recording) = self.state().mine_mut()
            && !recording.needed.iter().any(|known| Arc::ptr_eq(known, &needed))
        {
            recording.needed.push(needed);
        }
    }

    /// Returns an error while the calling thread is recording. For calls that a recording cannot contain.
    pub(crate) fn refuse(&self, what: &str) -> Result<()> {
        if self.recording.load(Ordering::Acquire) && self.state().mine().is_some() {
            return Err(refused(what, "record only work that is the same in every step"));
        }
        Ok(())
    }

    /// Takes over the memory of a dropped buffer if a graph may still use it, or if the calling thread is
    /// recording and cannot wait for the buffer's work. Returns whether it took the memory.
    pub(crate) fn keep(&self, buffer: Span) -> bool {
        let mut state = self.state();
        let is_used = state.used.iter().any(|used| used.overlaps(&buffer));
        let keep = is_used || state.mine().is_some();
        if keep {
            state.kept.push(buffer);
        }
        keep
    }

    /// Releases one recording or graph. After the last one, returns the memory to free.
    pub(crate) fn release(&self) -> Vec<Span> {
        let mut state = self.state();
        state.live -= 1;
        if state.live > 0 {
            return Vec::new();
        }
        state.used.clear();
        std::mem::take(&mut state.kept)
    }
}

impl State {
    fn mine(&self) -> Option<&Recording> {
        self.current.as_ref().filter(|recording| recording.thread == std::thread::current().id())
    }

    fn mine_mut(&mut self) -> Option<&mut Recording> {
        self.current.as_mut().filter(|recording| recording.thread == std::thread::current().id())
    }
}

fn refused(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("{what} cannot be recorded: {why}"))
}
