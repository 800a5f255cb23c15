//! Counter-based random numbers: a value depends only on its key, never on the order of calls or on the
//! workers.

/// The version of the keys of random numbers. Version 1 was keyed by the sample's id instead of the draw.
pub const DRAWS_VERSION: u64 = 2;

/// One step of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
pub const fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Mixes parts into one 64-bit key; every part affects every bit.
pub const fn key(parts: &[u64]) -> u64 {
    let mut state = 0x6665_6564_6C69_6E65; // "feedline"
    let mut i = 0;
    while i < parts.len() {
        state = splitmix64(state ^ parts[i]);
        i += 1;
    }
    state
}

/// The natural logarithm of a normal number above 0, by operations that give the same bits everywhere;
/// `f64::ln` does not promise that.
fn ln(x: f64) -> f64 {
    // x = m * 2^e, with m from 1 to 2, then from 0.7 to 1.4.
    let bits = x.to_bits();
    let (mut m, mut e) = (f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52), (bits >> 52) as f64 - 1023.0);
    if m > std::f64::consts::SQRT_2 {
        (m, e) = (m / 2.0, e + 1.0);
    }
    // ln m = 2 artanh t; the rest of the series is below 1e-18.
    let t = (m - 1.0) / (m + 1.0);
    let series = (0..11).rev().fold(0.0, |sum, n| sum * t * t + 1.0 / f64::from(2 * n + 1));
    2.0 * t * series + e * std::f64::consts::LN_2
}

/// A stream of random numbers for one draw of one epoch; the same on every worker and machine.
///
/// ```
/// use feedline_core::Random;
/// let (mut a, mut b) = (Random::from_key(42), Random::from_key(42));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!((0.0..1.0).contains(&a.uniform()));
/// ```
///
/// For the distributions of the crate rand, seed one of its generators with it:
/// `SmallRng::seed_from_u64(context.random().next_u64())`.
#[derive(Clone, Debug)]
pub struct Random {
    key: u64,
    counter: u64,
}

impl Random {
    /// The stream of `key`; see [`key`].
    pub fn from_key(key: u64) -> Self {
        Self { key, counter: 0 }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let value = splitmix64(self.key ^ splitmix64(self.counter));
        self.counter += 1;
        value
    }

    /// A number in `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `[low, high)`.
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A number of the normal distribution of mean 0 and standard deviation 1 (the polar method of
    /// Marsaglia); the same bits on every machine.
    ///
    /// ```
    /// # let mut random = feedline_core::Random::from_key(42);
    /// let height = 170.0 + 10.0 * random.normal(); // mean 170, standard deviation 10
    /// # assert!(height > 100.0 && height < 240.0);
    /// ```
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (self.range(-1.0, 1.0), self.range(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }

    /// A whole number below `bound`, with negligible bias (the product method, 64 by 64 bits).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be above 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl Random {
    /// The stream of draw `draw` of `epoch` under `seed`.
    pub fn for_draw(seed: u64, epoch: u64, draw: u64) -> Self {
        Self::from_key(key(&[seed, epoch, draw]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_the_library_to_within_two_units_in_the_last_place() {
        for n in 1..100_000 {
            let x = f64::from(n) / 99_999.0;
            let (own, library) = (ln(x), x.ln());
            assert!(
                (own - library).abs() <= 4.5e-16 * library.abs().max(f64::EPSILON),
                "{x}: {own} {library}"
            );
        }
    }

    #[test]
    fn normal_numbers_have_the_moments_and_the_tails_of_the_distribution_and_are_fixed() {
        let mut random = Random::from_key(7);
        let numbers: Vec<f64> = (0..200_000).map(|_| random.normal()).collect();
        let moment = |power: i32| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / numbers.len() as f64;
        for (power, wanted, within) in [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.05), (4, 3.0, 0.1)] {
            assert!((moment(power) - wanted).abs() < within, "moment {power}: {}", moment(power));
        }
        let beyond = numbers.iter().filter(|x| x.abs() > 2.0).count() as f64 / numbers.len() as f64;
        assert!((beyond - 0.0455).abs() < 0.003, "{beyond}");
    }
}
