//! The operators of a multi-layer perceptron, as CUDA kernels and as host code.
//!
//! | part | contents |
//! | --- | --- |
//! | `cu/` | one CUDA file per operator, without headers |
//! | [`host`] | the same operators over slices |
//! | [`ops`] | the operators on views of a stream, on any device |
//! | [`source`] | the embedded CUDA sources: text, kernels, hash |
//! | `compile` | compiles sources to PTX with NVRTC |
//! | `cache` | compiled PTX on disk |
//! | `ptx` | finds PTX: from the cache, NVRTC or this crate |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "calls cuBLASLt")]
mod blas;
#[cfg(feature = "cuda")]
pub mod cache;
#[cfg(feature = "cuda")]
pub mod compile;
pub mod host;
#[allow(unsafe_code, reason = "kernels take raw addresses")]
mod launch;
#[cfg(feature = "cuda")]
mod loaded;
#[cfg(feature = "nvjpeg")]
#[allow(unsafe_code, reason = "calls nvJPEG")]
mod nvjpeg;
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "calls NVRTC")]
mod nvrtc;
pub mod ops;
#[cfg(feature = "cuda")]
pub mod ptx;
#[cfg(feature = "cuda")]
pub mod source;

#[cfg(feature = "cuda")]
pub use launch::spinner;
