//! Pictures as samples: a decoder, and transforms that draw random numbers per sample.
//!
//! | part | what |
//! | --- | --- |
//! | [`decode`], [`Decoder`] | JPEG, PNG, WebP, BMP and GIF to RGB; limits; EXIF's orientation |
//! | [`transform`], [`Transforms`] | the list of transforms from a decoded picture to a row of the batch |
//! | [`device`] | the transforms that run on a GPU, after the copy |
//! | [`Canvas`] | the pixels that transforms change |
//! | [`Moves`], [`Plane`], [`BoxFormat`] | masks, boxes and points, which move with their picture |
//!
//! ```
//! use feedline_core::{Context, Dataset, ReadError, Row, Spec};
//! use feedline_images::{Scratch, Transforms};
//!
//! /// Encoded pictures in memory.
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
mod orientation;
mod parts;
mod size;
pub mod transform;

pub use canvas::Canvas;
pub use decode::{Chroma, Decoder, Format, Limits, Picture, Reduction};
pub use device::DevicePart;
pub use parts::{BoxFormat, BoxRules, Corners, Level, MOVE_WORDS, Move, Moves, Plane, Sampling, Turn};
pub use size::{Region, Size};
pub use transform::{
    CenterCrop, ChannelOrder, ColorJitter, Effect, Erase, Filter, FlipLeftRight, FlipTopBottom, GaussianBlur,
    Grayscale, IMAGENET_MEAN, IMAGENET_STD, Mode, Needs, Operation, Pad, QuarterTurn, RandAugment,
    RandomCrop, RandomResizedCrop, Resize, Scratch, Transform, Transforms, TrivialAugment,
};
