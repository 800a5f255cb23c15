//! CUDA-only features of a device: kernel launches, and interoperability with cudarc's types.
//!
//! Each feature finds the backend with [`downcast_ref`](feedline_backend::Backend#method.downcast_ref), and
//! returns `None` or an error on other devices. The backend itself is the crate `feedline-cuda`.

mod arguments;
mod interop;
mod launch;

pub use arguments::CudaSliceRef;
pub use feedline_backend::{Grid, Launch};
pub use feedline_cuda::{Cuda, Function, Module, cudarc};
pub use launch::{Arg, launch};
