//! CUDA-only features of a device: kernel launches, and interoperability with cudarc's types.
//!
//! Each feature finds the backend with [`downcast_ref`](crate::backend::Backend#method.downcast_ref), and
//! returns `None` or an error on other devices. The backend itself is in `driver/`.

mod arguments;
pub(crate) mod driver;
mod interop;
mod launch;

pub use crate::backend::{Grid, Launch};
pub use arguments::CudaSliceRef;
pub use cudarc;
pub use driver::{Cuda, Function, GATHER_PTX, GATHER_SOURCE, Module};
pub use launch::{Arg, launch};
