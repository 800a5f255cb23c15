//! The model that the trainer and the benchmarks share.
#![forbid(unsafe_code)]

pub mod mlp;

/// The programs in the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
