//! Transforms of decoded pictures.
//!
//! Each draws its random numbers from the stream of the draw, [`Context::random`], in the order of the list.
//! So the number of workers or ranks, and a resume, do not change the pictures of an epoch, and a sample that
//! occurs several times in an epoch gets other numbers each time.
//!
//! | file | what |
//! | --- | --- |
//! | `resize.rs` | resizing to a size, or of the shorter side to a length |
//! | `random_resized_crop.rs`, `random_crop.rs`, `center_crop.rs`, `pad.rs` | crops and borders |
//! | `flip.rs`, `quarter_turn.rs` | flips and rotations by 90 degrees |
//! | `erase.rs` | random erasing |
//! | `color_jitter.rs`, `grayscale.rs`, `gaussian_blur.rs` | colours and blur |
//! | `color.rs` | colour operations that several transforms share |
//! | `augment/` | RandAugment, TrivialAugment and their operations |
//! | `output.rs` | the field: element type and channel order |
//! | `transforms.rs`, `applied.rs` | the list of transforms; its work on a sample |
//! | `placement.rs` | the part of the list that runs on the device |
//!
//! [`Context::random`]: feedline_core::Context::random

mod applied;
mod augment;
mod center_crop;
pub(crate) mod color;
mod color_jitter;
mod erase;
mod flip;
mod gaussian_blur;
mod grayscale;
mod output;
mod pad;
mod placement;
mod quarter_turn;
mod random_crop;
mod random_resized_crop;
mod resize;
mod transforms;

use std::fmt;

use feedline_core::Random;

pub use augment::{Operation, RandAugment, TrivialAugment};
pub use center_crop::CenterCrop;
pub use color_jitter::ColorJitter;
pub use erase::Erase;
pub use flip::{FlipLeftRight, FlipTopBottom};
pub use gaussian_blur::GaussianBlur;
pub use grayscale::Grayscale;
pub use output::{ChannelOrder, IMAGENET_MEAN, IMAGENET_STD, Mode};
pub use pad::Pad;
pub use quarter_turn::QuarterTurn;
pub use random_crop::RandomCrop;
pub use random_resized_crop::RandomResizedCrop;
pub use resize::{Filter, Resize};
pub use transforms::{Scratch, Transforms};

use crate::device::Record;
use crate::{Canvas, Region, Size};

/// The name of a transform, for errors: its `Debug` form without the values of its fields.
pub(crate) fn name_of(step: &dyn Transform) -> String {
    let form = format!("{step:?}");
    let end = form.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(form.len());
    form[..end].to_owned()
}

/// A transform of a picture.
///
/// [`region`](Self::region) returns the region of the picture that the transform needs, and
/// [`apply`](Self::apply) changes that region. So the first transform of a list decides which region is
/// decoded.
///
/// ```
/// use feedline_core::Random;
/// use feedline_images::{Canvas, Size, Transform, Transforms};
///
/// #[derive(Debug)]
/// struct Invert;
///
/// impl Transform for Invert {
///     fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
///         canvas.pixels_mut().iter_mut().for_each(|level| *level = 255 - *level);
///     }
/// }
/// let transforms = Transforms::new().center_crop(224).then(Invert);
/// assert_eq!(transforms.field("image")?.fields()[0].shape(), [224, 224, 3]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// The size of the result for a picture of `size`; `None` if it is not known in advance. Default: `size`.
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size
    }

    /// Draws the region that the transform needs of a picture of `size`. It must be within the picture and
    /// have at least one pixel. Default: the whole picture.
    fn region(&self, size: Size, _random: &mut Random) -> Region {
        Region::whole(size)
    }

    /// Whether the transform crops, flips, turns or shifts pictures at random. Then an image and its mask
    /// would not match if each drew its own numbers. Default: whether [`region`](Self::region) draws the
    /// region.
    fn has_random_geometry(&self) -> bool {
        let drawn = |key| self.region(Size::new(99_991, 100_003), &mut Random::from_key(key));
        (1..8).any(|key| drawn(key) != drawn(0))
    }

    /// The kind of change. A list for samples with masks or boxes refuses a transform of unknown effect,
    /// because masks and boxes could not follow it. Default: [`Effect::Unknown`].
    fn effect(&self) -> Effect {
        Effect::Unknown
    }

    /// The fixed size to which [`apply`](Self::apply) resizes the region; `None` if it does not resize. With
    /// [`Transforms::scaled_decode`], the region may then be decoded at reduced size. Default: `None`.
    fn scaled_to(&self) -> Option<Size> {
        None
    }

    /// Changes the picture. The picture is the region that [`region`](Self::region) returned.
    fn apply(&self, canvas: &mut Canvas, random: &mut Random);

    /// The work that the transform needs on the device; `None` if it runs on the host only. Default: `None`.
    fn on_device(&self) -> Option<Needs> {
        None
    }

    /// Draws the numbers that [`region`](Self::region) and [`apply`](Self::apply) would draw, and adds their
    /// changes to the record for the device.
    fn record(&self, _record: &mut Record, _random: &mut Random) {}
}

/// The kind of change that a transform makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It moves pixels, but only by its region and by the methods of [`Canvas`] that record moves.
    Moves,
    /// It changes colours, and leaves each pixel at its place.
    Colors,
    /// The transform does not state its effect.
    Unknown,
}

/// The work that a transform needs on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Moves pixels: crops, borders, flips, erasing.
    Copy,
    /// Computes pixels: resizing, colours, mixing of samples.
    Work,
    /// Computes pixels from the mean of the whole picture: contrast.
    Mean,
}
