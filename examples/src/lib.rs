//! Code that the examples and the benchmarks share.
#![forbid(unsafe_code)]

pub mod branches;
pub mod overlap;
pub mod program;

/// Compiles the programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
