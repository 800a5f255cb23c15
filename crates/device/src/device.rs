//! A device: where streams, events and memory come from.

use std::sync::Arc;

use feedline_backend::{Backend, BackendKind, Priority};
use feedline_core::{Error, ErrorKind, Result};

use crate::device_core::Core;
use crate::stats::DeviceStats;
use crate::{Event, Pinned, Stream};

/// A device: an NVIDIA GPU, or the host standing in for one. Clones are the same device.
///
/// ```
/// use feedline_device::Device;
/// let device = Device::best()?; // CUDA when there is a usable GPU, the host otherwise
/// let stream = device.stream()?;
/// let mut numbers = stream.buffer::<f32>(3)?;
/// numbers.write(&[1.0, 2.0, 3.0])?;
/// assert_eq!(numbers.read()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    core: Arc<Core>,
}

impl Device {
    /// The machine's own cores: streams are threads, events are counters, the semantics are a GPU's.
    pub fn host() -> Self {
        Self::with_backend(feedline_backend::host::Host::new())
    }

    /// The NVIDIA GPU number `ordinal`, on its primary context.
    ///
    /// # Errors
    /// `Unavailable` when this machine has no driver or no such GPU, or this build has no CUDA.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        return Ok(Self::with_backend(feedline_cuda::Cuda::new(ordinal)?));
        #[cfg(not(feature = "cuda"))]
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!("cannot use GPU {ordinal}: feedline was built without its feature cuda-13 or cuda-12"),
        ));
    }

    /// The first usable GPU, the host when there is none.
    ///
    /// # Errors
    /// A GPU that is there but fails, other than by being unavailable.
    pub fn best() -> Result<Self> {
        match Self::cuda(0) {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Self::host()),
            other => other,
        }
    }

    /// A device on any [`Backend`].
    pub fn with_backend(backend: impl Backend) -> Self {
        Self { core: Arc::new(Core::new(Box::new(backend))) }
    }

    /// Which implementation this is.
    pub fn kind(&self) -> BackendKind {
        self.core.backend.kind()
    }

    /// What the device calls itself. Two devices may have the same name; `Display` adds a number.
    pub fn name(&self) -> String {
        self.core.backend.name()
    }

    /// Creates a stream. Its work runs concurrently with that of all other streams.
    ///
    /// # Errors
    /// A device failure.
    pub fn stream(&self) -> Result<Stream> {
        Stream::create(&self.core, "compute", Priority::Normal)
    }

    /// Creates a stream called `name` in traces and thread names.
    ///
    /// # Errors
    /// A device failure.
    pub fn named_stream(&self, name: &str, priority: Priority) -> Result<Stream> {
        Stream::create(&self.core, name, priority)
    }

    /// An event; only one with `timing` can be asked for times.
    ///
    /// # Errors
    /// A device failure.
    pub fn event(&self, timing: bool) -> Result<Event> {
        Event::new(&self.core, timing)
    }

    /// Page-locked host memory.
    ///
    /// # Errors
    /// A device failure, or memory that the machine does not have.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        Pinned::new(&self.core, bytes)
    }

    /// What is held of this device now, and was at most.
    pub fn stats(&self) -> &DeviceStats {
        &self.core.stats
    }

    /// Why no call can succeed any more, once the device is lost.
    pub fn lost(&self) -> Option<Error> {
        self.core.backend.lost()
    }

    /// Makes the calling thread ready for device calls; every call does so itself, this only moves the cost.
    ///
    /// # Errors
    /// A device failure.
    pub fn bind(&self) -> Result<()> {
        self.core.backend.bind()
    }

    /// The backend below.
    pub fn backend(&self) -> &dyn Backend {
        &*self.core.backend
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Checks that `stream` is one of this device.
    ///
    /// # Errors
    /// `Config` when it is not.
    pub fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.core.same(&stream.core().device, "the stream")
    }

    /// Whether `other` is the same device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

/// The name and the number that tells it from others of that name.
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.fmt(f)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.core)
    }
}
