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

/// A stream of random numbers for one draw of one epoch; the same on every worker and machine.
///
/// ```
/// use feedline_core::Random;
/// let (mut a, mut b) = (Random::from_key(42), Random::from_key(42));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!((0.0..1.0).contains(&a.uniform()));
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    key: u64,
    counter: u64,
}

impl Random {
    /// The stream of draw `draw` of `epoch` under `seed`.
    pub(crate) fn for_draw(seed: u64, epoch: u64, draw: u64) -> Self {
        Self::from_key(key(&[seed, epoch, draw]))
    }

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

    /// A whole number below `bound`, with negligible bias (the product method, 64 by 64 bits).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be above 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}
