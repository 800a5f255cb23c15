//! Tests of launches on streams: fences, training, cudarc's types.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
mod cuda;
mod fences;
mod training;
