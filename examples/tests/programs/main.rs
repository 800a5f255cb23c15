//! Tests of the small examples, as processes and as models.

mod branches;
#[cfg(feature = "nvjpeg")]
mod images;
mod own_kernel;
#[path = "../program/mod.rs"]
mod program;
mod replay;
mod small_examples;
mod soak;
mod tokens;
mod transposed;
