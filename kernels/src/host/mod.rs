//! The operators as safe functions over slices: what a device without kernels runs, and what the kernels are tested against.
//!
//! Matrices are dense and row-major. The number of rows follows from the slices' lengths; lengths that do not agree are a
//! defect of the caller and panic. Large element-wise work and matrix products spread over the threads of a pool of this
//! crate's own, `kernel-N`, which starts at the first of them; called on a thread of another rayon pool they stay on it.
//!
//! | function | kernel |
//! | --- | --- |
//! | [`widen`], [`widen_both`] | `widen.cu` |
//! | [`fill`] | `fill.cu` |
//! | [`bias_add`], [`bias_relu`] | in the products' |
//! | [`relu_bias_backward`], [`relu_bias_backward_transposed`] | `backward.cu` |
//! | [`linear`], [`input_gradient`], [`weight_gradient`], [`weight_gradient_transposed`] | `gemm.cu` |
//! | [`softmax_xent`] | `softmax_xent.cu` |
//! | [`argmax_hits`] | `argmax.cu` |
//! | [`sgd`] | `sgd.cu` |
//! | [`adamw`] | `adamw.cu` |
//! | [`pattern`] | `pattern.cu` |

mod adamw;
mod argmax;
mod bias_relu;
mod fill;
mod gemm;
pub(crate) mod parallel;
pub mod pattern;
mod sgd;
mod softmax_xent;
mod widen;

pub use adamw::{AdamW, adamw};
pub use argmax::{Label, argmax_hits};
pub use bias_relu::{bias_add, bias_relu, relu_bias_backward, relu_bias_backward_transposed};
pub use fill::fill;
pub use gemm::{input_gradient, linear, weight_gradient, weight_gradient_transposed};
pub use sgd::{Sgd, sgd};
pub use softmax_xent::{Outcome, softmax_xent};
pub use widen::{widen, widen_both};
