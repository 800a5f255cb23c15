//! Mirrored pictures.

use feedline_core::Random;

use super::{Needs, Transform};
use crate::Canvas;
use crate::device::Record;
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

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        if random.uniform() < self.probability {
            record.flip_left_right();
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

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        if random.uniform() < self.probability {
            record.flip_top_bottom();
        }
    }
}
