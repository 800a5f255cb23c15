//! Random brightness, contrast, saturation and hue.

use feedline_core::Random;

use super::{Effect, Needs, Transform, color};
use crate::Canvas;
use crate::device::{Color, Record};

/// Changes brightness, contrast, saturation and hue by random amounts, in random order.
///
/// Each of the first three is multiplied by a factor in `[1 - x, 1 + x]`, at least 0. The hue is rotated by
/// up to `x` turns in either direction. A value of 0 skips the change, which then draws no number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// Brightness, 0 or more.
    pub brightness: f64,
    /// Contrast, 0 or more.
    pub contrast: f64,
    /// Saturation, 0 or more.
    pub saturation: f64,
    /// Hue, 0 to 0.5.
    pub hue: f64,
}

impl ColorJitter {
    /// Draws the changes, and calls `change` with each, in random order.
    fn draw(&self, random: &mut Random, mut change: impl FnMut(Color, f32)) {
        let mut order = [0, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let mut factor = |max: f64| random.range((1.0 - max).max(0.0), 1.0 + max) as f32;
        for part in order {
            match part {
                0 if self.brightness > 0.0 => change(Color::Brightness, factor(self.brightness)),
                1 if self.contrast > 0.0 => change(Color::Contrast, factor(self.contrast)),
                2 if self.saturation > 0.0 => change(Color::Saturation, factor(self.saturation)),
                3 if self.hue > 0.0 => change(Color::Hue, factor(self.hue) - 1.0),
                _ => {}
            }
        }
    }
}

impl Transform for ColorJitter {
    fn effect(&self) -> Effect {
        Effect::Colors
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let pixels = canvas.pixels_mut();
        self.draw(random, |change, factor| match change {
            Color::Brightness => color::brightness(pixels, factor),
            Color::Contrast => color::contrast(pixels, factor),
            Color::Saturation => color::saturation(pixels, factor),
            Color::Hue => color::hue(pixels, factor),
            Color::Gray => {}
        });
    }

    fn on_device(&self) -> Option<Needs> {
        Some(if self.contrast > 0.0 { Needs::Mean } else { Needs::Work })
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        self.draw(random, |change, factor| record.color(change, factor));
    }
}
