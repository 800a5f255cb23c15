//! Flips.

use feedline_core::Random;

use super::{Effect, Needs, Transform};
use crate::Canvas;
use crate::device::Record;
use crate::orientation::Orientation;

/// Flips left and right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlipLeftRight {
    /// Probability, 0 to 1.
    pub probability: f64,
}

impl Transform for FlipLeftRight {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            canvas.reorient(Orientation::FlipLeftRight);
        }
    }

    fn has_random_geometry(&self) -> bool {
        is_drawn(self.probability)
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

/// Flips top and bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlipTopBottom {
    /// Probability, 0 to 1.
    pub probability: f64,
}

impl Transform for FlipTopBottom {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            canvas.reorient(Orientation::FlipTopBottom);
        }
    }

    fn has_random_geometry(&self) -> bool {
        is_drawn(self.probability)
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

/// Whether the flip is random: some pictures are flipped and others are not.
fn is_drawn(probability: f64) -> bool {
    0.0 < probability && probability < 1.0
}
