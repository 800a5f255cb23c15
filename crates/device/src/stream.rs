//! A stream: work that runs in order, concurrently with other streams.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use feedline_core::{Error, ErrorKind, Result};

use crate::Event;
use crate::backend::{Priority, StreamId};
use crate::capture::Recorder;
use crate::device_core::Core;

pub(crate) struct StreamCore {
    pub(crate) device: Arc<Core>,
    id: StreamId,
    /// Whether the stream is destroyed here. A borrowed stream is not.
    owned: bool,
    pub(crate) recorder: Recorder,
    /// The cudarc stream, set at its first use.
    #[cfg(feature = "cuda")]
    pub(crate) cuda: OnceLock<Arc<cudarc::driver::CudaStream>>,
}

impl StreamCore {
    /// Makes this stream the only stream that may use some memory on `device`, the `owner`. Returns an error
    /// for a second stream and for a stream of another device. `what` names the use in messages, as in "a
    /// pinned slot is copied".
    pub(crate) fn own(
        self: &Arc<Self>,
        owner: &OnceLock<Arc<Self>>,
        device: &Arc<Core>,
        what: &str,
    ) -> Result<()> {
        device.same(&self.device, "the copy stream")?;
        let owner = owner.get_or_init(|| self.clone());
        if Arc::ptr_eq(owner, self) {
            return Ok(());
        }
        let why = format!("{what} by one stream only: by {owner}, not by {self}");
        Err(Error::new(ErrorKind::Config, why))
    }

    /// Makes `streams` the only streams that share `what`, some memory of `device`. This memory must have no
    /// streams yet.
    pub(crate) fn set_owners(
        streams: &[Stream],
        owners: &OnceLock<Box<[Arc<Self>]>>,
        device: &Arc<Core>,
        what: &str,
    ) -> Result<()> {
        for stream in streams {
            device.same(&stream.core().device, "the stream")?;
        }
        let streams = streams.iter().map(|stream| stream.core().clone()).collect();
        owners.set(streams).map_err(|_| {
            let why = format!("{what} has its streams already: set them before the first copy");
            Error::new(ErrorKind::Config, why)
        })
    }

    /// As [`own`](Self::own), for memory that the streams in `owners` share. If there are none, the first
    /// stream becomes the only one.
    pub(crate) fn is_one_of(
        self: &Arc<Self>,
        owners: &OnceLock<Box<[Arc<Self>]>>,
        device: &Arc<Core>,
        what: &str,
    ) -> Result<()> {
        device.same(&self.device, "the copy stream")?;
        let owners = owners.get_or_init(|| [self.clone()].into());
        if owners.iter().any(|one| Arc::ptr_eq(one, self)) {
            return Ok(());
        }
        let why = match &**owners {
            [one] => format!("{what} by one stream only: by {one}, not by {self}"),
            all => format!("{what} by its {} streams only, not by {self}", all.len()),
        };
        Err(Error::new(ErrorKind::Config, why))
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Returns an error for a call that a recording cannot contain. While another library captures the
    /// stream, returns an error for every call.
    pub(crate) fn refuse(&self, what: &str) -> Result<()> {
        self.recorder.refuse(what)?;
        self.refuse_captured(what)
    }

    /// Returns an error if another library captures the stream. Its graph would use the memory at every
    /// launch, and feedline would not keep this memory.
    pub(crate) fn refuse_captured(&self, what: &str) -> Result<()> {
        // SAFETY: the stream is alive.
        if unsafe { self.device.backend.is_captured(self.id) }? {
            let why = format!(
                "cannot submit {what} to {self} while another library captures it: record the work with \
                 record_graph, or end the capture first"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }

    pub(crate) fn record(&self, event: &Event) -> Result<()> {
        event.device().same(&self.device, "the stream")?;
        self.refuse("an event")?;
        // SAFETY: both are alive and belong to the same backend.
        unsafe { self.device.backend.record(event.id(), self.id) }
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        self.device.same(event.device(), "the event")?;
        self.refuse("a wait")?;
        // SAFETY: both are alive and belong to the same backend.
        unsafe { self.device.backend.wait(self.id, event.id()) }
    }

    /// Like [`wait`](Self::wait), but skips the wait if the host sees that `event` is complete. Work that is
    /// submitted later runs after the recorded work anyway. A wait between two kernels takes a GPU about a
    /// microsecond; a query takes the host 0.3.
    pub(crate) fn wait_unless_done(&self, event: &Event) -> Result<()> {
        self.device.same(event.device(), "the event")?;
        self.refuse("a wait")?;
        if event.query()? { Ok(()) } else { self.wait(event) }
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.refuse("a wait of the host")?;
        // SAFETY: the stream is alive.
        unsafe { self.device.backend.synchronize_stream(self.id) }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: dropped once, and not used afterwards.
        if let Err(error) = unsafe { self.device.backend.destroy_stream(self.id) } {
            self.device.stats.report(error);
        }
        self.device.stats.streams.subtract(1);
    }
}

/// An in-order queue of work on one device. Clones refer to the same stream.
///
/// Calls queue work and return. Only [`synchronize`](Self::synchronize) blocks the host. A call with a view,
/// batch or event of another device, or a view of another stream, returns an error of kind `Config`.
#[derive(Clone)]
pub struct Stream {
    core: Arc<StreamCore>,
}

impl Stream {
    pub(crate) fn create(device: &Arc<Core>, name: &str, priority: Priority) -> Result<Self> {
        let id = device.backend.create_stream(name, priority)?;
        device.stats.streams.add(1);
        let core = StreamCore {
            #[cfg(feature = "cuda")]
            cuda: OnceLock::new(),
            device: device.clone(),
            id,
            owned: true,
            recorder: Recorder::default(),
        };
        Ok(Self { core: Arc::new(core) })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn borrow(device: &Arc<Core>, stream: Arc<cudarc::driver::CudaStream>) -> Self {
        let id = StreamId(stream.cu_stream() as u64);
        let core = StreamCore {
            cuda: OnceLock::from(stream),
            device: device.clone(),
            id,
            owned: false,
            recorder: Recorder::default(),
        };
        Self { core: Arc::new(core) }
    }

    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// Records in `event` the work submitted to this stream so far.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn record(&self, event: &Event) -> Result<()> {
        let _site = self.core.device.call_site();
        self.core.record(event)
    }

    /// Makes this stream wait for the current recording of `event`. The host does not block.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _site = self.core.device.call_site();
        self.core.wait(event)
    }

    /// Blocks the calling thread until all work submitted so far has ended. A training step does not need
    /// this. Saving device state does; the loader's `checkpoint` synchronizes by itself.
    ///
    /// # Errors
    /// A device failure, including a failure of the work itself.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = self.core.device.call_site();
        self.core.synchronize()
    }
}

/// # For loaders
///
/// What operators and recorded steps call. It may change in any release.
impl Stream {
    /// Whether the device of `stream` can record graphs. CUDA can.
    pub fn records_graphs(&self) -> bool {
        self.core().device.backend.records()
    }

    /// Keeps `needed` alive with the graph that the calling thread records on `stream`. Does nothing without
    /// a recording.
    pub fn keep_with_graph(&self, needed: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        self.core().recorder.need(needed);
    }
}

/// Clones of a stream are equal.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for Stream {}

impl From<&Stream> for StreamId {
    /// The handle for calls on the backend; valid while the stream lives.
    fn from(stream: &Stream) -> Self {
        stream.core.id()
    }
}

impl std::fmt::Display for StreamCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {:#x}", self.id.0)
    }
}

/// Formats the stream as in errors: `stream 0x1`.
impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.fmt(f)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:#x})", self.core.id.0)
    }
}
