//! Padding.

use feedline_core::Random;

use super::{Effect, Needs, Transform};
use crate::canvas::padded;
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
}

impl Transform for Pad {
    fn size(&self, size: Option<Size>) -> Option<Size> {
        size.map(|size| padded(size, self.sides))
    }

    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        canvas.pad(self.sides, self.color);
    }

    fn on_device(&self) -> Option<Needs> {
        Some(Needs::Copy)
    }

    fn record(&self, record: &mut Record, _: &mut Random) {
        record.pad(self.sides, self.color);
    }
}
