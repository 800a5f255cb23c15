//! The operators as safe functions over slices. Devices without kernels run them, and the tests of the
//! kernels compare with them.
//!
//! Matrices are dense and row-major. The number of rows follows from the lengths of the slices;
//! mismatched lengths are a bug of the caller and panic. Large element-wise work and matrix products run
//! on the pool of this crate ([`pool`](crate::pool)). On a thread of another rayon pool, an operator runs on
//! that thread only.
//!
//! | function | kernel |
//! | --- | --- |
//! | [`cast`], [`cast_with_transpose`] | `cast.cu` |
//! | [`fill`] | `fill.cu` |
//! | [`bias_add`], [`bias_relu`] | fused into `gemm.cu` |
//! | [`relu_bias_backward`], [`relu_bias_backward_transposed`] | `backward.cu` |
//! | [`linear`], [`input_gradient`], [`weight_gradient`], [`weight_gradient_transposed`] | `gemm.cu` |
//! | [`softmax_xent`] | `softmax_xent.cu` |
//! | [`argmax_hits`] | `argmax.cu` |
//! | [`sgd`] | `sgd.cu` |
//! | [`adamw`] | `adamw.cu` |
//! | [`pattern`] | `pattern.cu` |

mod cast;
mod linear;
mod loss;
mod optimizer;
pub mod pattern;

pub use cast::{cast, cast_with_transpose, fill};
pub use linear::{
    bias_add, bias_relu, input_gradient, linear, relu_bias_backward, relu_bias_backward_transposed,
    weight_gradient, weight_gradient_transposed,
};
pub use loss::{Label, Outcome, argmax_hits, softmax_xent};
pub use optimizer::{AdamW, Sgd, adamw, sgd};
