//! A step's work, recorded once and given to its stream again and again in one call: a CUDA graph.

use std::sync::Arc;

use feedline_backend::{GraphId, Priority, Span, StreamId};
use feedline_core::{Error, ErrorKind, Result};

use crate::capture::{Needed, Side};
use crate::slot::{Reader, SlotRef};
use crate::stream::StreamCore;
use crate::{Event, Stream};

/// The recorded work of one step, for one stream, and for one slot where it reads a batch.
///
/// It keeps everything its work uses: buffers dropped meanwhile are freed with the last graph of their stream.
pub struct Graph {
    stream: Arc<StreamCore>,
    id: GraphId,
    slot: Option<SlotRef>,
    /// Kept alive, never looked at.
    needed: Vec<Needed>,
}

impl Stream {
    /// Whether the device can record work: CUDA can.
    pub fn records(&self) -> bool {
        self.core().device.backend.records()
    }

    /// Records the work that `body` gives to this stream; nothing of it runs before [`Graph::launch`].
    ///
    /// `body` may read `batch` and no other. It only gives work: numbers that it passes are those of every replay, so what
    /// changes from step to step must be in device memory. It cannot create or copy buffers, wait, or record events. Work
    /// given to the cudarc stream itself is not recorded, it runs at once.
    ///
    /// # Errors
    /// `Config` for work that cannot be recorded; what `body` returns; a device failure, also where the device cannot record.
    pub fn record_graph(&self, batch: Option<&Reader>, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let core = self.core();
        if let Some(reader) = batch {
            self.accepts(reader.stream().core(), "a recording")?;
        }
        let backend = &core.device.backend;
        // These end here: the graph is a copy of what was recorded.
        let new_stream = || Stream::create(&core.device, "record", Priority::Normal);
        let (aside, side) = (new_stream()?, new_stream()?);
        let (fork, join) = (Event::new(&core.device, false)?, Event::new(&core.device, false)?);
        let slot = batch.map(Reader::hold);
        let side = Side::new(side.core().id(), fork.id(), join.id());
        core.recorder.begin(aside.core().id(), side, batch.map(Reader::slot_id))?;
        let recording = Recording { core };
        // SAFETY: the stream was just made, and only this thread's work is sent to it.
        unsafe { backend.begin_capture(aside.core().id()) }?;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let needed = core.recorder.end();
        // SAFETY: begun above, by this thread.
        let ended = unsafe { backend.end_capture(aside.core().id()) };
        let given = outcome.unwrap_or_else(|panic| {
            if let Ok(id) = ended {
                destroy(core, id);
            }
            std::panic::resume_unwind(panic)
        });
        match (given, ended) {
            (Ok(()), Ok(id)) => {
                // From here on the graph gives back what the recording held.
                std::mem::forget(recording);
                Ok(Graph { stream: core.clone(), id, slot, needed })
            }
            (Err(error), Ok(id)) => {
                destroy(core, id);
                Err(error)
            }
            // What went wrong first.
            (given, Err(error)) => Err(given.err().unwrap_or(error)),
        }
    }
}

impl Stream {
    /// Gives this stream the work of both, in this order; in a recording, `aside` may run beside `main`.
    ///
    /// Let `main` be what more work waits for: a GPU begins with what it was given first.
    ///
    /// # Errors
    /// What they return, the first error first; a device failure.
    ///
    /// # Safety
    /// Neither writes memory that the other reads or writes.
    pub unsafe fn fork_join(
        &self,
        main: impl FnOnce() -> Result<()>,
        aside: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let core = self.core();
        let Some((stream, side, fork, join)) = core.recorder.forks() else {
            return main().and_then(|()| aside());
        };
        let backend = &core.device.backend;
        let lead = |event, from, to| {
            // SAFETY: streams and events of the recording, which is this thread's and goes on.
            unsafe { backend.record(event, from) }?;
            // SAFETY: see above.
            unsafe { backend.wait(to, event) }
        };
        lead(fork, stream, side)?;
        main()?;
        core.recorder.set_aside(true);
        let outcome = aside();
        core.recorder.set_aside(false);
        outcome?;
        lead(join, side, stream)
    }
}

/// A recording's hold on its stream's memory.
struct Recording<'a> {
    core: &'a StreamCore,
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.core.recorder.end();
        free_kept(self.core);
    }
}

impl Graph {
    /// Gives the stream the recorded work once more; the host does not block. `batch` is a batch in the slot that it was
    /// recorded for.
    ///
    /// # Errors
    /// `Config` for another slot or stream; a device failure.
    pub fn launch(&mut self, batch: Option<&Reader>) -> Result<()> {
        const WRONG_SLOT: &str = "the batch is in another slot than the one it was recorded for";
        match (&self.slot, batch) {
            (None, None) => {}
            (Some(slot), Some(reader)) if slot.id() == reader.slot_id() => {}
            (Some(slot), Some(reader)) => {
                return Err(wrong(&format!("{WRONG_SLOT}: {}", slot.mismatch(reader.slot_id()))));
            }
            (Some(_), None) => return Err(wrong(&format!("{WRONG_SLOT}: no batch was given"))),
            (None, Some(_)) => return Err(wrong(&format!("{WRONG_SLOT}: it was recorded without a batch"))),
        }
        if let Some(reader) = batch.filter(|reader| !Arc::ptr_eq(reader.stream().core(), &self.stream)) {
            let other = reader.stream();
            return Err(wrong(&format!("it is for {}, the batch is open to another {other}", self.stream)));
        }
        self.stream.refuse("a graph")?;
        let stream: StreamId = self.stream.id();
        // SAFETY: the graph is this value's, borrowed uniquely. Its buffers are kept, and belong to this very stream, which
        // orders their use; the batch's slot is the reader's, which lives for the call and then marks its end behind it.
        unsafe { self.stream.device.backend.launch_graph(self.id, stream) }
    }

    /// Whether this graph was recorded for the slot that `batch` is in, and the stream that reads it.
    pub fn is_for(&self, batch: &Reader) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.id() == batch.slot_id())
            && Arc::ptr_eq(batch.stream().core(), &self.stream)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            // Its work may still run: everything it uses stays, for good.
            self.stream.device.stats.report(error);
            std::mem::forget((self.slot.take(), std::mem::take(&mut self.needed)));
            return;
        }
        destroy(&self.stream, self.id);
        free_kept(&self.stream);
    }
}

fn destroy(core: &StreamCore, id: GraphId) {
    // SAFETY: of this backend, and not used again; its work has ended, or never began.
    if let Err(error) = unsafe { core.device.backend.destroy_graph(id) } {
        core.device.stats.report(error);
    }
}

/// Frees the memory that dropped buffers left to the stream's graphs, after the last of these.
fn free_kept(core: &StreamCore) {
    let kept = core.recorder.release();
    if kept.is_empty() {
        return;
    }
    let drained = core.synchronize();
    for Span { address, bytes } in kept {
        let freed = drained.clone().and_then(|()| {
            // SAFETY: from `alloc_device` with this size, freed once; no graph is left, and the stream that its buffer was
            // for has just been drained.
            unsafe { core.device.backend.free_device(address, bytes) }
        });
        if let Err(error) = freed {
            core.device.stats.report(error);
        }
        core.device.stats.device_bytes.subtract(bytes as u64);
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("a graph cannot be launched: {why}"))
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({:#x} on stream {:#x})", self.id.0, self.stream.id().0)
    }
}
