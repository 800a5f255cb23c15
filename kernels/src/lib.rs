//! The operators of a multi-layer perceptron, as CUDA kernels and as host code.
//!
//! | part | contents |
//! | --- | --- |
//! | [`ops`] | the operators on views of a stream, on any device |
//! | [`host`] | the same operators over slices |
//! | `gemm` | matrix products: cuBLASLt, own kernels, the `matrixmultiply` crate |
//! | `programs` | the CUDA programs: files of `cu/`, and their kernels |
//! | `launch` | kernel launches |
//! | [`pool`] | the thread pool of host operators |
//!
//! The crate `feedline-kernel-compiler` compiles, caches and loads the programs; `feedline-pictures` decodes
//! and transforms pictures on the device.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod gemm;
pub mod host;
#[allow(unsafe_code, reason = "kernels take raw addresses")]
mod launch;
pub mod ops;
pub mod pool;
#[cfg(feature = "cuda")]
pub mod programs;

#[cfg(feature = "cuda")]
pub use launch::spinner;
