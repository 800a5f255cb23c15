//! Transforms: what happens to a picture between its file and the batch.
//!
//! Each draws its random numbers from the sample's own stream, [`Context::random`], in the order of the list:
//! a sample of an epoch is the same picture whatever the workers, the ranks, or the resume.
//!
//! | file | what |
//! | --- | --- |
//! | `resize.rs` | to a size, or the shorter side to a length |
//! | `random_resized_crop.rs`, `random_crop.rs`, `center_crop.rs`, `pad.rs` | which part is seen |
//! | `flip.rs`, `quarter_turn.rs` | mirrored, turned |
//! | `erase.rs` | a part of one colour |
//! | `color_jitter.rs`, `grayscale.rs`, `gaussian_blur.rs` | colours, sharpness |
//! | `augment/` | RandAugment and TrivialAugment, and the operations they choose from |
//! | `output.rs` | normalised or not, channels last or first |
//! | `list.rs`, `placement.rs` | the list that users write; which part of it runs on a device |
//!
//! [`Context::random`]: feedline_core::Context::random

mod augment;
mod center_crop;
pub(crate) mod color;
mod color_jitter;
mod erase;
mod flip;
mod gaussian_blur;
mod grayscale;
mod list;
mod output;
mod pad;
mod placement;
mod quarter_turn;
mod random_crop;
mod random_resized_crop;
mod resize;

use std::fmt;

use feedline_core::Random;

pub use augment::{Operation, RandAugment, TrivialAugment};
pub use center_crop::CenterCrop;
pub use color_jitter::ColorJitter;
pub use erase::Erase;
pub use flip::{FlipLeftRight, FlipTopBottom};
pub use gaussian_blur::GaussianBlur;
pub use grayscale::Grayscale;
pub use list::{Scratch, Transforms};
pub use output::{ChannelOrder, IMAGENET_MEAN, IMAGENET_STD};
pub use pad::Pad;
pub use quarter_turn::QuarterTurn;
pub use random_crop::RandomCrop;
pub use random_resized_crop::RandomResizedCrop;
pub use resize::{Filter, Resize};

use crate::device::Record;
use crate::{Canvas, Region, Size};

/// A change of a picture.
///
/// It happens in two steps: [`region`](Self::region) says which part of the picture it needs, then
/// [`apply`](Self::apply) changes that part. So the first transform of a list decides what is decoded at all.
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
    /// The size of what it makes of a picture of size `size`, `None` where that is not known beforehand. The
    /// default keeps the size.
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size
    }

    /// The part of a picture of size `size` that is needed; draws its place. It must lie within the picture
    /// and have at least one pixel. The default is all of it.
    fn region(&self, size: Size, _random: &mut Random) -> Region {
        Region::whole(size)
    }

    /// The size that [`apply`](Self::apply) scales the part to, whatever size the part has; `None` if it does
    /// not, which is the default. With [`Transforms::scaled_decode`] the part may be reduced before.
    fn scaled_to(&self) -> Option<Size> {
        None
    }

    /// Changes the picture, which is the part that [`region`](Self::region) asked for.
    fn apply(&self, canvas: &mut Canvas, random: &mut Random);

    /// What it needs of the device, `None` if it runs on the host only, which is the default.
    fn on_device(&self) -> Option<Needs> {
        None
    }

    /// For the device: draws the numbers that [`region`](Self::region) and [`apply`](Self::apply) would draw,
    /// and says in `record` what they would do.
    fn record(&self, _record: &mut Record, _random: &mut Random) {}
}

/// What a transform needs of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Pixels at other places: crops, borders, flips, erasing.
    Copy,
    /// New pixels: scaling, colours, mixing of samples.
    Work,
    /// The mean of the whole picture before any pixel is finished: contrast.
    Mean,
}
