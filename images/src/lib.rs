//! Pictures as samples: decoding, and transforms whose random numbers belong to the sample.
#![forbid(unsafe_code)]

pub mod decode;
mod size;
mod turn;

pub use decode::{Decoder, Format, Limits, Picture};
pub use size::{Region, Size};
