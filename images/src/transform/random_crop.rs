//! A part of one size from a random place.

use feedline_core::Random;

use super::{CenterCrop, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Region, Size};

/// Takes a rectangle of one size from a random place. What the picture is too small for is black, on both
/// sides alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCrop {
    size: Size,
}

impl RandomCrop {
    /// Of this size. Put a [`Pad`](super::Pad) before it to let it reach beyond the picture.
    pub fn new(size: Size) -> Self {
        Self { size }
    }
}

impl Transform for RandomCrop {
    fn size(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }

    fn region(&self, size: Size, random: &mut Random) -> Region {
        let part = Size::new(self.size.height.min(size.height), self.size.width.min(size.width));
        let top = random.below((size.height - part.height + 1) as u64) as usize;
        let left = random.below((size.width - part.width + 1) as u64) as usize;
        Region { top, left, size: part }
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        CenterCrop::new(self.size).apply(canvas, random);
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        let region = self.region(record.size(), random);
        record.crop(region);
        record.pad(CenterCrop::new(self.size).missing(record.size()), [0; 3]);
    }
}
