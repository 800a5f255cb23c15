//! The kernels of a multi-layer perceptron, each as CUDA source and as host code.
//!
//! | part | what it is |
//! | --- | --- |
//! | `cu/` | one CUDA file an operator, without headers |
//! | [`host`] | the same operators over slices |
//! | [`source`] | the CUDA sources as this crate carries them: text, kernels, hash |
//! | `compile` | sources to PTX, by the NVRTC library |
//! | `cache` | compiled PTX on disk |
//! | `ptx` | cache, NVRTC, or the PTX this crate carries: whichever works first |
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "calls of cuBLASLt, see its head")]
mod blas;
#[cfg(feature = "cuda")]
pub mod cache;
#[cfg(feature = "cuda")]
pub mod compile;
pub mod host;
#[allow(unsafe_code, reason = "kernels take raw addresses, see its head")]
mod launch;
#[cfg(feature = "cuda")]
mod loaded;
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "calls of NVRTC, see its head")]
mod nvrtc;
pub mod ops;
#[cfg(feature = "cuda")]
pub mod ptx;
#[cfg(feature = "cuda")]
pub mod source;

#[cfg(feature = "cuda")]
pub use launch::spinner;
