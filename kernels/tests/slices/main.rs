//! The operators over slices: values, gradients, and threads.

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod gradients;
mod pools;
