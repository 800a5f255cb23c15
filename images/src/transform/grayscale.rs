//! Gray pictures.

use feedline_core::Random;

use super::{Transform, color};
use crate::Canvas;

/// Takes the colours away; all three channels get the gray level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grayscale {
    /// How likely it is, 0 to 1.
    pub probability: f64,
}

impl Transform for Grayscale {
    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        if random.uniform() < self.probability {
            for pixel in canvas.pixels_mut().as_chunks_mut::<3>().0 {
                *pixel = [color::gray(*pixel); 3];
            }
        }
    }
}
