//! A keyed permutation of any length in constant memory, for the global shuffle.
//!
//! Lengths above 32 use a generalised Feistel network that alternates between the two digits of a mixed-radix
//! number (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Its domain is at most `sqrt(8
//! len)` larger than needed, so that walking back into range (cycle-walking, same source) is rare. Shorter
//! lengths, for which a network with few values per digit mixes badly, use a table shuffled by Durstenfeld's
//! algorithm (1964), in which every outcome is equally likely.
//!
//! Both digits have an even radix. A round that adds modulo an odd number is always an even permutation, and
//! so is one that XORs, so a network with an odd radix would only give permutations of one parity.

use crate::random::splitmix64;

/// The largest length for which a permutation is a table.
const TABLE: usize = 32;
/// The largest number of round pairs.
const PAIRS: usize = 8;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A permutation of `0..len`, chosen by a 64-bit key, with random access in both directions.
///
/// ```
/// use feedline_core::sampler::Permutation;
/// let permutation = Permutation::new(10_000_000_000, 7);
/// let id = permutation.at(5_000_000_000);
/// assert!(id < 10_000_000_000);
/// assert_eq!(permutation.position(id), 5_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Table([u8; TABLE]),
    Network(Network),
}

impl Permutation {
    /// The permutation of `0..len` for `key`; `len` is at most 2^63.
    ///
    /// # Panics
    /// If `len` is 0 or above 2^63.
    pub fn new(len: u64, key: u64) -> Self {
        assert!(0 < len && len <= super::MAX_LEN, "a permutation of {len} values");
        let form = if len <= TABLE as u64 {
            Form::Table(shuffled(len as usize, key))
        } else {
            Form::Network(Network::new(len, key))
        };
        Self { len, form }
    }

    /// The value at `position`.
    ///
    /// # Panics
    /// If `position` is not below the length.
    pub fn at(&self, position: u64) -> u64 {
        let mut value = [0];
        self.fill(position, &mut value);
        value[0]
    }

    /// The position of `value`: the inverse of [`at`](Self::at).
    ///
    /// # Panics
    /// If `value` is not below the length.
    pub fn position(&self, value: u64) -> u64 {
        assert!(value < self.len, "value {value} of {}", self.len);
        match &self.form {
            // The table contains `value`, because it is a permutation.
            Form::Table(table) => table.iter().position(|&v| u64::from(v) == value).unwrap_or(0) as u64,
            Form::Network(network) => network.invert(value, self.len),
        }
    }

    /// Writes the values at `start`, `start + 1`, ... into `out`. Takes a few nanoseconds per value.
    ///
    /// # Panics
    /// If the positions exceed the length.
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        let end = start.checked_add(out.len() as u64);
        assert!(end.is_some_and(|end| end <= self.len), "positions {start}.. of {}", self.len);
        match &self.form {
            Form::Table(table) => {
                for (value, &entry) in out.iter_mut().zip(&table[start as usize..]) {
                    *value = u64::from(entry);
                }
            }
            Form::Network(network) => network.fill(self.len, start, out),
        }
    }
}

fn shuffled(len: usize, key: u64) -> [u8; TABLE] {
    let mut table = [u8::MAX; TABLE];
    for i in 0..len {
        // A whole number below i + 1 by the product method.
        let draw = u128::from(splitmix64(key.wrapping_add(GOLDEN.wrapping_mul(i as u64))));
        let j = ((draw * (i as u128 + 1)) >> 64) as usize;
        table[i] = table[j];
        table[j] = i as u8;
    }
    table
}

/// Rounds over `x = high * 2^bits + low`: `low` is mixed by XOR, `high` by addition modulo `radix`, which is
/// even.
#[derive(Clone, Debug)]
struct Network {
    bits: u32,
    radix: u64,
    pairs: usize,
    keys: [[u64; 2]; PAIRS],
}

impl Network {
    fn new(len: u64, key: u64) -> Self {
        let bits = len.ilog2().div_ceil(2);
        let keys = std::array::from_fn(|i| {
            let key = key.wrapping_add(GOLDEN.wrapping_mul(2 * i as u64));
            [splitmix64(key), splitmix64(key.wrapping_add(GOLDEN))]
        });
        // The fewer values a digit has, the more rounds are needed until neighbours are uncorrelated. With
        // these counts the chi-square tests of tests/logic/permutation.rs, over 10^8 values, cannot tell an
        // order from chance.
        let pairs = match len {
            0..256 => 8,
            256..4096 => 5,
            _ => 3,
        };
        Self { bits, radix: len.div_ceil(1 << bits).next_multiple_of(2), pairs, keys }
    }

    fn fill(&self, len: u64, start: u64, out: &mut [u64]) {
        // A constant number of rounds lets the compiler unroll them.
        match self.pairs {
            3 => self.fill_by::<3>(len, start, out),
            5 => self.fill_by::<5>(len, start, out),
            _ => self.fill_by::<PAIRS>(len, start, out),
        }
    }

    #[inline(always)]
    fn fill_by<const N: usize>(&self, len: u64, start: u64, out: &mut [u64]) {
        // Neighbours share `high`, and therefore their first round.
        let (mut shared, mut first) = (u64::MAX, 0);
        for (value, position) in out.iter_mut().zip(start..) {
            let (high, low) = self.split(position);
            if high != shared {
                (shared, first) = (high, self.low_round(high, self.keys[0][0]));
            }
            *value = self.forward::<N>(high, low ^ first);
            while *value >= len {
                let (high, low) = self.split(*value);
                *value = self.forward::<N>(high, low ^ self.low_round(high, self.keys[0][0]));
            }
        }
    }

    /// All rounds except the first.
    #[inline(always)]
    fn forward<const N: usize>(&self, mut high: u64, mut low: u64) -> u64 {
        for (pair, keys) in self.keys[..N].iter().enumerate() {
            if pair > 0 {
                low ^= self.low_round(high, keys[0]);
            }
            let sum = high + self.high_round(low, keys[1]);
            high = if sum >= self.radix { sum - self.radix } else { sum };
        }
        (high << self.bits) | low
    }

    fn invert(&self, value: u64, len: u64) -> u64 {
        let mut x = value;
        loop {
            let (mut high, mut low) = self.split(x);
            for keys in self.keys[..self.pairs].iter().rev() {
                let step = self.high_round(low, keys[1]);
                high = if high >= step { high - step } else { high + self.radix - step };
                low ^= self.low_round(high, keys[0]);
            }
            x = (high << self.bits) | low;
            if x < len {
                return x;
            }
        }
    }

    #[inline(always)]
    fn split(&self, x: u64) -> (u64, u64) {
        (x >> self.bits, x & ((1 << self.bits) - 1))
    }

    /// A number below `2^bits`; `bits` is at least 3.
    #[inline(always)]
    fn low_round(&self, high: u64, key: u64) -> u64 {
        mix(high ^ key) >> (u64::BITS - self.bits)
    }

    /// A number below `radix`, by the product method.
    #[inline(always)]
    fn high_round(&self, low: u64, key: u64) -> u64 {
        ((u128::from(mix(low ^ key)) * u128::from(self.radix)) >> 64) as u64
    }
}

/// Two multiplications and one fold, as in the finalizers of MurmurHash3 (Appleby 2011); only the upper bits
/// are used.
#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(GOLDEN);
    (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}
