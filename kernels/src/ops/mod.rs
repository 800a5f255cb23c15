//! The operators on views of a stream: one call that runs a kernel on a GPU and host code elsewhere.
//!
//! Calls do not block the host or allocate device memory; they queue work on the stream of the [`Kernels`].
//!
//! | operators | file |
//! | --- | --- |
//! | cast, fill | `cast.rs` |
//! | products of a linear layer | `linear.rs` |
//! | backward pass of a layer and the ReLU before it | `backward.rs` |
//! | loss, accuracy | `loss.rs` |
//! | last layer with its loss | `classifier.rs` |
//! | optimizers | `optimizer.rs` |
//! | delays and self-describing bytes, for tests | `probe.rs` |
//! | kernels and scratch memory of a GPU | `gpu.rs` |

mod backward;
mod cast;
mod classifier;
#[cfg(feature = "cuda")]
mod gpu;
mod linear;
mod loss;
mod optimizer;
mod probe;

use std::fmt::Debug;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{BackendKind, Stream};

use crate::pool;

pub use crate::gemm::Linear;
pub use crate::host::{AdamW, Sgd};
pub use classifier::ClassifierGradients;

/// The operators of one stream.
///
/// ```
/// use feedline_device::{Buffer, Device};
/// use feedline_kernels::ops::Kernels;
/// let stream = Device::new_host().stream()?;
/// let kernels = Kernels::new(&stream)?;
/// let mut pixels = Buffer::<u8>::new(&stream, 3)?;
/// pixels.write(&[0, 51, 255])?;
/// let mut wide = Buffer::<f32>::new(&stream, 3)?;
/// kernels.cast(pixels.view(), 0.5, wide.view_mut())?;
/// assert_eq!(wide.read()?, [0.0, 25.5, 127.5]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Kernels {
    stream: Stream,
    options: KernelOptions,
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::Gpu>,
}

/// Options of the operators. Without a GPU only `transposed` has an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelOptions {
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
        Self::with(stream, KernelOptions::default())
    }

    /// Creates the operators of `stream` with `options`.
    ///
    /// # Errors
    /// A device failure; `Unavailable` if the threads of the host operators cannot start.
    pub fn with(stream: &Stream, options: KernelOptions) -> Result<Self> {
        if stream.device().kind() != BackendKind::Cuda {
            pool::start()?;
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

/// The number of elements of a matrix of `rows` by `columns`; `None` for an empty matrix, or one that is too
/// large: kernels count columns in 32 bits.
fn matrix(rows: usize, columns: usize) -> Option<usize> {
    rows.checked_mul(columns).filter(|&elements| elements > 0 && u32::try_from(columns).is_ok())
}

/// Checks the arguments of `operator`: the name of each, its length, and the length that `sizes` require.
///
/// # Errors
/// `Config` that names the first argument of another length.
fn check_lengths<const N: usize>(
    operator: &str,
    sizes: impl Debug,
    arguments: [(&str, usize, Option<usize>); N],
) -> Result<()> {
    let Some((name, length, required)) =
        arguments.into_iter().find(|(_, length, required)| Some(*length) != *required)
    else {
        return Ok(());
    };
    let required = match required {
        Some(required) => required.to_string(),
        None => "one or more, in fewer than 2^32 columns".to_owned(),
    };
    let why = format!("{operator}: `{name}` has {length} elements; {sizes:?} requires {required}");
    Err(Error::new(ErrorKind::Config, why))
}

/// Returns a `Config` error unless `fits`.
fn check(fits: bool, what: impl FnOnce() -> String) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::new(ErrorKind::Config, what())) }
}
