//! TrivialAugment (Müller and Hutter 2021), with its wide ranges.

use feedline_core::Random;

use super::Operation;
use crate::Canvas;
use crate::transform::Transform;

/// Max magnitude.
const STEPS: f64 = 30.0;

/// Applies one random operation of random magnitude.
///
/// The operations and their ranges are those of torchvision's `TrivialAugmentWide`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrivialAugment;

impl Transform for TrivialAugment {
    fn has_random_geometry(&self) -> bool {
        true
    }

    fn apply(&self, canvas: &mut Canvas, random: &mut Random) {
        let operation = Operation::ALL[random.below(Operation::ALL.len() as u64) as usize];
        let part = random.below(STEPS as u64 + 1) as f64 / STEPS;
        let magnitude = match operation {
            Operation::TranslateX | Operation::TranslateY => 32.0 * part,
            Operation::Rotate => 135.0 * part,
            Operation::Posterize => 8.0 - (6.0 * part).round_ties_even(),
            Operation::Solarize => 255.0 * (1.0 - part),
            _ => 0.99 * part,
        };
        let turned = operation.is_signed() && random.below(2) == 1;
        operation.apply(canvas, if turned { -magnitude } else { magnitude });
    }
}
