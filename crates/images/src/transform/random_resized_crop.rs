//! Random resized crop.

use feedline_core::Random;

use super::{Effect, Filter, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Region, Size};

/// Crops a rectangle of random area, ratio and position, and resizes it to one size.
///
/// As in torchvision, the fraction of the area is uniform in `scale`, and the ratio of width to height is
/// log-uniform in `ratio`. After ten rectangles that do not fit, the crop is the largest rectangle in the
/// centre with an allowed ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomResizedCrop {
    size: Size,
    scale: (f64, f64),
    ratio: (f64, f64),
    filter: Filter,
}

impl RandomResizedCrop {
    /// 8 to 100 % of the area, ratio 3/4 to 4/3, bilinear.
    pub fn new(size: Size) -> Self {
        Self { size, scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0), filter: Filter::Bilinear }
    }

    /// Sets the fraction of the area: from `low` to `high`, within 0 and 1.
    pub fn scale(self, low: f64, high: f64) -> Self {
        Self { scale: (low, high), ..self }
    }

    /// Sets the ratio of width to height: from `low` to `high`, both above 0.
    pub fn ratio(self, low: f64, high: f64) -> Self {
        Self { ratio: (low, high), ..self }
    }

    /// The filter of the resize.
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }
}

impl Transform for RandomResizedCrop {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn size(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }

    fn region(&self, size: Size, random: &mut Random) -> Region {
        let Size { height, width } = size;
        let area = (height * width) as f64;
        let (low, high) = (libm::log(self.ratio.0), libm::log(self.ratio.1));
        for _ in 0..10 {
            let target = area * random.range(self.scale.0, self.scale.1);
            let ratio = libm::exp(random.range(low, high));
            let (w, h) =
                ((target * ratio).sqrt().round_ties_even(), (target / ratio).sqrt().round_ties_even());
            // The condition is false for NaN too.
            if w >= 1.0 && h >= 1.0 && w <= width as f64 && h <= height as f64 {
                let part = Size::new(h as usize, w as usize);
                let top = random.below((height - part.height + 1) as u64) as usize;
                let left = random.below((width - part.width + 1) as u64) as usize;
                return Region { top, left, size: part };
            }
        }
        let ratio = width as f64 / height as f64;
        let part = if ratio < self.ratio.0 {
            let h = (width as f64 / self.ratio.0).round_ties_even() as usize;
            Size::new(h.clamp(1, height), width)
        } else if ratio > self.ratio.1 {
            let w = (height as f64 * self.ratio.1).round_ties_even() as usize;
            Size::new(height, w.clamp(1, width))
        } else {
            size
        };
        Region { top: (height - part.height) / 2, left: (width - part.width) / 2, size: part }
    }

    fn scaled_to(&self) -> Option<Size> {
        Some(self.size)
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        canvas.resize(self.size, self.filter);
    }

    fn on_device(&self) -> Option<Needs> {
        (self.filter == Filter::Bilinear).then_some(Needs::Work)
    }

    fn record(&self, record: &mut Record, random: &mut Random) {
        let region = self.region(record.size(), random);
        record.crop(region);
        record.resize(self.size);
    }
}
