//! Gaussian blur.

use feedline_core::Random;

use super::{Effect, Transform};
use crate::{Canvas, Size};

/// Max radius: a kernel of 33 pixels.
const MAX_RADIUS: usize = 16;

/// Fractional bits of a weight. With 15 bits, a sum over both directions fits 32 bits.
const POINT: u32 = 15;

/// Blurs with a Gaussian kernel of random width; borders are mirrored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianBlur {
    /// Radius of the kernel, up to 16. The kernel has `2 * radius + 1` pixels.
    pub radius: usize,
    /// Range of the standard deviation, in pixels, above 0.
    pub sigma: (f64, f64),
}

impl GaussianBlur {
    /// The weights from the centre outwards. The weights of the whole kernel sum to one.
    fn weights(&self, sigma: f64) -> [u32; MAX_RADIUS + 1] {
        let radius = self.radius.min(MAX_RADIUS);
        let weight = |distance: usize| match distance {
            0 => 1.0,
            _ => libm::exp(-0.5 * (distance as f64 / sigma) * (distance as f64 / sigma)),
        };
        let sum = 1.0 + 2.0 * (1..=radius).map(weight).sum::<f64>();
        let mut weights = [0; MAX_RADIUS + 1];
        for (distance, place) in weights.iter_mut().enumerate().take(radius + 1).skip(1) {
            *place = (weight(distance) / sum * f64::from(1 << POINT)).round() as u32;
        }
        weights[0] = (1 << POINT) - 2 * weights[1..].iter().sum::<u32>();
        weights
    }
}

/// Mirrors `index`, which may be out of range, into `0..len`.
fn mirrored(index: isize, len: usize) -> usize {
    let period = (2 * len as isize - 2).max(1);
    let index = index.rem_euclid(period) as usize;
    if index < len { index } else { period as usize - index }
}

impl Transform for GaussianBlur {
    fn effect(&self) -> Effect {
        Effect::Colors
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let weights = self.weights(random.range(self.sigma.0, self.sigma.1));
        let radius = self.radius.min(MAX_RADIUS) as isize;
        let kernel = -radius..=radius;
        canvas.replace_by_lines(|size, from, to, line| {
            let Size { height, width } = size;
            line.resize(3 * width, 0);
            for (y, places) in (0..).zip(to.chunks_exact_mut((3 * width).max(1))) {
                // Columns come first. Their sums have 23 bits, of which 16 are kept.
                line.fill(0);
                for offset in kernel.clone() {
                    let row = &from[mirrored(y + offset, height) * 3 * width..][..3 * width];
                    let weight = weights[offset.unsigned_abs()];
                    line.iter_mut().zip(row).for_each(|(sum, level)| *sum += weight * u32::from(*level));
                }
                line.iter_mut().for_each(|sum| *sum >>= POINT - 8);
                for (x, place) in (0..).zip(places.as_chunks_mut::<3>().0) {
                    let mut sums = [1 << (POINT + 7); 3];
                    for offset in kernel.clone() {
                        let at = 3 * mirrored(x + offset, width);
                        let weight = weights[offset.unsigned_abs()];
                        sums.iter_mut().zip(&line[at..at + 3]).for_each(|(sum, part)| *sum += weight * part);
                    }
                    *place = sums.map(|sum| (sum >> (POINT + 8)) as u8);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_the_weighted_mean_of_their_neighbours_within_a_level() {
        let blur = GaussianBlur { radius: 3, sigma: (1.3, 1.3) };
        let size = Size::new(5, 9);
        let mut random = Random::from_key(1);
        let pixels: Vec<u8> = (0..size.bytes()).map(|_| random.below(256) as u8).collect();
        let mut canvas = Canvas::new();
        canvas.set(size, &pixels);
        blur.apply(&mut canvas, &mut random);
        let weight = |d: isize| (-0.5 * (d as f64 / 1.3).powi(2)).exp();
        let sum: f64 = (-3..=3).map(weight).sum();
        for at in 0..size.bytes() {
            let (y, x, channel) = ((at / 27) as isize, (at / 3 % 9) as isize, at % 3);
            let mut wanted = 0.0;
            for dy in -3..=3 {
                for dx in -3..=3 {
                    let level = pixels[(mirrored(y + dy, 5) * 9 + mirrored(x + dx, 9)) * 3 + channel];
                    wanted += weight(dy) * weight(dx) / (sum * sum) * f64::from(level);
                }
            }
            let found = f64::from(canvas.pixels()[at]);
            assert!((found - wanted).abs() <= 0.6, "{at}: {found} for {wanted}");
        }
    }

    #[test]
    fn a_plain_picture_stays_plain_and_small_ones_are_blurred_too() {
        for size in [Size::new(1, 1), Size::new(2, 1), Size::new(3, 40)] {
            let mut canvas = Canvas::new();
            canvas.set(size, &vec![255; size.bytes()]);
            let blur = GaussianBlur { radius: 16, sigma: (0.1, 9.0) };
            blur.apply(&mut canvas, &mut Random::from_key(3));
            assert!(canvas.pixels().iter().all(|&level| level == 255), "{size}");
        }
    }

    #[test]
    fn the_mirror_leaves_out_the_border_itself() {
        let seen: Vec<_> = (-4..8).map(|index| mirrored(index, 3)).collect();
        assert_eq!(seen, [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(mirrored(-3, 1), 0);
    }
}
