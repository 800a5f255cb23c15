//! Rotation by multiples of 90 degrees.

use feedline_core::Random;

use super::{Effect, Transform};
use crate::orientation::Orientation;
use crate::{Canvas, Size};

/// Rotates by 0, 90, 180 or 270 degrees, each with the same probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarterTurn;

impl Transform for QuarterTurn {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    /// Only squares keep their size.
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size.filter(|size| size.height == size.width)
    }

    fn has_random_geometry(&self) -> bool {
        true
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let quarters =
            [Orientation::Upright, Orientation::Rotate90, Orientation::Rotate180, Orientation::Rotate270];
        canvas.reorient(quarters[random.below(4) as usize]);
    }
}
