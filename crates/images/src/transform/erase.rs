//! Random erasing.

use feedline_core::Random;

use super::{Effect, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Region, Size};

/// Fills a random rectangle with one colour, with a probability.
///
/// As in torchvision's `RandomErasing`, the fraction of the area is uniform in `scale`, and the ratio of
/// height to width is log-uniform in `ratio`. After ten rectangles that do not fit, nothing is erased.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erase {
    probability: f64,
    scale: (f64, f64),
    ratio: (f64, f64),
    color: [u8; 3],
}

impl Erase {
    /// 2 to 33 % of the area and a ratio of 0.3 to 3.3. The colour is the mean of ImageNet, which is 0 when
    /// normalised.
    pub fn new(probability: f64) -> Self {
        Self { probability, scale: (0.02, 0.33), ratio: (0.3, 3.3), color: [124, 116, 104] }
    }

    /// Sets the fraction of the area: from `low` to `high`, within 0 and 1.
    pub fn scale(self, low: f64, high: f64) -> Self {
        Self { scale: (low, high), ..self }
    }

    /// Sets the ratio of height to width: from `low` to `high`, both above 0.
    pub fn ratio(self, low: f64, high: f64) -> Self {
        Self { ratio: (low, high), ..self }
    }

    /// The colour.
    pub fn color(self, color: [u8; 3]) -> Self {
        Self { color, ..self }
    }

    /// Draws the rectangle to erase in a picture of this size, if any.
    fn part(&self, size: Size, random: &mut Random) -> Option<Region> {
        if random.uniform() >= self.probability {
            return None;
        }
        let (low, high) = (libm::log(self.ratio.0), libm::log(self.ratio.1));
        (0..10).find_map(|_| {
            let area = size.pixels() as f64 * random.range(self.scale.0, self.scale.1);
            let ratio = libm::exp(random.range(low, high));
            let (height, width) =
                ((area * ratio).sqrt().round_ties_even(), (area / ratio).sqrt().round_ties_even());
            // The condition is false for NaN too.
            if !(height >= 1.0 && width >= 1.0 && height < size.height as f64 && width < size.width as f64) {
                return None;
            }
            let part = Size::new(height as usize, width as usize);
            let top = random.below((size.height - part.height + 1) as u64) as usize;
            let left = random.below((size.width - part.width + 1) as u64) as usize;
            Some(Region { top, left, size: part })
        })
    }
}

impl Transform for Erase {
    fn effect(&self) -> Effect {
        Effect::Colors
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let Size { width, .. } = canvas.size();
        if let Some(Region { top, left, size }) = self.part(canvas.size(), random) {
            let lines = canvas.pixels_mut().chunks_exact_mut(3 * width).skip(top).take(size.height);
            for line in lines {
                line[3 * left..][..3 * size.width].as_chunks_mut::<3>().0.fill(self.color);
            }
        }
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        if let Some(part) = self.part(record.size(), random) {
            record.erase(part, self.color);
        }
    }
}
