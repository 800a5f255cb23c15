//! A stream: work that runs in order, beside the work of other streams.

use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::OnceLock;

use feedline_backend::{Memory, Priority, StreamId, Task};
use feedline_core::{Error, ErrorKind, Result};

use crate::Event;
use crate::capture::{Recorder, Use};
use crate::device::Core;
use crate::view::{Input, Output};

pub(crate) struct StreamCore {
    pub(crate) device: Arc<Core>,
    id: StreamId,
    /// Borrowed streams are not destroyed here.
    owned: bool,
    pub(crate) recorder: Recorder,
    /// The same stream as cudarc has it, once it was asked for.
    #[cfg(feature = "cuda")]
    pub(crate) cuda: OnceLock<Arc<feedline_cuda::cudarc::driver::CudaStream>>,
}

impl StreamCore {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        self.device.same(event.device(), "the event")?;
        self.recorder.refuse("a wait")?;
        // SAFETY: both are alive, and of one driver.
        unsafe { self.device.driver.wait(self.id, event.id()) }
    }

    /// As [`wait`](Self::wait), left out where the host sees that `event` is done: what it gives to a stream after that runs
    /// after the marked work anyway. A wait between two kernels takes a GPU about a microsecond, a query takes the host 0.3.
    pub(crate) fn wait_unless_done(&self, event: &Event) -> Result<()> {
        self.device.same(event.device(), "the event")?;
        self.recorder.refuse("a wait")?;
        if event.query()? { Ok(()) } else { self.wait(event) }
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.recorder.refuse("a wait of the host")?;
        // SAFETY: the stream is alive.
        unsafe { self.device.driver.synchronize_stream(self.id) }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: dropped once, and used by nobody after.
        if let Err(error) = unsafe { self.device.driver.destroy_stream(self.id) } {
            self.device.ledger.report(error);
        }
        self.device.ledger.streams.subtract(1);
    }
}

/// An in-order queue of work on one device. Clones are the same stream.
///
/// Calls queue work and return; only [`synchronize`](Self::synchronize) blocks the host. A view, batch or
/// event of another device, or a view of another stream, is refused at the call: an error of kind `Config`.
#[derive(Clone)]
pub struct Stream {
    core: Arc<StreamCore>,
}

impl Stream {
    pub(crate) fn create(device: &Arc<Core>, name: &str, priority: Priority) -> Result<Self> {
        let id = device.driver.create_stream(name, priority)?;
        device.ledger.streams.add(1);
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
    pub(crate) fn borrow(device: &Arc<Core>, stream: Arc<feedline_cuda::cudarc::driver::CudaStream>) -> Self {
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

    /// Marks in `event` the work given to this stream so far.
    ///
    /// # Errors
    /// A device failure.
    pub fn record(&self, event: &Event) -> Result<()> {
        event.record(&self.core)
    }

    /// Makes this stream wait for the mark `event` has now; the host does not block.
    ///
    /// # Errors
    /// A device failure.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.core.wait(event)
    }

    /// Blocks the calling thread until all work given so far has ended. A training step does not need it;
    /// what is saved does, and the loader's `checkpoint` waits by itself.
    ///
    /// # Errors
    /// A device failure, also one of the work itself.
    pub fn synchronize(&self) -> Result<()> {
        self.core.synchronize()
    }

    /// Runs host code on this stream; for devices whose memory is host memory (host, sim).
    ///
    /// `body` sees the inputs and outputs as slices, in the order given.
    ///
    /// # Errors
    /// `Config` for arguments of another stream, or outputs that overlap another argument; a device failure, also when
    /// the device runs kernels, not host code.
    pub fn run<const I: usize, const O: usize>(
        &self,
        name: &'static str,
        inputs: [Input<'_>; I],
        outputs: [Output<'_>; O],
        body: impl FnOnce(&mut Memory<'_>) + Send + 'static,
    ) -> Result<()> {
        for stream in inputs.iter().map(|i| i.stream).chain(outputs.iter().map(|o| o.stream)) {
            self.accepts(stream, name)?;
        }
        let used = inputs.iter().map(Input::used).chain(outputs.iter().map(Output::used));
        let target = self.target(used, name)?;
        let task = Task::new(name, inputs.iter().map(|i| i.span), outputs.iter().map(|o| o.span), body)?;
        // SAFETY: the spans belong to buffers and slots that outlive the stream's work (both drain it before they free),
        // and were given on this very stream, which orders it after and before all other use on it.
        unsafe { self.core.device.driver.run(target, task) }
    }

    /// Where work of the calling thread goes: this stream, or the recording of it.
    pub(crate) fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<StreamId> {
        let aside = self.core.recorder.target(used, name)?;
        Ok(aside.unwrap_or(self.core.id))
    }

    /// Refuses an argument that was made for, or waited on by, another stream.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>, name: &str) -> Result<()> {
        if Arc::ptr_eq(stream, &self.core) {
            return Ok(());
        }
        self.core.device.same(&stream.device, &format!("an argument of \"{name}\""))?;
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "an argument of \"{name}\" belongs to {stream}, not to {self}: use also_on(&stream) for a \
                 batch, one stream for a buffer"
            ),
        ))
    }

    /// Whether `other` is the same stream.
    pub fn is(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Which implementation the stream's device is.
    pub fn kind(&self) -> crate::Kind {
        self.core.device.driver.kind()
    }

    /// Creates an event on the stream's device.
    ///
    /// # Errors
    /// A device failure.
    pub fn event(&self, timing: bool) -> Result<Event> {
        Event::new(&self.core.device, timing)
    }
}

impl From<&Stream> for StreamId {
    /// For calls on the driver beside the safe ones; valid while the stream lives.
    fn from(stream: &Stream) -> Self {
        stream.core.id()
    }
}

impl std::fmt::Display for StreamCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {:#x}", self.id.0)
    }
}

/// Written as in errors: `stream 0x1`.
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
