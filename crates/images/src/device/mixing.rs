//! Mixup and cutmix.

use feedline_core::Random;

use super::sample_record::{Mix, Record};
use crate::{Region, Size};

/// The kinds of mixing. With both, each sample gets one of them, with equal probability.
///
/// The weight of a sample is drawn from a beta distribution with both parameters `alpha`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mixing {
    /// The alpha of mixup.
    pub(crate) blend: Option<f64>,
    /// The alpha of cutmix.
    pub(crate) paste: Option<f64>,
}

impl Mixing {
    /// Draws the mixing of a sample.
    pub(super) fn record(&self, record: &mut Record, random: &mut Random) {
        let is_blend = match (self.blend, self.paste) {
            (Some(_), Some(_)) => random.uniform() < 0.5,
            (blend, _) => blend.is_some(),
        };
        let lambda = beta(if is_blend { self.blend } else { self.paste }.unwrap_or(1.0), random);
        let partner = (random.next_u64() >> 32) as u32;
        if is_blend {
            record.mix(Mix::Blend { lambda: lambda as f32 }, partner);
        } else {
            let part = part(record.size(), lambda, random);
            record.mix(Mix::Paste { part }, partner);
        }
    }
}

/// A rectangle with the fraction `1 - lambda` of the area, around a random pixel, clipped to the picture.
fn part(size: Size, lambda: f64, random: &mut Random) -> Region {
    let share = (1.0 - lambda).sqrt();
    let mut side = |length: usize| {
        let half = (length as f64 * share / 2.0) as usize;
        let centre = random.below(length.max(1) as u64) as usize;
        let first = centre.saturating_sub(half);
        (first, (centre + half).min(length) - first)
    };
    let ((top, height), (left, width)) = (side(size.height), side(size.width));
    Region { top, left, size: Size::new(height, width) }
}

/// Draws from the beta distribution with both parameters `alpha` (Joehnk 1964). Fast up to an alpha of about
/// 2.
fn beta(alpha: f64, random: &mut Random) -> f64 {
    for _ in 0..10_000 {
        // Above 0, because two zeros would give 0 / 0.
        let mut draw = || libm::pow(1.0 - random.uniform(), 1.0 / alpha);
        let (a, b) = (draw(), draw());
        if a + b <= 1.0 && a + b > 0.0 {
            return a / (a + b);
        }
    }
    0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_mean_and_the_variance_of_their_distribution() {
        for alpha in [0.2, 1.0, 2.0] {
            let mut random = Random::from_key(3);
            let draws: Vec<f64> = (0..20_000).map(|_| beta(alpha, &mut random)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            let wanted = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!(
                (mean - 0.5).abs() < 0.01 && (variance / wanted - 1.0).abs() < 0.05,
                "{alpha}: {mean} {variance}"
            );
        }
    }

    #[test]
    fn a_part_lies_within_the_picture() {
        let mut random = Random::from_key(5);
        for _ in 0..1000 {
            let lambda = random.uniform();
            let Region { top, left, size } = part(Size::new(9, 30), lambda, &mut random);
            assert!(top + size.height <= 9 && left + size.width <= 30);
        }
    }
}
