//! The middle of the picture.

use feedline_core::Random;

use super::{Pad, Transform};
use crate::{Canvas, Region, Size};

/// Takes a rectangle of one size from the middle. What the picture is too small for is black.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CenterCrop {
    size: Size,
}

impl CenterCrop {
    /// Of this size.
    pub fn new(size: Size) -> Self {
        Self { size }
    }
}

impl Transform for CenterCrop {
    fn size(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }

    fn region(&self, size: Size, _: &mut Random) -> Region {
        let part = Size::new(self.size.height.min(size.height), self.size.width.min(size.width));
        // Half of an odd difference is rounded to the even number, as torchvision does.
        let half = |difference: usize| (difference as f64 / 2.0).round_ties_even() as usize;
        Region { top: half(size.height - part.height), left: half(size.width - part.width), size: part }
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let Size { height, width } = canvas.size();
        let (down, across) = (self.size.height.saturating_sub(height), self.size.width.saturating_sub(width));
        if down > 0 || across > 0 {
            let (top, left) = (down / 2, across / 2);
            Pad::new([top, across - left, down - top, left], [0; 3]).apply(canvas, random);
        }
    }
}
