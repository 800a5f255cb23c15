//! The operations that augmentations choose from.

use super::affine::Affine;
use crate::transform::color;
use crate::{Canvas, Size};

/// One operation; its magnitude is given when it is [applied](Self::apply).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Nothing.
    Identity,
    /// Rows are moved in proportion to their number: by `magnitude` pixels per row.
    ShearX,
    /// Columns, by `magnitude` pixels per column.
    ShearY,
    /// Moved to the left by `magnitude` pixels, towards zero.
    TranslateX,
    /// Moved up by `magnitude` pixels, towards zero.
    TranslateY,
    /// Turned counter-clockwise by `magnitude` degrees.
    Rotate,
    /// Brightness times `1 + magnitude`.
    Brightness,
    /// Saturation times `1 + magnitude`.
    Color,
    /// Contrast times `1 + magnitude`.
    Contrast,
    /// Sharpness times `1 + magnitude`.
    Sharpness,
    /// `magnitude` bits are kept of each level, rounded.
    Posterize,
    /// Levels of `magnitude` and more are inverted.
    Solarize,
    /// Levels of each channel are stretched to the whole range.
    AutoContrast,
    /// Levels of each channel are made about as frequent.
    Equalize,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];

    /// Whether a magnitude below zero means the same in the other direction.
    pub fn is_signed(self) -> bool {
        use Operation::*;
        !matches!(self, Identity | Posterize | Solarize | AutoContrast | Equalize)
    }

    /// Changes the picture.
    pub fn apply(self, canvas: &mut Canvas, magnitude: f64) {
        let same = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let affine = |x: [f64; 3], y: [f64; 3]| Affine { x, y };
        let factor = (1.0 + magnitude) as f32;
        match self {
            Self::Identity => {}
            Self::ShearX => affine([1.0, magnitude, 0.0], same[1]).apply(canvas),
            Self::ShearY => affine(same[0], [magnitude, 1.0, 0.0]).apply(canvas),
            Self::TranslateX => affine([1.0, 0.0, magnitude.trunc()], same[1]).apply(canvas),
            Self::TranslateY => affine(same[0], [0.0, 1.0, magnitude.trunc()]).apply(canvas),
            Self::Rotate => Affine::rotation(magnitude, canvas.size()).apply(canvas),
            Self::Brightness => color::brightness(canvas.pixels_mut(), factor),
            Self::Color => color::saturation(canvas.pixels_mut(), factor),
            Self::Contrast => color::contrast(canvas.pixels_mut(), factor),
            Self::Sharpness => sharpness(canvas, factor),
            Self::Posterize => {
                let bits = magnitude.round().clamp(0.0, 8.0) as u32;
                let mask = (0xFF00 >> bits) as u8;
                canvas.pixels_mut().iter_mut().for_each(|level| *level &= mask);
            }
            Self::Solarize => {
                let inverted = |level: u8| if f64::from(level) < magnitude { level } else { 255 - level };
                canvas.pixels_mut().iter_mut().for_each(|level| *level = inverted(*level));
            }
            Self::AutoContrast => by_channel(canvas, stretched),
            Self::Equalize => by_channel(canvas, equalized),
        }
    }
}

/// Away from the smoothed picture (factors above 1), or towards it. The outermost pixels stay.
fn sharpness(canvas: &mut Canvas, factor: f32) {
    canvas.replace(canvas.size(), |size, from, to| {
        to.copy_from_slice(from);
        let Size { height, width } = size;
        for y in 1..height.saturating_sub(1) {
            for at in 3 * (y * width + 1)..(3 * (y * width + width)).saturating_sub(3) {
                let row = |at: usize| u32::from(from[at - 3]) + u32::from(from[at]) + u32::from(from[at + 3]);
                let near = row(at - 3 * width) + row(at) + row(at + 3 * width);
                // The middle counts five times; rounded.
                let smooth = (near + 4 * u32::from(from[at])) as f32 / 13.0 + 0.5;
                to[at] = color::blend(smooth as u8, from[at], factor);
            }
        }
    });
}

/// Replaces the levels of each channel by what `table` makes of how frequent they are.
fn by_channel(canvas: &mut Canvas, table: fn(&[u32; 256]) -> Option<[u8; 256]>) {
    let pixels = canvas.pixels_mut().as_chunks_mut::<3>().0;
    for channel in 0..3 {
        let mut counts = [0; 256];
        pixels.iter().for_each(|pixel| counts[usize::from(pixel[channel])] += 1);
        if let Some(table) = table(&counts) {
            pixels.iter_mut().for_each(|pixel| pixel[channel] = table[usize::from(pixel[channel])]);
        }
    }
}

fn stretched(counts: &[u32; 256]) -> Option<[u8; 256]> {
    let low = counts.iter().position(|&count| count > 0)?;
    let high = counts.iter().rposition(|&count| count > 0)?;
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    (high > low).then(|| std::array::from_fn(|level| (level as f64 * scale + offset) as u8))
}

fn equalized(counts: &[u32; 256]) -> Option<[u8; 256]> {
    let last = counts.iter().rfind(|&&count| count > 0)?;
    let step = (counts.iter().sum::<u32>() - last) / 255;
    let mut before = step / 2;
    (step > 0).then(|| {
        counts.map(|count| {
            let level = (before / step).min(255) as u8;
            before += count;
            level
        })
    })
}
