//! Pictures as samples: decoding, and transforms whose random numbers belong to the sample.
//!
//! | part | what |
//! | --- | --- |
//! | [`decode`], [`Decoder`] | JPEG, PNG, WebP, BMP and GIF to RGB; limits; EXIF's orientation |
//! | [`transform`], [`Transforms`] | the list of what happens to a picture on its way to the batch |
//! | [`device`] | the part of a list that runs on a GPU, after the copy |
//! | [`Canvas`] | a picture while it is transformed |
//!
//! ```
//! use feedline_core::{Context, Dataset, ReadError, Row, Spec};
//! use feedline_images::{Scratch, Transforms};
//!
//! /// Pictures that are kept encoded in memory.
//! struct Pictures { encoded: Vec<Vec<u8>>, transforms: Transforms, spec: Spec }
//!
//! impl Dataset for Pictures {
//!     fn len(&self) -> u64 { self.encoded.len() as u64 }
//!     fn spec(&self) -> &Spec { &self.spec }
//!     fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
//!         let encoded = &self.encoded[id as usize];
//!         context.scoped_scratch(|scratch: &mut Scratch, context| {
//!             Ok(self.transforms.read(encoded, context.random(), scratch, row.bytes_mut(0))?)
//!         })
//!     }
//! }
//! let transforms = Transforms::new().random_resized_crop(224).flip(0.5);
//! let pictures = Pictures { encoded: Vec::new(), spec: transforms.field("image")?, transforms };
//! # Ok::<(), feedline_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod canvas;
pub mod decode;
pub mod device;
mod size;
pub mod transform;
mod turn;

pub use canvas::Canvas;
pub use decode::{Chroma, Decoder, Format, Limits, Picture, Reduction};
pub use device::DevicePart;
pub use size::{Region, Size};
pub use transform::{
    CenterCrop, ChannelOrder, ColorJitter, Erase, Filter, FlipLeftRight, FlipTopBottom, GaussianBlur,
    Grayscale, IMAGENET_MEAN, IMAGENET_STD, Needs, Operation, Pad, QuarterTurn, RandAugment, RandomCrop,
    RandomResizedCrop, Resize, Scratch, Transform, Transforms, TrivialAugment,
};
