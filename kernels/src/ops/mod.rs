//! The operators on views of a stream: one call that runs a kernel on a GPU and host code elsewhere.
//!
//! Calls do not block the host or allocate device memory; they queue work on the stream of the [`Kernels`].
//!
//! | operators | file |
//! | --- | --- |
//! | products of a linear layer | `linear.rs` |
//! | cast, loss, accuracy | `batch.rs` |
//! | last layer with its loss | `classifier.rs` |
//! | weight gradient of a large batch | `transposed.rs` |
//! | transforms of pictures (feature `images`) | `augment.rs` |
//! | JPEG on the GPU (feature `nvjpeg`) | `jpeg.rs` |
//! | optimizers | `update.rs` |
//! | delays and self-describing bytes, for tests | `probe.rs` |
//! | GPU implementations of the others | `gpu.rs` |

#[cfg(feature = "images")]
#[cfg_attr(docsrs, doc(cfg(feature = "images")))]
mod augment;
mod batch;
mod classifier;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "nvjpeg")]
#[cfg_attr(docsrs, doc(cfg(feature = "nvjpeg")))]
mod jpeg;
mod linear;
mod probe;
mod transposed;
mod update;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{BackendKind, Stream};

use crate::host::parallel;

pub use crate::host::{AdamW, Sgd};
#[cfg(feature = "images")]
pub use augment::{Augment, OneHot, Pictures};
pub use classifier::ClassifierGradients;
#[cfg(feature = "nvjpeg")]
pub use jpeg::{Counts, Decode, DecodeStage, DecodeTimes, Decoded, Encoded, PictureDecoder};
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
/// kernels.cast(pixels.view(), 0.5, wide.view_mut())?;
/// assert_eq!(wide.read()?, [0.0, 25.5, 127.5]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Kernels {
    stream: Stream,
    options: Options,
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::Gpu>,
}

/// Options of the operators; only `transposed` has an effect without a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Uses this crate's matrix products even if cuBLASLt is available.
    pub own_gemm: bool,
    /// Allows matrix products to round their operands to TF32 (10 bits of mantissa, on tensor cores).
    pub tf32: bool,
    /// Measures cuBLASLt's algorithms at the first product of a shape and keeps the fastest. The choice,
    /// and so the last bits of the results, may differ from run to run.
    pub tuned: bool,
    /// Runs a classifier's last layer as separate operators, without the fused kernels.
    pub unfused: bool,
    /// Computes weight gradients from transposed operands for every shape and device, even where that is
    /// slower; see [`Kernels::prefers_transposed`].
    pub transposed: bool,
}

impl Kernels {
    /// Creates the operators of `stream`. On a GPU this loads the kernels; the first use on a machine
    /// compiles them.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with(stream, Options::default())
    }

    /// Creates the operators of `stream` with `options`.
    ///
    /// # Errors
    /// A device failure; `Unavailable` if the threads of the host operators cannot start.
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

    /// Describes the implementation of the matrix products, for logs.
    pub fn describe(&self) -> String {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.describe();
        }
        "matrixmultiply crate".to_owned()
    }

    /// The stream of the operators.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Returns the result of the GPU implementation of an operator if the stream is on a GPU.
macro_rules! on_gpu {
    ($kernels:expr, $name:ident($($argument:expr),*)) => {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &$kernels.gpu {
            return gpu.$name($($argument),*);
        }
    };
}
use on_gpu;

/// Whether `elements` is the size of a non-empty matrix of `rows` by `columns`; kernels count columns in
/// 32 bits.
fn are(elements: usize, rows: usize, columns: usize) -> bool {
    elements > 0 && rows.checked_mul(columns) == Some(elements) && u32::try_from(columns).is_ok()
}

/// Returns a `Config` error unless `fits`.
fn check(fits: bool, what: impl FnOnce() -> String) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::new(ErrorKind::Config, what())) }
}
