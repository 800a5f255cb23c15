//! A graph: the work of a step, recorded once and launched many times, each time by one call.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{GraphId, Priority, Span, StreamId};
use crate::capture::{Needed, Side};
use crate::device_slots::{Reader, SlotRef};
use crate::stream::StreamCore;
use crate::{Event, Stream};

/// The recorded work of one step. It is for one stream, and for one device slot if it reads a batch.
///
/// A graph keeps everything that its work uses alive. Buffers that are dropped meanwhile are freed with the
/// last graph of their stream.
pub struct Graph {
    stream: Arc<StreamCore>,
    id: GraphId,
    slot: Option<SlotRef>,
    /// Kept alive for the recorded work.
    needed: Vec<Needed>,
}

/// Records the work that `body` submits to `stream`. None of it runs before [`Graph::launch`].
///
/// `body` may read `batch` but no other batch. Scalar arguments are fixed at recording time, so values that
/// change from step to step must be in device memory. `body` cannot create or copy buffers, wait, or record
/// events. Work that is submitted to the cudarc stream directly is not recorded. It runs at once.
///
/// # Errors
/// `Config` for work that cannot be recorded; any error of `body`; a device failure, also if the
/// device cannot record graphs.
pub fn record_graph(
    stream: &Stream,
    batch: Option<&Reader>,
    body: impl FnOnce() -> Result<()>,
) -> Result<Graph> {
    let core = stream.core();
    if let Some(reader) = batch {
        stream.accepts(reader.stream().core(), "a recording")?;
    }
    let backend = &core.device.backend;
    // These streams and events end with this call, because the graph is a copy of the recording.
    let new_stream = || Stream::create(&core.device, "record", Priority::Normal);
    let (main, side_stream) = (new_stream()?, new_stream()?);
    let (fork, join) = (Event::new(&core.device, false)?, Event::new(&core.device, false)?);
    let slot = batch.map(Reader::hold);
    let side = Side::new(side_stream.core().id(), fork.id(), join.id());
    core.recorder.begin(main.core().id(), side, batch.map(Reader::slot_id))?;
    let recording = Recording { core };
    // SAFETY: the stream was just created, and only this thread's work is sent to it.
    unsafe { backend.begin_capture(main.core().id()) }?;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let needed = core.recorder.end();
    // SAFETY: this thread began the capture above.
    let ended = unsafe { backend.end_capture(main.core().id()) };
    let recorded = outcome.unwrap_or_else(|panic| {
        if let Ok(id) = ended {
            destroy(core, id);
        }
        std::panic::resume_unwind(panic)
    });
    match (recorded, ended) {
        (Ok(()), Ok(id)) => {
            // From here on, the graph releases the resources of the recording.
            std::mem::forget(recording);
            Ok(Graph { stream: core.clone(), id, slot, needed })
        }
        (Err(error), Ok(id)) => {
            destroy(core, id);
            Err(error)
        }
        // Report the first error.
        (recorded, Err(error)) => Err(recorded.err().unwrap_or(error)),
    }
}

/// Keeps the memory of a stream while it is being recorded.
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
    /// Launches the recorded work on its stream. The host does not block. `batch` must be in the slot for
    /// which the graph was recorded.
    ///
    /// # Errors
    /// `Config` for another slot or stream; a device failure.
    #[track_caller]
    pub fn launch(&mut self, batch: Option<&Reader>) -> Result<()> {
        let _site = self.stream.device.call_site();
        const WRONG_SLOT: &str = "the batch is in another slot than the recorded one";
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
            return Err(wrong(&format!(
                "it was recorded on {}, the batch is open to another stream, {other}",
                self.stream
            )));
        }
        self.stream.refuse("a graph")?;
        let stream: StreamId = self.stream.id();
        // SAFETY: this value owns the graph and is borrowed mutably. Its buffers are kept and belong to
        // this very stream, which orders their use. The batch's slot is kept by the reader, which
        // outlives the call and records its end after the launch.
        unsafe { self.stream.device.backend.launch_graph(self.id, stream) }
            .map_err(|error| self.stream.device.place(error, batch.map(|batch| batch.info().step)))
    }

    /// Whether this graph was recorded for the slot of `batch` and the stream that reads it.
    pub fn is_for(&self, batch: &Reader) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.id() == batch.slot_id())
            && Arc::ptr_eq(batch.stream().core(), &self.stream)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            // The graph's work may still run, so everything it uses is leaked.
            self.stream.device.stats.report(error);
            std::mem::forget((self.slot.take(), std::mem::take(&mut self.needed)));
            return;
        }
        destroy(&self.stream, self.id);
        free_kept(&self.stream);
    }
}

fn destroy(core: &StreamCore, id: GraphId) {
    // SAFETY: the graph belongs to this backend and is not used again; its work has ended, or never
    // began.
    if let Err(error) = unsafe { core.device.backend.destroy_graph(id) } {
        core.device.stats.report(error);
    }
}

/// Frees the memory of dropped buffers after the stream's last graph is dropped.
fn free_kept(core: &StreamCore) {
    let kept = core.recorder.release();
    if kept.is_empty() {
        return;
    }
    let drained = core.synchronize();
    for Span { address, bytes } in kept {
        let freed = drained.clone().and_then(|()| {
            // SAFETY: from `alloc_device` with this size, freed once; no graph is left, and the buffer's
            // stream has just been drained.
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

/// # For loaders
///
/// What operators call in a recorded step. It may change in any release.
impl Stream {
    /// Submits the work of `main` and then of `side`. In a recording, the two become branches that may run
    /// concurrently. The side branch is forked before `main`, and joined after both.
    ///
    /// Put the work on the critical path into `main`, because a GPU starts with the work that was submitted
    /// first.
    ///
    /// # Errors
    /// The first error of `main` or `side`; a device failure.
    ///
    /// # Safety
    /// Neither closure's work writes memory that the other's reads or writes.
    pub unsafe fn fork_join(
        &self,
        main: impl FnOnce() -> Result<()>,
        side: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let core = self.core();
        let Some((main_stream, side_stream, fork, join)) = core.recorder.branches() else {
            return main().and_then(|()| side());
        };
        let backend = &core.device.backend;
        let order = |event, from, to| {
            // SAFETY: the streams and events belong to the recording, which is this thread's and in
            // progress.
            unsafe { backend.record(event, from) }?;
            // SAFETY: as above.
            unsafe { backend.wait(to, event) }
        };
        order(fork, main_stream, side_stream)?;
        main()?;
        core.recorder.set_on_side(true);
        let outcome = side();
        core.recorder.set_on_side(false);
        outcome?;
        order(join, side_stream, main_stream)
    }
}
