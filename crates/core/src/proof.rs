//! Proof that every sample was delivered exactly once: sums that can be merged across ranks and restarts.

use std::ops::Range;

use crate::random::splitmix64;
use crate::{BatchSampler, Error, ErrorKind, Result, Stage};

const LOW: u64 = u64::from_le_bytes(*b"proof lo");
const HIGH: u64 = u64::from_le_bytes(*b"proof hi");
/// Number of ids hashed at a time.
const CHUNK: usize = 512;

/// The number of delivered samples, and a 128-bit sum over their (epoch, id) pairs that does not depend on
/// their order.
///
/// Each pair adds 128 mixed bits, modulo 2^128: a multiset hash by addition (Clarke et al. 2003, "Incremental
/// multiset hash functions") with SplitMix64 as the mixer. It detects errors, not forgery. A lost or
/// duplicated sample changes the count. A sample delivered in place of another of the same epoch always
/// changes the sum, because the mixer is a bijection of the id. Any other difference is missed with a
/// probability near 2^-128.
///
/// ```
/// use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Proof, Sampler, World};
/// let batch_sampler = BatchSampler::new(BatchSamplerOptions {
///     len: 100,
///     sampler: Sampler::Shuffle,
///     seed: 7,
///     batch: 8,
///     last_batch: LastBatch::Keep,
///     world: World::single(),
/// })?;
/// // A run of two epochs. Usually `delivered` is from `Cursor::proof`.
/// let expected = Proof::expected(&batch_sampler, 0..2);
/// let mut delivered = Proof::expected(&batch_sampler, 0..1);
/// assert!(delivered.check(&expected).is_err()); // the second epoch is missing
/// delivered.merge(&Proof::expected(&batch_sampler, 1..2));
/// assert!(delivered.check(&expected).is_ok());
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Proof {
    count: u64,
    #[cfg_attr(feature = "serde", serde(with = "hex"))]
    sum: u128,
}

impl Proof {
    pub(crate) const fn from_parts(count: u64, sum: u128) -> Self {
        Self { count, sum }
    }

    /// The expected proof of `epochs` of `batch_sampler`, over all its ranks.
    ///
    /// It excludes dropped and skipped samples and the repeats that pad the last step: pass to
    /// add only the valid ids, as counted by [`BatchSampler::batch`]. Takes a few
    /// nanoseconds per sample, and constant memory.
    pub fn expected(batch_sampler: &BatchSampler, epochs: Range<u64>) -> Self {
        let mut proof = Self::default();
        for epoch in epochs {
            proof.merge(&Self::expected_part(batch_sampler, epoch, 0..batch_sampler.end(epoch, 0)));
        }
        proof
    }

    /// Adds the samples that another rank delivered, or this run before a restart.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    pub(crate) fn unmerge(&mut self, other: &Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.sum = self.sum.wrapping_sub(other.sum);
    }

    /// Number of delivered samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The 128-bit sum.
    pub(crate) fn sum(&self) -> u128 {
        self.sum
    }

    /// Compares this proof with the `expected` one.
    ///
    /// # Errors
    /// `Data` when they differ; the message says how many samples are missing or extra.
    pub fn check(&self, expected: &Self) -> Result<()> {
        let message = match (self.count, expected.count) {
            _ if self == expected => return Ok(()),
            (have, want) if have < want => format!("{} of {want} samples were not delivered", want - have),
            (have, want) if have > want => {
                format!("{} more samples were delivered than the {want} expected", have - want)
            }
            (have, _) => format!(
                "{have} samples were delivered, as many as expected, but not the expected ones: at least \
                 one was replaced by another"
            ),
        };
        Err(Error::new(ErrorKind::Data, message).at_stage(Stage::Sampler))
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl Proof {
    /// The expected proof of the global `positions` of one epoch. Use it for an epoch that ended early, or
    /// that drops its last batch and was resumed with another world size.
    pub fn expected_part(batch_sampler: &BatchSampler, epoch: u64, positions: Range<u64>) -> Self {
        let mut proof = Self::default();
        let (len, sampler) = (batch_sampler.options().len, &batch_sampler.options().sampler);
        if sampler.is_permutation() && positions == (0..len) && batch_sampler.skipped(epoch, 0..len) == 0 {
            // Adds every sample once, without using the sampler: so a bug in the sampler is detected.
            for first in (0..len).step_by(CHUNK) {
                let ids: [u64; CHUNK] = std::array::from_fn(|index| first + index as u64);
                proof.add_all(epoch, &ids[..CHUNK.min((len - first) as usize)]);
            }
        } else {
            batch_sampler.for_ids(epoch, positions, |ids| proof.add_all(epoch, ids));
        }
        proof
    }

    /// Adds one sample.
    pub fn add(&mut self, epoch: u64, id: u64) {
        self.add_all(epoch, &[id]);
    }

    /// Adds samples of one epoch. Takes 1 to 3 nanoseconds per sample.
    pub fn add_all(&mut self, epoch: u64, ids: &[u64]) {
        let mixer = Mixer::new(epoch);
        self.count = self.count.wrapping_add(ids.len() as u64);
        self.sum = ids.iter().fold(self.sum, |sum, &id| sum.wrapping_add(mixer.mix(id)));
    }
}

/// The contribution of one batch's delivered rows to the [`Proof`] and to the order hash of a run.
///
/// The worker that finishes a batch computes it, in one loop over the ids; the consumer's thread adds it to
/// the cursor in constant time.
///
/// # Order hash
///
/// 64 bits over the delivered ids in order, independent of the batch boundaries. The mixed ids are the digits
/// of a number in an odd base, modulo 2^64. So the hash of two batches in a row can be computed from the
/// hashes of both, and a later run can continue it. A single changed id always changes it. An exchange of two
/// ids is missed with a probability of at most 2^-62 times the distance between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchProof {
    proof: Proof,
    /// The order hash of these ids alone, counted from position 0.
    order: u64,
}

/// The order hash of a run that has delivered nothing.
pub(crate) const NO_IDS: u64 = u64::from_le_bytes(*b"in order");

/// The base of order hashes: Steele and Vigna 2021, "Computationally easy, spectrally good multipliers".
const BASE: u64 = 0xF135_7AEA_2E62_A9C5;

/// The order hash `order` with another id. A bijection of both, so a single changed id always changes the
/// result.
fn with_id(order: u64, id: u64) -> u64 {
    order.wrapping_mul(BASE).wrapping_add(splitmix64(id))
}

impl BatchProof {
    /// The contribution of a batch of `epoch` that delivers `ids`.
    pub fn of(epoch: u64, ids: &[u64]) -> Self {
        let mixer = Mixer::new(epoch);
        let (mut sum, mut order) = (0u128, 0);
        for &id in ids {
            sum = sum.wrapping_add(mixer.mix(id));
            order = with_id(order, id);
        }
        Self { proof: Proof { count: ids.len() as u64, sum }, order }
    }

    /// The order hash of these ids alone, counted from position 0.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Adds these ids to the proof and to the order hash of a run.
    pub(crate) fn add_to(&self, proof: &mut Proof, order_hash: &mut u64) {
        proof.merge(&self.proof);
        // By squares; `wrapping_pow` takes exponents of 32 bits only.
        let (mut power, mut square, mut rest) = (1u64, BASE, self.proof.count);
        while rest > 0 {
            if rest & 1 == 1 {
                power = power.wrapping_mul(square);
            }
            square = square.wrapping_mul(square);
            rest >>= 1;
        }
        *order_hash = order_hash.wrapping_mul(power).wrapping_add(self.order);
    }
}

/// Mixes the sample ids of one epoch.
struct Mixer {
    low: u64,
    high: u64,
}

impl Mixer {
    fn new(epoch: u64) -> Self {
        Self { low: splitmix64(epoch ^ LOW), high: splitmix64(epoch ^ HIGH) }
    }

    fn mix(&self, id: u64) -> u128 {
        u128::from(splitmix64(id ^ self.high)) << 64 | u128::from(splitmix64(id ^ self.low))
    }
}

/// Serializes hashes as `"0x..."`, because JSON readers that parse numbers as f64 would round them.
#[cfg(feature = "serde")]
pub(crate) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: std::fmt::LowerHex, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{value:#x}"))
    }

    pub(crate) fn deserialize<'de, T: TryFrom<u128>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let digits = text.strip_prefix("0x").and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let value = digits.and_then(|digits| T::try_from(digits).ok());
        value.ok_or_else(|| D::Error::custom(format!("{text:?} is not a hash: expected the form \"0x1f\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order hash of a run that delivers `ids`, one by one.
    fn order_hash(ids: &[u64]) -> u64 {
        ids.iter().fold(NO_IDS, |order, &id| with_id(order, id))
    }

    #[test]
    fn batches_one_after_the_other_are_the_same_as_their_ids() {
        let ids = [3, u64::MAX, 0, 77, 3, 0, 0];
        let mut alone = Proof::default();
        alone.add_all(5, &ids);
        let splits = (0..=7).flat_map(|first| (first..=7).map(move |second| (first, second)));
        for (first, second) in splits {
            let (mut proof, mut order) = (Proof::default(), NO_IDS);
            for part in [&ids[..first], &ids[first..second], &ids[second..]] {
                BatchProof::of(5, part).add_to(&mut proof, &mut order);
            }
            assert_eq!((proof, order), (alone, order_hash(&ids)));
        }
    }

    #[test]
    fn an_exchange_changes_the_order_hash_at_any_distance() {
        let ids: Vec<u64> = (0..1 << 16).collect();
        let all = order_hash(&ids);
        for distance in 0..16 {
            let mut exchanged = ids.clone();
            exchanged.swap(5, 5 + (1 << distance));
            assert_ne!(order_hash(&exchanged), all, "2^{distance}");
        }
        // Two batches one after the other, and their ids interleaved.
        assert_ne!(order_hash(&[&ids[4096..8192], &ids[..4096]].concat()), order_hash(&ids[..8192]));
        assert_ne!(order_hash(&[0, 2, 1, 3]), order_hash(&[0, 1, 2, 3]));
    }

    /// The value is part of checkpoints and of the report of `mlp`: changing it requires a new version of the
    /// cursor.
    #[test]
    fn the_order_hash_of_ten_ids_is_fixed() {
        assert_eq!(order_hash(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x6D59_8385_7376_9495);
    }
}
