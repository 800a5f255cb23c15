//! What a device has on CUDA alone: kernel launches, and cudarc's own types in and out.
//!
//! Each finds the backend by [`downcast_ref`](feedline_backend::Backend#method.downcast_ref), and answers `None` or an error
//! on other devices. The backend is a crate of its own, `feedline-cuda`.

mod interop;
mod launch;

pub use feedline_backend::{Grid, Launch};
pub use feedline_cuda::{Cuda, Function, Module, cudarc};
pub use launch::Arg;
