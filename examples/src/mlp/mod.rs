//! A multi-layer perceptron `inputs -> hidden -> hidden -> classes` with ReLU between, trained on u8 pixels.
//!
//! | part | file |
//! | --- | --- |
//! | sizes, and the place of each layer in one flat buffer | `shape.rs` |
//! | the first weights | `init.rs` |
//! | forward, backward and update | `model.rs` |
//! | the file of a checkpoint | `sealed.rs` |

mod init;
mod model;
pub mod sealed;
mod shape;

pub use init::Init;
pub use model::{Mlp, Optimizer, State};
pub use shape::{Layer, Shape};
