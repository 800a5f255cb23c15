//! The operators, on views of a stream: the same call runs a kernel on a GPU and host code elsewhere.
//!
//! No call blocks the host or allocates device memory; all work is queued on the stream the [`Kernels`] are for.
//!
//! | operators | file |
//! | --- | --- |
//! | products of a linear layer | `linear.rs` |
//! | widening, loss, accuracy | `batch.rs` |
//! | the last layer with its loss, on a GPU and elsewhere | `classifier.rs` |
//! | the weight gradient of a long batch, on a GPU and elsewhere | `transposed.rs` |
//! | optimizers | `update.rs` |
//! | delays and self-describing bytes, for tests | `probe.rs` |
//! | the others on a GPU | `gpu.rs` |

mod batch;
mod classifier;
#[cfg(feature = "cuda")]
mod gpu;
mod linear;
mod probe;
mod transposed;
mod update;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{BackendKind, Stream};

use crate::host::parallel;

pub use crate::host::{AdamW, Sgd};
pub use classifier::ClassifierGradients;
pub use linear::Linear;

/// The operators of one stream.
///
/// ```
/// use feedline_device::Device;
/// use feedline_kernels::ops::Kernels;
/// let stream = Device::host().stream()?;
/// let kernels = Kernels::new(&stream)?;
/// let mut pixels = stream.buffer::<u8>(3)?;
/// pixels.write(&[0, 51, 255])?;
/// let mut wide = stream.buffer::<f32>(3)?;
/// kernels.widen(pixels.view(), 0.5, wide.view_mut())?;
/// assert_eq!(wide.read()?, [0.0, 25.5, 127.5]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Kernels {
    stream: Stream,
    options: Options,
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::Gpu>,
}

/// How the operators compute; off a GPU only `transposed` makes a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Matrix products by this crate's kernels, also where cuBLASLt is there.
    pub own_gemm: bool,
    /// Matrix products may round their operands to TF32: 10 bits of mantissa, on tensor cores.
    pub tf32: bool,
    /// The first product of a shape measures cuBLASLt's algorithms and keeps the quickest; which one that is, and so the
    /// last bits of the results, may differ from run to run.
    pub tuned: bool,
    /// A classifier's last layer operator by operator, also where one kernel does it all.
    pub unfused: bool,
    /// Weight gradients from transposed operands at every shape, on every device, also where that does not pay; see
    /// [`Kernels::transposes`].
    pub transposed: bool,
}

impl Kernels {
    /// The operators of `stream`; on a GPU this loads the kernels, which compiles them at the first use on a machine.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with(stream, Options::default())
    }

    /// The operators of `stream`, computing as `options` say.
    ///
    /// # Errors
    /// A device failure; `Unavailable` when the threads of the host's operators cannot be started.
    pub fn with(stream: &Stream, options: Options) -> Result<Self> {
        if stream.kind() != BackendKind::Cuda {
            parallel::start_threads()?;
        }
        Ok(Self {
            options,
            #[cfg(feature = "cuda")]
            gpu: gpu::Gpu::new(stream, options)?,
            stream: stream.clone(),
        })
    }

    /// What computes the matrix products, for people.
    pub fn describe(&self) -> String {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.describe();
        }
        "matrixmultiply crate".to_owned()
    }

    /// The stream the operators run on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Goes to the GPU's form of an operator, where the stream is a GPU's.
macro_rules! on_gpu {
    ($kernels:expr, $name:ident($($argument:expr),*)) => {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &$kernels.gpu {
            return gpu.$name($($argument),*);
        }
    };
}
use on_gpu;

/// Whether `elements` is the number of elements of a matrix that is not empty, `rows` by `columns`. Kernels
/// count columns in 32 bits.
fn are(elements: usize, rows: usize, columns: usize) -> bool {
    elements > 0 && rows.checked_mul(columns) == Some(elements) && u32::try_from(columns).is_ok()
}

/// Refuses lengths that do not fit, before anything is queued.
fn check(fits: bool, what: impl FnOnce() -> String) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::new(ErrorKind::Config, what())) }
}
