//! Centre crop.

use feedline_core::Random;

use super::{Effect, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Region, Size};

/// Crops the centre of the picture. A smaller picture gets a black border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CenterCrop {
    size: Size,
}

impl CenterCrop {
    /// A crop of `size`.
    pub fn new(size: Size) -> Self {
        Self { size }
    }

    /// The border that enlarges a picture of `size` to the size of the crop: top, right, bottom, left.
    pub(super) fn missing(&self, size: Size) -> [usize; 4] {
        let down = self.size.height.saturating_sub(size.height);
        let across = self.size.width.saturating_sub(size.width);
        let (top, left) = (down / 2, across / 2);
        [top, across - left, down - top, left]
    }
}

impl Transform for CenterCrop {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn size(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }

    fn region(&self, size: Size, _: &mut Random) -> Region {
        let part = Size::new(self.size.height.min(size.height), self.size.width.min(size.width));
        // Half of an odd difference is rounded to even, as in torchvision.
        let half = |difference: usize| (difference as f64 / 2.0).round_ties_even() as usize;
        Region { top: half(size.height - part.height), left: half(size.width - part.width), size: part }
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        let sides = self.missing(canvas.size());
        if sides != [0; 4] {
            canvas.pad(sides, [0; 3]);
        }
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        let region = self.region(record.size(), random);
        record.crop(region);
        record.pad(self.missing(record.size()), [0; 3]);
    }
}
