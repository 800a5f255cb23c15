//! Which sample stands at which position of an epoch: a function of (order, length, seed, epoch, position) alone.
//!
//! | order | one epoch | memory | file |
//! | --- | --- | --- | --- |
//! | sequential | every sample, as they lie | none | this one |
//! | shuffle | every sample, any position as likely as any other | none | [`permutation`] |
//! | block | every sample, neighbours stay near | none | [`block`] |
//! | weighted | draws with replacement | 16 bytes a sample | [`weighted`] |
//! | distinct | weighted draws without replacement | 8 bytes a sample and 16 a draw | [`distinct`] |
//! | balanced | each class equally often | 8 bytes a sample | [`balanced`] |
//! | subset | another order over listed samples | 8 bytes a listed sample | [`subset`] |
//!
//! The orders are pinned by `tests/golden.rs`. Whoever changes one on purpose raises its version below, so
//! that a cursor saved under the old order is refused and does not continue in the new one.

pub mod balanced;
pub mod block;
pub mod distinct;
pub mod permutation;
pub mod subset;
pub mod weighted;

pub use balanced::Balanced;
pub use block::Block;
pub use distinct::Distinct;
pub use permutation::Permutation;
pub use subset::Subset;
pub use weighted::Weighted;

use crate::random::{key, splitmix64};
use crate::{Error, ErrorKind, Result};

/// Version of the orders that are made of a [`Permutation`]. Version 1 had odd radices, and with them almost
/// only permutations of one parity.
const SHUFFLED: u64 = 2;
/// Version of all other orders.
const VERSION: u64 = 1;

/// The longest data set and the most positions an epoch can have.
pub const MAX_LEN: u64 = 1 << 63;

/// The order of an epoch's samples; cheap to clone, the same on every machine.
///
/// ```
/// use feedline_core::Sampler;
/// let mut ids = [0; 10];
/// Sampler::Shuffle.fill(10, 7, 0, 0, &mut ids);
/// let third = Sampler::Shuffle.id(10, 7, 0, 3);
/// assert_eq!(third, ids[3]);
/// ids.sort();
/// assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Sampler {
    /// Every sample as they lie, the same in every epoch.
    Sequential,
    /// Every sample once, shuffled over the whole set, anew in every epoch; constant memory for any length.
    Shuffle,
    /// Every sample once, blocks shuffled and windows shuffled inside; see [`Sampler::block`].
    Block(Block),
    /// Draws in proportion to weights, with replacement; see [`Sampler::weighted`].
    Weighted(Weighted),
    /// Draws in proportion to weights, none twice; see [`Sampler::distinct`].
    Distinct(Distinct),
    /// Each class equally often; see [`Sampler::balanced`].
    Balanced(Balanced),
    /// Another order over some of the samples; see [`Sampler::subset`].
    Subset(Subset),
}

impl Sampler {
    /// Blocks of `block` neighbouring samples in random order, then windows of `window` positions shuffled inside:
    /// for data that is read faster from neighbouring places.
    ///
    /// # Errors
    /// `Config` when either is 0.
    pub fn block(block: u64, window: u64) -> Result<Self> {
        Block::new(block, window).map(Self::Block)
    }

    /// As many draws as there are weights, with replacement: sample `i` in proportion to `weights[i]`.
    ///
    /// # Errors
    /// `Config`, naming the index, for a weight that is negative, NaN or infinite; and when all are zero.
    pub fn weighted(weights: &[f64]) -> Result<Self> {
        Weighted::new(weights).map(Self::Weighted)
    }

    /// Every sample with a weight above zero once, heavy ones early; fewer with [`draws`](Self::draws).
    ///
    /// # Errors
    /// As [`weighted`](Self::weighted).
    pub fn distinct(weights: &[f64]) -> Result<Self> {
        Distinct::new(weights).map(Self::Distinct)
    }

    /// Each of `classes` classes equally often; `labels[i]` is the class of sample `i`. The default number of draws
    /// shows every sample of the largest class once.
    ///
    /// # Errors
    /// `Config`, naming the index, for a label that is not below `classes`; naming the class for one without samples.
    pub fn balanced(labels: &[u32], classes: u32) -> Result<Self> {
        Balanced::new(labels, classes).map(Self::Balanced)
    }

    /// `inner` over the samples `ids`: what `inner` calls sample `i` is sample `ids[i]`.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::subset(vec![30, 10, 20], Sampler::Sequential)?;
    /// assert_eq!((sampler.len(100), sampler.id(100, 0, 0, 1)), (3, 10));
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for an empty list.
    pub fn subset(ids: Vec<u64>, inner: Self) -> Result<Self> {
        Subset::new(ids, inner).map(Self::Subset)
    }

    /// Sets the positions of an epoch, for the orders that draw: weighted, distinct, balanced.
    ///
    /// # Errors
    /// `Config` for 0, for more than [`MAX_LEN`], for more distinct draws than weights above zero,
    /// and for an order whose epoch is as long as its set.
    pub fn draws(self, draws: u64) -> Result<Self> {
        if draws == 0 || draws > MAX_LEN {
            return Err(config(format!("{draws} draws an epoch: take 1 to 2^63")));
        }
        match self {
            Self::Weighted(sampler) => Ok(Self::Weighted(sampler.draws(draws))),
            Self::Distinct(sampler) => sampler.draws(draws).map(Self::Distinct),
            Self::Balanced(sampler) => Ok(Self::Balanced(sampler.draws(draws))),
            _ => Err(config(
                "the epoch of this order is as long as its set: draws are for weighted, distinct and balanced",
            )),
        }
    }

    /// Whether this order fits a data set of `len` samples.
    ///
    /// # Errors
    /// `Config` for an empty set, one above [`MAX_LEN`], weights or labels of another number than samples,
    /// and listed ids that the set does not have.
    pub fn check(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Err(config("the data set is empty: there is nothing to order"));
        }
        if len > MAX_LEN {
            return Err(config(format!("the data set has {len} samples: the most is 2^63")));
        }
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) => Ok(()),
            Self::Weighted(sampler) => same_count("weights", sampler.samples(), len),
            Self::Distinct(sampler) => same_count("weights", sampler.samples(), len),
            Self::Balanced(sampler) => same_count("labels", sampler.samples(), len),
            Self::Subset(sampler) => sampler.check(len),
        }
    }

    /// Positions of an epoch over a data set of `len` samples.
    pub fn len(&self, len: u64) -> u64 {
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) => len,
            Self::Weighted(sampler) => sampler.len(),
            Self::Distinct(sampler) => sampler.len(),
            Self::Balanced(sampler) => sampler.len(),
            Self::Subset(sampler) => sampler.len(),
        }
    }

    /// The sample at `position`; for more than a few, [`fill`](Self::fill) is faster.
    ///
    /// # Panics
    /// As [`fill`](Self::fill).
    pub fn id(&self, len: u64, seed: u64, epoch: u64, position: u64) -> u64 {
        let mut id = [0];
        self.fill(len, seed, epoch, position, &mut id);
        id[0]
    }

    /// Writes the samples at positions `start`, `start + 1`, ... of `epoch` into `out`.
    ///
    /// Allocates nothing, but for the first call in an epoch of [`Distinct`], which draws the whole epoch.
    ///
    /// # Panics
    /// When the run does not end within [`len(len)`](Self::len), or the order does not pass [`check(len)`](Self::check).
    pub fn fill(&self, len: u64, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let positions = self.len(len);
        let end = start.checked_add(out.len() as u64);
        assert!(end.is_some_and(|end| end <= positions), "positions {start}.. of {positions}");
        match self {
            Self::Sequential => out.iter_mut().zip(start..).for_each(|(id, position)| *id = position),
            Self::Shuffle if out.is_empty() => {}
            Self::Shuffle => {
                Permutation::new(len, key(&[seed, epoch, tag(b"shuffle ")])).fill(start, out);
            }
            Self::Block(sampler) => sampler.fill(len, seed, epoch, start, out),
            Self::Weighted(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Distinct(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Balanced(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Subset(sampler) => sampler.fill(seed, epoch, start, out),
        }
    }

    /// Whether an epoch holds every sample of the set exactly once.
    pub fn is_permutation(&self) -> bool {
        matches!(self, Self::Sequential | Self::Shuffle | Self::Block(_))
    }

    /// Whether a sample may come twice in an epoch.
    pub fn repeats(&self) -> bool {
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) | Self::Distinct(_) => false,
            Self::Weighted(_) | Self::Balanced(_) => true,
            Self::Subset(sampler) => sampler.repeats(),
        }
    }

    /// A number that tells this order over `len` samples from another; a cursor is refused when it differs.
    pub fn digest(&self, len: u64) -> u64 {
        self.digest_of_version(len, SHUFFLED)
    }

    /// The digest that this order had under the version of the shuffle before this one, so that a cursor of
    /// it can be refused with the reason.
    pub(crate) fn former_digest(&self, len: u64) -> u64 {
        self.digest_of_version(len, SHUFFLED - 1)
    }

    fn digest_of_version(&self, len: u64, shuffled: u64) -> u64 {
        let (version, kind) = match self {
            Self::Sequential => (VERSION, key(&[1])),
            Self::Shuffle => (shuffled, key(&[2])),
            Self::Block(sampler) => (shuffled, key(&[3, sampler.digest()])),
            Self::Weighted(sampler) => (VERSION, key(&[4, sampler.digest()])),
            Self::Distinct(sampler) => (VERSION, key(&[5, sampler.digest()])),
            Self::Balanced(sampler) => (shuffled, key(&[6, sampler.digest()])),
            Self::Subset(sampler) => (VERSION, key(&[7, sampler.digest_of_version(shuffled)])),
        };
        key(&[version, len, kind])
    }
}

/// Sets the random numbers of one use apart from those of another.
const fn tag(name: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*name)
}

fn digest(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, |state, part| splitmix64(state ^ part))
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

fn same_count(what: &str, have: u64, len: u64) -> Result<()> {
    if have == len {
        return Ok(());
    }
    Err(config(format!("{have} {what} for {len} samples: give one for each sample")))
}
