//! Compiles CUDA C++ with NVRTC at run time, keeps the PTX in a cache on disk, and loads it.
//!
//! | file | contents |
//! | --- | --- |
//! | `program.rs` | [`Program`]: sources, kernels, embedded PTX |
//! | `compiler.rs` | [`Compiler`]: CUDA C++ to PTX, by NVRTC |
//! | `nvrtc.rs` | calls of NVRTC that cudarc does not wrap |
//! | `cache.rs` | [`Cache`]: compiled PTX on disk |
//! | `load.rs` | [`LoadedProgram`]: PTX from the cache, NVRTC or the program, loaded on a GPU |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod cache;
mod compiler;
mod load;
#[allow(unsafe_code, reason = "calls NVRTC")]
mod nvrtc;
mod program;

pub use cache::{CACHE_VARIABLE, Cache};
pub use compiler::{Arch, Compiler, Log, OPTIONS, Version};
pub use load::{Accepted, EMBEDDED_ARCH, LoadedProgram, Origin, embedded, header, load};
pub use program::{Kernel, Program, Source, entries, hash};
