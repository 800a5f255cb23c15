//! The pixels of one sample, by the same operations in the same order as in `kernels/cu/augment`.

use super::element::Value;
use super::record_words::Sample;
use super::sample_record::{Color, Window};
use crate::ChannelOrder;
use crate::transform::color;

/// One sample: its record and its source.
pub(super) struct Pixels<'a, I> {
    pub(super) sample: Sample,
    pub(super) source: &'a [I],
    pub(super) order: ChannelOrder,
    pub(super) channels: usize,
    /// Height and width of the finished picture.
    pub(super) output: (i32, i32),
    /// The mean gray level, around which contrast changes.
    pub(super) mean: u8,
}

impl<I: Value> Pixels<'_, I> {
    /// The value at a position of the finished picture, before colour changes.
    pub(super) fn at(&self, y: i32, x: i32, channel: usize) -> I {
        let sample = &self.sample;
        let y = if sample.flip.1 { self.output.0 - 1 - y } else { y };
        let x = if sample.flip.0 { self.output.1 - 1 - x } else { x };
        let (y, x) = (y + sample.view.0, x + sample.view.1);
        let scaled = Window { top: 0, left: 0, bottom: sample.scaled.0, right: sample.scaled.1 };
        if !scaled.has(y, x) {
            self.fill(channel)
        } else if sample.resized {
            self.scaled(y, x, channel)
        } else {
            self.read(y + sample.window.top, x + sample.window.left, channel)
        }
    }

    fn fill(&self, channel: usize) -> I {
        I::of_level(self.sample.fill[channel.min(2)])
    }

    /// The value at a position of the source, or of its border.
    fn read(&self, y: i32, x: i32, channel: usize) -> I {
        if !self.sample.valid.has(y, x) {
            return self.fill(channel);
        }
        let (y, x, source) = (y as usize, x as usize, self.sample.source);
        self.source[match self.order {
            ChannelOrder::Last => (y * source.width + x) * self.channels + channel,
            ChannelOrder::First => (channel * source.height + y) * source.width + x,
        }]
    }

    /// The value at a position of the resized window. It is the mean under a triangle, computed in exact
    /// integers and rounded once.
    fn scaled(&self, y: i32, x: i32, channel: usize) -> I {
        let Sample { window, scaled, .. } = self.sample;
        let size = window.size();
        let (rows, columns) =
            (Taps::new(y, size.height as i32, scaled.0), Taps::new(x, size.width as i32, scaled.1));
        let (mut sum, mut rows_weigh, mut columns_weigh) = (0u64, 0u64, 0u64);
        for column in columns.range() {
            columns_weigh += columns.weight(column);
        }
        for row in rows.range() {
            let mut line = 0u64;
            for column in columns.range() {
                let level = self.read(window.top + row, window.left + column, channel).level();
                line += columns.weight(column) * u64::from(level);
            }
            sum += rows.weight(row) * line;
            rows_weigh += rows.weight(row);
        }
        let all = rows_weigh * columns_weigh;
        I::of_level(((2 * sum + all) / (2 * all)) as u8)
    }

    /// The pixel at a position of the finished picture, after colour changes.
    pub(super) fn pixel(&self, y: i32, x: i32) -> [u8; 3] {
        let pixel = [0, 1, 2].map(|channel| self.at(y, x, channel).level());
        self.color(pixel, self.sample.colors())
    }

    fn color(&self, pixel: [u8; 3], colors: impl Iterator<Item = (Color, f32)>) -> [u8; 3] {
        colors.fold(pixel, |pixel, (change, factor)| match change {
            Color::Brightness => pixel.map(|level| color::blend(0, level, factor)),
            Color::Contrast => pixel.map(|level| color::blend(self.mean, level, factor)),
            Color::Saturation => {
                let gray = color::gray(pixel);
                pixel.map(|level| color::blend(gray, level, factor))
            }
            Color::Hue => color::turned(pixel, color::steps(factor)),
            Color::Gray => [color::gray(pixel); 3],
        })
    }

    /// Computes the mean gray level before a contrast change, if there is one.
    pub(super) fn find_mean(&mut self) {
        if !self.sample.colors().any(|(color, _)| color == Color::Contrast) {
            return;
        }
        let mut sum = 0u64;
        for y in 0..self.output.0 {
            for x in 0..self.output.1 {
                let pixel = [0, 1, 2].map(|channel| self.at(y, x, channel).level());
                let before = self.sample.colors().take_while(|(color, _)| *color != Color::Contrast);
                sum += u64::from(color::gray(self.color(pixel, before)));
            }
        }
        let pixels = self.output.0 as u64 * self.output.1 as u64;
        self.mean = (sum as f64 / pixels.max(1) as f64 + 0.5) as u8;
    }
}

/// The filter of one resized pixel along one side. The side is resized from `from` to `to` pixels.
struct Taps {
    from: i32,
    to: i32,
    /// Twice the centre of the resized pixel, in units of `1 / to` pixels.
    centre: i32,
}

impl Taps {
    fn new(at: i32, from: i32, to: i32) -> Self {
        Self { from, to, centre: (2 * at + 1) * from }
    }

    /// Half the base of the triangle, in the same unit.
    fn half(&self) -> i32 {
        2 * self.from.max(self.to)
    }

    fn range(&self) -> std::ops::Range<i32> {
        let first = (self.centre - self.half() - self.to).div_euclid(2 * self.to) + 1;
        let behind = (self.centre + self.half() - self.to - 1).div_euclid(2 * self.to) + 1;
        first.max(0)..behind.min(self.from)
    }

    fn weight(&self, at: i32) -> u64 {
        (self.half() - ((2 * at + 1) * self.to - self.centre).abs()).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_those_of_a_triangle() {
        for (from, to) in [(1, 1), (5, 5), (7, 3), (3, 7), (100, 9), (2, 300), (16384, 8), (16384, 16383)] {
            for at in [0, to / 3, to - 1] {
                let taps = Taps::new(at, from, to);
                let scale = f64::from(from) / f64::from(to);
                let centre = (f64::from(at) + 0.5) * scale;
                for pixel in 0..from {
                    let far = (f64::from(pixel) + 0.5 - centre).abs() / scale.max(1.0);
                    let weight = taps.weight(pixel) as f64 / f64::from(taps.half());
                    assert!((weight - (1.0 - far).max(0.0)).abs() < 1e-9, "{from} to {to}: {at}, {pixel}");
                    assert_eq!(weight > 0.0, taps.range().contains(&pixel), "{from} to {to}: {at}, {pixel}");
                }
            }
        }
    }
}
