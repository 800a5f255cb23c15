//! A kernel that does nothing.

use feedline_core::Result;
use feedline_device::{Backend, Device, Stream, StreamId, Task, launch_host};

#[cfg(feature = "cuda")]
const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry feedline_empty() { ret; }
";

/// A kernel that does nothing, or host code that does nothing where there are no kernels.
pub struct Empty {
    #[cfg(feature = "cuda")]
    function: Option<feedline_device::cuda::Function>,
}

#[cfg(feature = "cuda")]
const GRID: feedline_device::cuda::Grid =
    feedline_device::cuda::Grid { blocks: (1, 1, 1), threads: (32, 1, 1), shared_bytes: 0 };

impl Empty {
    /// Loads the kernel on `device`.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(device: &Device) -> Result<Self> {
        #[cfg(not(feature = "cuda"))]
        let _ = device;
        Ok(Self {
            #[cfg(feature = "cuda")]
            function: match device.cuda_backend() {
                Some(cuda) => Some(cuda.function(&cuda.load_ptx(PTX)?, "feedline_empty")?),
                None => None,
            },
        })
    }

    /// Queues the kernel with the usual checks.
    ///
    /// # Errors
    /// A device failure.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(function) = &self.function {
            // SAFETY: the kernel has no parameters and touches no memory.
            return unsafe { feedline_device::cuda::launch(stream, function, GRID, &[]) };
        }
        launch_host(stream, "empty", [], [], |_| ())
    }

    /// Queues the kernel with the raw backend call.
    pub(super) fn raw(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(function) = &self.function {
            let mut launch = feedline_device::cuda::Launch {
                kernel: function.id(),
                name: function.name(),
                grid: GRID,
                parameters: &mut [],
            };
            // SAFETY: the kernel has no parameters and touches no memory; the stream is alive.
            return unsafe { backend.launch(stream, &mut launch) };
        }
        let task = Task::new("empty", [], [], |_| ())?;
        // SAFETY: the task has no spans; the stream is alive.
        unsafe { backend.run(stream, task) }
    }
}

impl std::fmt::Debug for Empty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Empty")
    }
}
