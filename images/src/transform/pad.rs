//! Padding.

use feedline_core::Random;

use super::{Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Size};

/// Adds a border of one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pad {
    /// Top, right, bottom, left.
    sides: [usize; 4],
    color: [u8; 3],
}

impl Pad {
    /// A border of `sides` pixels: top, right, bottom, left.
    pub fn new(sides: [usize; 4], color: [u8; 3]) -> Self {
        Self { sides, color }
    }

    fn wanted(&self, size: Size) -> Size {
        let [top, right, bottom, left] = self.sides;
        let sum = |before: usize, side: usize, after| before.saturating_add(side).saturating_add(after);
        Size::new(sum(top, size.height, bottom), sum(left, size.width, right))
    }
}

impl Transform for Pad {
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size.map(|size| self.wanted(size))
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        let [top, _, _, left] = self.sides;
        let to = self.wanted(canvas.size());
        canvas.replace(to, |size, from, pixels| {
            pixels.as_chunks_mut::<3>().0.fill(self.color);
            if size.pixels() > 0 {
                let lines = pixels.chunks_exact_mut(3 * to.width).skip(top);
                for (line, row) in lines.zip(from.chunks_exact(3 * size.width)) {
                    line[3 * left..][..row.len()].copy_from_slice(row);
                }
            }
        });
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, _: &mut Random) {
        record.pad(self.sides, self.color);
    }
}
