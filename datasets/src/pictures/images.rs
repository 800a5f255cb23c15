//! Encoded pictures as samples of a data set, and a single picture as a file (feature `images`).
//!
//! | file | what |
//! | --- | --- |
//! | `dataset.rs` | `Pictures`: one picture, its views, or its parts, and labels |
//! | `joint.rs` | masks, boxes and points, which move with their picture |
//! | `parts.rs` | which fields of a data set these are |
//! | `boxes.rs`, `numbers.rs` | boxes, points and what belongs to them, from the inner set to the row |
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

use feedline_images::Transforms;

pub use dataset::Pictures;
pub(crate) use file::ImageFile;
pub use paired::Paired;
pub use parts::Parts;
pub use views::Views;

/// What [`Pictures`] makes of a picture.
#[derive(Clone, Debug)]
pub enum Form {
    /// One picture.
    One(Box<Transforms>),
    /// Several views.
    Views(Views),
    /// The picture and the parts that move with it.
    Parts(Box<Parts>, Box<Transforms>),
}

impl Form {
    /// The list of transforms of each picture that is made of one.
    pub fn lists(&self) -> &[Transforms] {
        match self {
            Self::Views(views) => views.lists(),
            Self::One(list) | Self::Parts(_, list) => std::slice::from_ref(&**list),
        }
    }
}

impl From<Transforms> for Form {
    fn from(transforms: Transforms) -> Self {
        Self::One(Box::new(transforms))
    }
}

impl From<Views> for Form {
    fn from(views: Views) -> Self {
        Self::Views(views)
    }
}
