//! The operators as safe functions over slices. Devices without kernels run them, and the kernels are
//! tested against them.
//!
//! Matrices are dense and row-major. The number of rows follows from the lengths of the slices;
//! mismatched lengths are a bug of the caller and panic. Large element-wise work and matrix products run
//! on this crate's own thread pool (`kernel-N`), which starts at first use. Called on a thread of another
//! rayon pool, an operator runs on that thread only.
//!
//! | function | kernel |
//! | --- | --- |
//! | [`cast`], [`cast_with_transpose`] | `widen.cu` |
//! | [`fill`] | `fill.cu` |
//! | [`bias_add`], [`bias_relu`] | fused into `gemm.cu` |
//! | [`relu_bias_backward`], [`relu_bias_backward_transposed`] | `backward.cu` |
//! | [`linear`], [`input_gradient`], [`weight_gradient`], [`weight_gradient_transposed`] | `gemm.cu` |
//! | [`softmax_xent`] | `softmax_xent.cu` |
//! | [`argmax_hits`] | `argmax.cu` |
//! | [`sgd`] | `sgd.cu` |
//! | [`adamw`] | `adamw.cu` |
//! | `augment` (feature `images`) | `augment.cu` |
//! | [`pattern`] | `pattern.cu` |

mod adamw;
mod argmax;
#[cfg(feature = "images")]
mod augment;
mod bias_relu;
mod cast;
mod fill;
mod gemm;
pub(crate) mod parallel;
pub mod pattern;
mod sgd;
mod softmax_xent;

pub use adamw::{AdamW, adamw};
pub use argmax::{Label, argmax_hits};
#[cfg(feature = "images")]
pub use augment::augment;
pub use bias_relu::{bias_add, bias_relu, relu_bias_backward, relu_bias_backward_transposed};
pub use cast::{cast, cast_with_transpose};
pub use fill::fill;
pub use gemm::{input_gradient, linear, weight_gradient, weight_gradient_transposed};
pub use sgd::{Sgd, sgd};
pub use softmax_xent::{Outcome, softmax_xent};
