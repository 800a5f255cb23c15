//! Random crop.

use feedline_core::Random;

use super::{CenterCrop, Effect, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Region, Size};

/// Crops the picture at a random position. A smaller picture gets a black border, equal on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCrop {
    size: Size,
}

impl RandomCrop {
    /// A crop of `size`. For crops that reach beyond the picture, put a [`Pad`](super::Pad) before this
    /// transform.
    pub fn new(size: Size) -> Self {
        Self { size }
    }
}

impl Transform for RandomCrop {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

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
