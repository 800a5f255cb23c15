//! Random brightness, contrast, saturation and hue.

use feedline_core::Random;

use super::{Transform, color};
use crate::Canvas;

/// Changes brightness, contrast, saturation and hue by random amounts, in random order.
///
/// The first three get a factor in `[1 - x, 1 + x]`, at least 0; hue is turned by up to `x` of its circle in
/// either direction. A part that is 0 is left out, and draws no number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// 0 or more.
    pub brightness: f64,
    /// 0 or more.
    pub contrast: f64,
    /// 0 or more.
    pub saturation: f64,
    /// 0 to 0.5.
    pub hue: f64,
}

impl Transform for ColorJitter {
    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let mut order = [0, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let pixels = canvas.pixels_mut();
        let mut factor = |most: f64| random.range((1.0 - most).max(0.0), 1.0 + most) as f32;
        for part in order {
            match part {
                0 if self.brightness > 0.0 => color::brightness(pixels, factor(self.brightness)),
                1 if self.contrast > 0.0 => color::contrast(pixels, factor(self.contrast)),
                2 if self.saturation > 0.0 => color::saturation(pixels, factor(self.saturation)),
                3 if self.hue > 0.0 => color::hue(pixels, factor(self.hue) - 1.0),
                _ => {}
            }
        }
    }
}
