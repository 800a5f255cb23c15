//! A device: it creates streams, events and memory.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};

use crate::backend::{Backend, BackendKind, Priority, Synchronous};
use crate::device_core::Core;
use crate::stats::DeviceStats;
use crate::{Event, Stream};

/// A device: an NVIDIA GPU, or the host in place of one. Clones refer to the same device.
///
/// A fault on a device is usually returned by a later call than the one that caused it. If the environment
/// variable `FEEDLINE_SYNC` is `1` when the device is opened, every call waits for its own work. The call
/// that caused the fault then returns it, with its source line, its stage and its batch. This mode is slow,
/// and work that waits for the calling thread never ends.
///
/// ```
/// use feedline_device::{Buffer, Device};
/// let device = Device::best()?; // CUDA when there is a usable GPU, the host otherwise
/// let stream = device.stream()?;
/// let mut numbers = Buffer::<f32>::new(&stream, 3)?;
/// numbers.write(&[1.0, 2.0, 3.0])?;
/// assert_eq!(numbers.read()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    core: Arc<Core>,
}

impl Device {
    /// A new host device. Its streams are threads and its events are counters, with the semantics of a GPU.
    ///
    /// Every call makes a separate device, with its own statistics and its own loss. Like two GPUs, two host
    /// devices do not share streams, events or memory. Clone a device to use it in several places.
    ///
    /// ```
    /// use feedline_device::Device;
    /// let device = Device::new_host();
    /// assert!(device == device.clone() && device != Device::new_host());
    /// ```
    pub fn new_host() -> Self {
        with_backend(crate::backend::host::Host::new())
    }

    /// Opens NVIDIA GPU number `ordinal`, on its primary context.
    ///
    /// # Errors
    /// `Unavailable` if this machine has no driver or no such GPU, or if this build has no CUDA.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        return Ok(with_backend(crate::cuda::driver::Cuda::new(ordinal)?));
        #[cfg(not(feature = "cuda"))]
        return Err(feedline_core::Error::new(
            ErrorKind::Unavailable,
            format!(
                "cannot use GPU {ordinal}: {}",
                feedline_core::named(
                    "build feedline with the feature cuda-13 or cuda-12",
                    "this build of feedline has no CUDA"
                )
            ),
        ));
    }

    /// Opens the first usable GPU, or the host if there is none.
    ///
    /// # Errors
    /// The failure of a GPU that exists but cannot be opened.
    pub fn best() -> Result<Self> {
        match Self::cuda(0) {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Self::new_host()),
            other => other,
        }
    }

    /// The kind of backend.
    pub fn kind(&self) -> BackendKind {
        self.core.backend.kind()
    }

    /// The device's name. Two devices may have the same name, so `Display` adds a number.
    pub fn name(&self) -> String {
        self.core.backend.name()
    }

    /// Creates a stream. Its work runs concurrently with other streams.
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

    /// Creates an event.
    ///
    /// # Errors
    /// A device failure.
    pub fn event(&self) -> Result<Event> {
        Event::new(&self.core, false)
    }

    /// Creates an event that records the time, for [`Event::elapsed_ms_since`].
    ///
    /// # Errors
    /// A device failure.
    pub fn timing_event(&self) -> Result<Event> {
        Event::new(&self.core, true)
    }

    /// The current and peak memory, streams and events of this device.
    pub fn stats(&self) -> &DeviceStats {
        &self.core.stats
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// # For loaders
///
/// What loaders, operators and tests call. It may change in any release.
impl Device {
    /// Checks that `stream` belongs to `device`.
    ///
    /// # Errors
    /// `Config` if it does not.
    pub fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.core.same(&stream.core().device, "the stream")
    }

    /// Creates a device whose calls wait for the work that they submit, as with `FEEDLINE_SYNC=1`.
    pub fn synchronous(backend: impl Backend) -> Self {
        Self { core: Arc::new(Core::new(Box::new(Synchronous::new(backend)), true)) }
    }

    /// Records an error that cannot be returned, such as the error of a drop.
    /// [`take_errors`](crate::DeviceStats::take_errors) returns it.
    pub fn report(&self, error: Error) {
        self.stats().report(error);
    }
}

/// Creates a device on any [`Backend`].
pub fn with_backend(backend: impl Backend) -> Device {
    // The variable is read once per device. Calls do not read it.
    match std::env::var_os("FEEDLINE_SYNC") {
        Some(value) if !value.is_empty() && value != "0" => Device::synchronous(backend),
        _ => Device { core: Arc::new(Core::new(Box::new(backend), false)) },
    }
}

/// The backend, which makes the driver's calls. It has the device's properties, and unsafe calls without the
/// checks of this crate.
pub fn backend(device: &Device) -> &dyn Backend {
    &*device.core.backend
}

/// Clones of a device are equal; two devices on one GPU are not.
impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for Device {}

impl Stream {
    /// The stream's device.
    pub fn device(&self) -> Device {
        Device { core: self.core().device.clone() }
    }
}

/// Writes the name, and a number that distinguishes devices of the same name.
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
