//! Encoded pictures as samples of a data set, and a single picture as a file (feature `images`).
//!
//! | file | what |
//! | --- | --- |
//! | `dataset.rs` | pictures and their labels |
//! | `joint.rs` | pictures with masks, boxes and points, which move together |
//! | `parts.rs` | which fields of a reader these are |
//! | `boxes.rs`, `numbers.rs` | boxes, points and what belongs to them, from the reader to the row |
//! | `paired.rs` | the files of two folders, by their names |
//! | `views.rs` | several random views of one decoded picture |
//! | `encoded.rs` | pictures that lanes of a loader decode: their lengths, and which can be decoded |
//! | `file.rs` | a file that is one picture |

mod boxes;
mod dataset;
mod encoded;
mod file;
mod joint;
mod numbers;
mod paired;
mod parts;
mod views;

pub use dataset::ImageDataset;
pub(crate) use file::ImageFile;
pub use joint::JointDataset;
pub use paired::Paired;
pub use parts::Parts;
pub use views::{Views, ViewsDataset};
