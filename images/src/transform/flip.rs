//! Mirrored pictures.

use feedline_core::Random;

use super::Transform;
use crate::Canvas;
use crate::turn::Turn;

/// Mirrors left and right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlipLeftRight {
    /// How likely it is, 0 to 1.
    pub probability: f64,
}

impl Transform for FlipLeftRight {
    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            canvas.turn(Turn::FlipLeftRight);
        }
    }
}

/// Mirrors top and bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlipTopBottom {
    /// How likely it is, 0 to 1.
    pub probability: f64,
}

impl Transform for FlipTopBottom {
    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            canvas.turn(Turn::FlipTopBottom);
        }
    }
}
