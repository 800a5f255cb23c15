//! Pictures turned by 0, 90, 180 or 270 degrees.

use feedline_core::Random;

use super::Transform;
use crate::turn::Turn;
use crate::{Canvas, Size};

/// Turns by a random number of quarters, all four as likely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarterTurn;

impl Transform for QuarterTurn {
    /// Of squares the size is known.
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size.filter(|size| size.height == size.width)
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        canvas.turn([Turn::None, Turn::Right, Turn::Half, Turn::Left][random.below(4) as usize]);
    }
}
