//! RandAugment (Cubuk et al. 2020).

use feedline_core::Random;

use super::Operation;
use crate::transform::Transform;
use crate::{Canvas, Size};

/// Max magnitude.
const STEPS: f64 = 30.0;

/// Applies random operations, all with one magnitude.
///
/// The operations and their ranges are torchvision's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandAugment {
    operations: usize,
    magnitude: u32,
}

impl RandAugment {
    /// `operations` operations of a magnitude from 0 to 30. The defaults of torchvision are 2 and 9.
    pub fn new(operations: usize, magnitude: u32) -> Self {
        Self { operations, magnitude: magnitude.min(STEPS as u32) }
    }

    /// The magnitude in the unit of `operation`.
    fn magnitude_of(&self, operation: Operation, size: Size) -> f64 {
        let part = f64::from(self.magnitude) / STEPS;
        match operation {
            Operation::ShearX | Operation::ShearY => 0.3 * part,
            Operation::TranslateX => 150.0 / 331.0 * size.width as f64 * part,
            Operation::TranslateY => 150.0 / 331.0 * size.height as f64 * part,
            Operation::Rotate => 30.0 * part,
            Operation::Posterize => 8.0 - (4.0 * part).round_ties_even(),
            Operation::Solarize => 255.0 * (1.0 - part),
            _ => 0.9 * part,
        }
    }
}

impl Transform for RandAugment {
    fn has_random_geometry(&self) -> bool {
        true
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        for _ in 0..self.operations {
            let operation = Operation::ALL[random.below(Operation::ALL.len() as u64) as usize];
            let magnitude = self.magnitude_of(operation, canvas.size());
            let turned = operation.is_signed() && random.below(2) == 1;
            operation.apply(canvas, if turned { -magnitude } else { magnitude });
        }
    }
}
