//! Recording a stream's work: who records, what may be part of it, and what must stay alive for it.
//!
//! The recording thread's work goes to a stream of the device's own, made for that one recording; what other threads give
//! to the recorded stream meanwhile runs as ever. Memory that a recording may use is kept until its last graph is gone:
//! see [`Recorder::keep`].

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use feedline_backend::{EventId, Span, StreamId};
use feedline_core::{Error, ErrorKind, Result};

/// Something that work needs beside memory: a kernel's module.
pub(crate) type Needed = Arc<dyn Any + Send + Sync>;

/// Which device slot: its number, and its ring by the address of what the ring's handles share. Tells slots apart while
/// their rings live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(crate) ring: usize,
    pub(crate) index: usize,
}

/// Memory that a piece of work uses.
pub(crate) enum Use {
    /// Of a batch, whose reader is borrowed meanwhile.
    Slot(SlotId),
    /// Of a buffer.
    Buffer(Span),
}

/// The recording side of one stream.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Whether `current` is worth a look: the only cost of a launch while nobody records.
    recording: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Recording>,
    /// Recordings and graphs of this stream.
    live: usize,
    /// Memory that recorded work uses.
    used: Vec<Span>,
    /// Device memory of buffers that were dropped while there were graphs which use it.
    kept: Vec<Span>,
}

/// A recording that is going on.
struct Recording {
    thread: ThreadId,
    stream: StreamId,
    /// Where work goes that may run beside the rest, and whether it goes there now.
    side: Side,
    /// The slot of the batch whose work this is; its reader is borrowed until the end.
    slot: Option<SlotId>,
    needed: Vec<Needed>,
}

/// The second stream of a recording, and the events that lead there and back.
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

    /// Sends the calling thread's work to `stream`, and keeps memory from now on until [`release`](Self::release).
    pub(crate) fn begin(&self, stream: StreamId, side: Side, slot: Option<SlotId>) -> Result<()> {
        let mut state = self.state();
        if state.current.is_some() {
            return Err(refused("a recording", "the stream is being recorded already"));
        }
        let thread = std::thread::current().id();
        state.current = Some(Recording { thread, stream, side, slot, needed: Vec::new() });
        state.live += 1;
        self.recording.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends what `begin` began; what its work needs.
    pub(crate) fn end(&self) -> Vec<Needed> {
        self.recording.store(false, Ordering::Release);
        self.state().current.take().map(|recording| recording.needed).unwrap_or_default()
    }

    /// Where the calling thread's work on the memory `used` goes, `None` being the stream itself. A recording takes in batches
    /// of its own slot only: no other is held while it is replayed.
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
                    return Err(refused(name, "it reads a batch that is not the one this recording is for"));
                }
                Use::Buffer(span) if !state.used.contains(&span) => state.used.push(span),
                Use::Slot(_) | Use::Buffer(_) => {}
            }
        }
        Ok(Some(target))
    }

    /// Where the recording's stream, its side and their events are, when the calling thread records and is not aside.
    pub(crate) fn forks(&self) -> Option<(StreamId, StreamId, EventId, EventId)> {
        if !self.recording.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        let recording = state.mine().filter(|recording| !recording.side.active)?;
        let Side { stream, fork, join, .. } = recording.side;
        Some((recording.stream, stream, fork, join))
    }

    /// Sends the recording thread's work aside, or back.
    pub(crate) fn set_aside(&self, aside: bool) {
        if let Some(recording) = self.state().mine_mut() {
            recording.side.active = aside;
        }
    }

    /// Whether the calling thread's work goes aside now.
    pub(crate) fn is_aside(&self) -> bool {
        self.recording.load(Ordering::Acquire)
            && self.state().mine().is_some_and(|recording| recording.side.active)
    }

    /// Keeps `needed` alive with the graph, when the calling thread records.
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

    /// Refuses a call that cannot be part of a recording.
    pub(crate) fn refuse(&self, what: &str) -> Result<()> {
        if self.recording.load(Ordering::Acquire) && self.state().mine().is_some() {
            return Err(refused(what, "record only work whose every step is the same"));
        }
        Ok(())
    }

    /// Takes over the memory of a dropped buffer when a graph may still use it, or the calling thread records and cannot wait
    /// for its work; whether it did.
    pub(crate) fn keep(&self, buffer: Span) -> bool {
        let mut state = self.state();
        let is_used = state.used.iter().any(|used| used.overlaps(&buffer));
        let keep = is_used || state.mine().is_some();
        if keep {
            state.kept.push(buffer);
        }
        keep
    }

    /// One recording or graph fewer; after the last, the memory to free.
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
