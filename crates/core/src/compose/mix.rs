//! Several sets by weights, each with epochs of its own.

use std::fmt;
use std::sync::Arc;

use crate::compose::{Parts, check_id, check_len, common_spec, config};
use crate::random::key;
use crate::sampler::Permutation;
use crate::{Context, Dataset, Fingerprint, Prefetched, ReadError, Result, Row, Rows, Spec, StableDataset};

/// Length of the pattern in which the sets alternate: shares are exact to one in this number.
const PERIOD: usize = 1 << 16;

/// Several sets with the same fields, by weights, spread evenly over the epoch; made by [`Mix::builder`].
///
/// The limits of ragged fields may differ: those of the mix are the largest.
///
/// # Which sample is where
///
/// - Every position of an epoch belongs to one set. Of every 65,536 positions each set has its share,
///   rounded to whole positions, and they are spread evenly: of the first `n` positions, each set has its
///   share of `n` to within the number of sets. The pattern is a function of the weights alone.
/// - Each set has epochs of its own. Its epoch 0 begins with its first draw in epoch 0 of the run. One epoch
///   of a set has as many draws as the set has samples: each sample comes exactly once, in an order shuffled
///   by the seed, the set and the set's epoch.
/// - The set's epochs continue across epochs of the run: if the epoch ends midway through a set, the next
///   epoch resumes there. A large set with a small weight is seen whole, over several epochs; a small set
///   with a large weight comes several times within one.
///
/// So sample `id` of the mix depends on the epoch, and a loader that shuffles the mix delivers the same
/// samples in each epoch as one that does not. Random numbers are keyed by the loader's epoch and draw, so a
/// sample that comes again within an epoch gets different ones.
///
/// ```
/// use feedline_core::compose::{InMemory, Mix};
/// use feedline_core::Dataset;
///
/// let real = InMemory::new().field("x", [], [0_u8; 90])?;
/// let drawn = InMemory::new().field("x", [], [1_u8; 10])?;
/// let mix = Mix::builder(7).dataset(real, 3.0).dataset(drawn, 1.0).build()?;
/// assert_eq!((mix.len(), mix.draws(1)), (100, 25));
/// assert_eq!((0..8).map(|id| mix.place(0, id).unwrap().0).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0, 1, 0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Mix {
    parts: Vec<StableDataset>,
    spec: Spec,
    /// For each position within a period: its set, and the number of positions before it that belong to that
    /// set.
    pattern: Vec<(u32, u32)>,
    /// Positions of each set in a period; they add up to the period.
    shares: Vec<u64>,
    /// Draws of each set in an epoch of the mix.
    draws: Vec<u64>,
    len: u64,
    seed: u64,
}

/// The sets of a [`Mix`], and its length.
#[derive(Default)]
pub struct MixBuilder {
    parts: Vec<StableDataset>,
    weights: Vec<f64>,
    len: Option<u64>,
    seed: u64,
}

impl MixBuilder {
    /// Adds a set; its share is its weight divided by the sum of all weights.
    pub fn dataset(mut self, set: impl Dataset, weight: f64) -> Self {
        self.parts.push(StableDataset::new(Arc::new(set)));
        self.weights.push(weight);
        self
    }

    /// The number of samples of an epoch of the mix. Default: that of all sets together.
    pub fn samples(self, samples: u64) -> Self {
        Self { len: Some(samples), ..self }
    }

    /// The mix.
    ///
    /// # Errors
    /// `Config` for no sets, sets with different fields, an empty set, a weight that is not above zero, a share
    /// below one in 65,536, or more than 2^63 samples.
    pub fn build(self) -> Result<Mix> {
        let Self { parts, weights, len, seed } = self;
        let spec = common_spec("mix", &parts)?;
        if let Some(empty) = parts.iter().position(|part| part.len() == 0) {
            return Err(config(format!("part {empty} of the mix is empty: leave it out")));
        }
        let shares = shares(&weights)?;
        let sum = || parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.len()));
        let len = check_len("mix", len.or_else(sum))?;
        let pattern = pattern(&shares);
        let mut mix = Mix { parts, spec, pattern, shares, draws: Vec::new(), len, seed };
        mix.draws = (0..mix.parts.len()).map(|part| mix.draws_before(part, len)).collect();
        Ok(mix)
    }
}

impl Mix {
    /// A mix without sets; `seed` shuffles the epochs of each set.
    pub fn builder(seed: u64) -> MixBuilder {
        MixBuilder { seed, ..MixBuilder::default() }
    }

    /// The number of samples of set `part` in an epoch of the mix.
    ///
    /// # Panics
    /// If there is no such set.
    pub fn draws(&self, part: usize) -> u64 {
        self.draws[part]
    }

    /// The set of sample `id` in `epoch`, and its id in that set; `None` if there is no such sample.
    pub fn place(&self, epoch: u64, id: u64) -> Option<(usize, u64)> {
        if id >= self.len {
            return None;
        }
        let (part, before) = self.pattern[(id % PERIOD as u64) as usize];
        let part = part as usize;
        let draw = id / PERIOD as u64 * self.shares[part] + u64::from(before);
        // Counted from epoch 0 on, in a number type that no epoch overflows.
        let draw = u128::from(epoch) * u128::from(self.draws[part]) + u128::from(draw);
        let len = u128::from(self.parts[part].len());
        let (round, position) = ((draw / len) as u64, (draw % len) as u64);
        let order = key(&[self.seed, part as u64, round, u64::from_le_bytes(*b"mixed in")]);
        Some((part, Permutation::new(len as u64, order).at(position)))
    }

    /// The number of positions of set `part` among the first `positions`.
    fn draws_before(&self, part: usize, positions: u64) -> u64 {
        let (periods, rest) = (positions / PERIOD as u64, (positions % PERIOD as u64) as usize);
        let of_rest = self.pattern[..rest].iter().filter(|(set, _)| *set as usize == part).count();
        periods * self.shares[part] + of_rest as u64
    }

    fn parts(&self) -> Parts<'_> {
        Parts { names_file: true, ..Parts::new("mix", &self.parts) }
    }

    fn existing(&self, epoch: u64, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len)?;
        Ok(self.place(epoch, id).unwrap_or_default())
    }
}

/// Whole positions of a period for each weight, by the method of the largest remainder.
fn shares(weights: &[f64]) -> Result<Vec<u64>> {
    let sum: f64 = weights.iter().sum();
    if let Some(bad) = weights.iter().position(|&weight| !weight.is_finite() || weight <= 0.0) {
        let weight = weights[bad];
        return Err(config(format!("part {bad} of the mix has weight {weight}: it must be above 0")));
    }
    if !sum.is_finite() {
        return Err(config("the weights of the mix are too large to be added".to_owned()));
    }
    let exact: Vec<f64> = weights.iter().map(|weight| weight / sum * PERIOD as f64).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
    let mut by_rest: Vec<usize> = (0..weights.len()).collect();
    by_rest.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    let left = (PERIOD as u64).saturating_sub(shares.iter().sum());
    by_rest.iter().cycle().take(left as usize).for_each(|&part| shares[part] += 1);
    if let Some(none) = shares.iter().position(|&share| share == 0) {
        let why = format!("part {none} of the mix has less than 1 of {PERIOD} samples: raise its weight");
        return Err(config(why));
    }
    Ok(shares)
}

/// Spreads the shares evenly: the set furthest behind its share comes next.
fn pattern(shares: &[u64]) -> Vec<(u32, u32)> {
    let mut behind = vec![0_i64; shares.len()];
    let mut drawn = vec![0_u32; shares.len()];
    let next = |_| {
        let mut furthest = 0;
        for part in 0..shares.len() {
            behind[part] += shares[part] as i64;
            if behind[part] > behind[furthest] {
                furthest = part;
            }
        }
        behind[furthest] -= PERIOD as i64;
        drawn[furthest] += 1;
        (furthest as u32, drawn[furthest] - 1)
    };
    (0..PERIOD).map(next).collect()
}

impl Dataset for Mix {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.parts().read(self.existing(context.epoch(), id)?, row, context)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        let epoch = context.epoch();
        self.parts().read_many(ids, rows, context, |id| self.existing(epoch, id))
    }

    fn has_random_geometry(&self) -> bool {
        self.parts.iter().any(Dataset::has_random_geometry)
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        let epoch = context.epoch();
        self.parts().prefetch(ids, context, |id| self.existing(epoch, id))
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"mix").number(self.seed).number(self.len);
        let parts = self.parts.iter().zip(&self.shares);
        let add = |state: Fingerprint, (part, &share): (&StableDataset, &u64)| {
            state.number(share).number(part.len()).number(part.fingerprint())
        };
        parts.fold(state, add).value()
    }
}

impl fmt::Debug for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mix({} samples of {} parts)", self.len, self.parts.len())
    }
}

impl fmt::Debug for MixBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MixBuilder({} parts by {:?})", self.parts.len(), self.weights)
    }
}
