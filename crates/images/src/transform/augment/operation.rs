//! The operations of RandAugment and TrivialAugment.

use crate::transform::color;
use crate::{Canvas, Size};

/// An operation; [`apply`](Self::apply) takes its magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Nothing.
    Identity,
    /// Shifts each row by its number times `magnitude` pixels.
    ShearX,
    /// Shifts each column by its number times `magnitude` pixels.
    ShearY,
    /// Moves left by `magnitude` pixels, rounded towards zero.
    TranslateX,
    /// Moves up by `magnitude` pixels, rounded towards zero.
    TranslateY,
    /// Rotates counter-clockwise by `magnitude` degrees.
    Rotate,
    /// Multiplies brightness by `1 + magnitude`.
    Brightness,
    /// Multiplies saturation by `1 + magnitude`.
    Color,
    /// Multiplies contrast by `1 + magnitude`.
    Contrast,
    /// Multiplies sharpness by `1 + magnitude`.
    Sharpness,
    /// Keeps the highest `magnitude` bits of each level, rounded to whole bits.
    Posterize,
    /// Inverts levels of `magnitude` and more.
    Solarize,
    /// Stretches the levels of each channel to the full range.
    AutoContrast,
    /// Equalises the histogram of each channel.
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

    /// Whether a negative magnitude means the opposite direction.
    pub fn is_signed(self) -> bool {
        use Operation::*;
        !matches!(self, Identity | Posterize | Solarize | AutoContrast | Equalize)
    }

    /// Applies the operation to the picture.
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

/// Shears, moves or rotates a picture. A pixel of the result is the nearest pixel of the source at `x = a x +
/// b y + c`, `y = d x + e y + f`. It is black if that is outside of the source.
#[derive(Clone, Copy, Debug)]
struct Affine {
    x: [f64; 3],
    y: [f64; 3],
}

impl Affine {
    /// A rotation about the centre, counter-clockwise.
    fn rotation(degrees: f64, size: Size) -> Self {
        let angle = degrees.to_radians();
        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
        let (cx, cy) = (size.width as f64 / 2.0, size.height as f64 / 2.0);
        Self { x: [cos, -sin, cx - cos * cx + sin * cy], y: [sin, cos, cy - sin * cx - cos * cy] }
    }

    fn apply(self, canvas: &mut Canvas) {
        canvas.replace(canvas.size(), |size, from, to| {
            let pixels = from.as_chunks::<3>().0;
            let (width, height) = (size.width as f64, size.height as f64);
            for (y, line) in to.chunks_exact_mut((3 * size.width).max(1)).enumerate() {
                let y = y as f64 + 0.5;
                for (x, place) in line.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    let at = |[a, b, c]: [f64; 3]| a * (x as f64 + 0.5) + b * y + c;
                    let (x, y) = (at(self.x), at(self.y));
                    let inside = x >= 0.0 && y >= 0.0 && x < width && y < height;
                    *place = if inside { pixels[y as usize * size.width + x as usize] } else { [0; 3] };
                }
            }
        });
    }
}

/// Moves levels away from the smoothed picture (factors above 1) or towards it. Border pixels do not change.
fn sharpness(canvas: &mut Canvas, factor: f32) {
    canvas.replace(canvas.size(), |size, from, to| {
        to.copy_from_slice(from);
        let Size { height, width } = size;
        for y in 1..height.saturating_sub(1) {
            for at in 3 * (y * width + 1)..(3 * (y * width + width)).saturating_sub(3) {
                let row = |at: usize| u32::from(from[at - 3]) + u32::from(from[at]) + u32::from(from[at + 3]);
                let near = row(at - 3 * width) + row(at) + row(at + 3 * width);
                // The centre has weight 5 of 13.
                let smooth = (near + 4 * u32::from(from[at])) as f32 / 13.0 + 0.5;
                to[at] = color::blend(smooth as u8, from[at], factor);
            }
        }
    });
}

/// Maps the levels of each channel by the table that `table` makes from their histogram.
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
