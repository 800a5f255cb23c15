//! A multi-layer perceptron `inputs -> hidden -> hidden -> classes` with ReLU between, trained on u8 pixels.
//!
//! | part | file |
//! | --- | --- |
//! | sizes, and the offsets of each layer in one flat buffer | `shape.rs` |
//! | the initial weights | `init.rs` |
//! | forward, backward and update | `model.rs`, `backward.rs` |
//! | gradients averaged over several ranks | `average.rs` |
//! | the file of a checkpoint | `sealed.rs` |
#![forbid(unsafe_code)]

mod average;
mod backward;
mod init;
mod model;
pub mod sealed;
mod shape;

pub use average::Average;
pub use init::Init;
pub use model::{Mlp, Optimizer, State};
pub use shape::{Layer, Shape};
