//! Conversion to gray.

use feedline_core::Random;

use super::{Effect, Needs, Transform, color};
use crate::Canvas;
use crate::device::{Color, Record};

/// Converts to gray: all three channels get the gray level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grayscale {
    /// Probability, 0 to 1.
    pub probability: f64,
}

impl Transform for Grayscale {
    fn effect(&self) -> Effect {
        Effect::Colors
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            for pixel in canvas.pixels_mut().as_chunks_mut::<3>().0 {
                *pixel = [color::gray(*pixel); 3];
            }
        }
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Work)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        if random.uniform() < self.probability {
            record.color(Color::Gray, 0.0);
        }
    }
}
