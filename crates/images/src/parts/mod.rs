//! The other parts of a sample, which move with its picture: masks, depth, boxes and points.
//!
//! A [`Canvas`](crate::Canvas) records how its transforms moved the picture. The same [`Moves`] are then
//! applied to each other part, so that all of them come from one draw.
//!
//! | file | what |
//! | --- | --- |
//! | `moves.rs` | the moves of a picture |
//! | `plane.rs` | pictures of one channel: masks, depth |
//! | `boxes.rs` | boxes and their formats |
//! | `points.rs` | points |

mod boxes;
mod moves;
mod plane;
mod points;

pub use boxes::{BoxFormat, BoxRules, Corners};
pub use moves::{MOVE_WORDS, Move, Moves, Turn};
pub use plane::{Level, Plane, Sampling};
