//! Tests of tensors over slots.

#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
mod cuda;
mod lifetimes;
mod python;
