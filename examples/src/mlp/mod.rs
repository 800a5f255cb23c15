//! A multi-layer perceptron `inputs -> hidden -> hidden -> classes` with ReLU between, trained on u8 pixels.
//!
//! | part | file |
//! | --- | --- |
//! | sizes, and the place of each layer in one flat buffer | `shape.rs` |
//! | the first weights | `init.rs` |
//! | forward, backward and update | `model.rs` |

mod init;
mod model;
mod shape;

pub use init::Init;
pub use model::{Mlp, Optimizer, State};
pub use shape::{Layer, Shape};
