//! The order of the samples of an epoch: a function of only (sampler, length, seed, epoch, position).
//!
//! | sampler | one epoch | memory | file |
//! | --- | --- | --- | --- |
//! | sequential | every sample, in order of ids | none | this one |
//! | shuffle | every sample, uniformly shuffled | none | [`permutation`] |
//! | block | every sample, neighbours stay close | none | [`block`] |
//! | weighted | draws with replacement | 16 bytes per sample | [`weighted`] |
//! | without replacement | weighted, distinct | 8 bytes per sample, 16 per draw | [`without_replacement`] |
//! | balanced | each class equally often | 8 bytes per sample | [`balanced`] |
//! | bucketed | every sample, batches of similar lengths | 8 bytes per sample | [`bucketed`] |
//! | subset | another sampler over listed samples | 8 bytes per listed sample | [`subset`] |
//! | grouped | another sampler over groups of consecutive samples | that of the sampler | [`grouped`] |
//! | batches | the batches that a function of yours names | 16 bytes per sample and step | [`batches`] |
//! | by epoch | another sampler from an epoch on | those of the samplers | [`by_epoch`] |
//! | custom | the samples that a function of yours names | that of the function | [`custom`] |
//!
//! `tests/logic/golden.rs` fixes the orders. If you change one on purpose, raise its version below, so that a
//! cursor saved under the old order is rejected and does not continue in the new one.

pub mod balanced;
pub mod batches;
pub mod block;
pub mod bucketed;
pub mod by_epoch;
pub mod custom;
pub mod grouped;
pub mod permutation;
pub mod subset;
pub mod weighted;
pub mod without_replacement;

pub use balanced::Balanced;
pub use batches::Batches;
pub use block::Block;
pub use bucketed::Bucketed;
pub use by_epoch::ByEpoch;
pub use custom::Custom;
pub use grouped::Grouped;
pub use permutation::Permutation;
pub use subset::Subset;
pub use weighted::Weighted;
pub use without_replacement::WithoutReplacement;

use crate::random::{key, splitmix64};
use crate::{Error, ErrorKind, ReadError, Result};

/// Version of the samplers that use a [`Permutation`]. Version 1 had odd radices, and so almost only
/// permutations of one parity.
const SHUFFLED: u64 = 2;
/// Version of all other samplers.
const VERSION: u64 = 1;

/// The maximum length of a data set, and the maximum number of positions of an epoch.
pub const MAX_LEN: u64 = 1 << 63;

/// The order of an epoch's samples. Cheap to clone; the same on every machine.
///
/// ```
/// use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Sampler, World};
/// let options = BatchSamplerOptions {
///     len: 10,
///     sampler: Sampler::Shuffle,
///     seed: 7,
///     batch: 10,
///     last_batch: LastBatch::Keep,
///     world: World::single(),
/// };
/// let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
/// batch_sampler.batch(0, 0, 0, &mut ids); // the samples of epoch 0, in one batch
/// ids.sort();
/// assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Sampler {
    /// Every sample in order of ids, the same in every epoch.
    Sequential,
    /// Every sample once, shuffled over the whole data set, differently in each epoch; constant memory for
    /// any length.
    Shuffle,
    /// Every sample once, with shuffled blocks and shuffled windows; see [`Sampler::block`].
    Block(Block),
    /// Draws in proportion to weights, with replacement; see [`Sampler::weighted`].
    Weighted(Weighted),
    /// Draws in proportion to weights, without replacement; see [`Sampler::weighted_without_replacement`].
    WithoutReplacement(WithoutReplacement),
    /// Each class equally often; see [`Sampler::balanced`].
    Balanced(Balanced),
    /// Every sample once, in batches of similar lengths; see [`Sampler::bucketed`].
    Bucketed(Bucketed),
    /// Another sampler over some of the samples; see [`Sampler::subset`].
    Subset(Subset),
    /// A different sampler from some epoch on; see [`Sampler::by_epoch`].
    ByEpoch(ByEpoch),
    /// A function of yours; see [`Sampler::custom`].
    Custom(Custom),
    /// Another sampler over groups of samples; see [`Sampler::grouped`].
    Grouped(Grouped),
    /// The batches that a function of yours names; see [`Sampler::batches`].
    Batches(Batches),
}

impl Sampler {
    /// Blocks of `block` consecutive samples in random order, then shuffled within windows of `window`
    /// positions: for storage that reads consecutive samples faster.
    ///
    /// # Errors
    /// `Config` when either is 0.
    pub fn block(block: u64, window: u64) -> Result<Self> {
        Block::new(block, window).map(Self::Block)
    }

    /// Draws sample `i` in proportion to `weights[i]`, with replacement. An epoch has as many draws as there
    /// are weights, unless [`draws`](Self::draws) sets another number; a sample may occur several times, or
    /// not at all. Each draw has its own random numbers ([`Context::draw`](crate::Context::draw)).
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::weighted(&[1.0, 2.0, 9.0])?;
    /// assert_eq!(format!("{sampler:?}"), "Weighted(3 weights, 3 draws per epoch)");
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` when a weight is negative, NaN or infinite (the message has its index), or all weights are
    /// zero.
    pub fn weighted(weights: &[f64]) -> Result<Self> {
        Weighted::new(weights).map(Self::Weighted)
    }

    /// Draws every sample with a weight above zero once, those with large weights earlier on average. So an
    /// epoch has as many draws as weights above zero; set [`draws`](Self::draws) for fewer.
    ///
    /// # Errors
    /// As for [`weighted`](Self::weighted).
    pub fn weighted_without_replacement(weights: &[f64]) -> Result<Self> {
        WithoutReplacement::new(weights).map(Self::WithoutReplacement)
    }

    /// Each of `classes` classes equally often; `labels[i]` is the class of sample `i`. An epoch has
    /// `classes` times as many draws as the largest class has samples: every sample of that class occurs
    /// once, those of smaller classes several times, each time with other random numbers
    /// ([`Context::draw`](crate::Context::draw)). [`draws`](Self::draws) sets another number.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let labels = [0, 0, 0, 0, 0, 1]; // five samples of class 0, one of class 1
    /// let sampler = Sampler::balanced(&labels, 2)?;
    /// assert_eq!(format!("{sampler:?}"), "Balanced(6 samples, 2 classes, 10 draws per epoch)");
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` when a label is not below `classes` (the message has its index), or a class has no samples.
    pub fn balanced(labels: &[u32], classes: u32) -> Result<Self> {
        Balanced::new(labels, classes).map(Self::Balanced)
    }

    /// Every sample once, in batches of `batch` samples of similar lengths, so that padded batches have
    /// little padding; `lengths[i]` is the length of sample `i`. A batch is a random part of a bucket of
    /// `batches_per_bucket` batches, and the batches of an epoch are in random order.
    ///
    /// `batch` is the batch size of the loader. With several ranks that wait for each other at every step, it
    /// is the batch size times the number of ranks, so that the ranks of a step have similar lengths. A
    /// loader with any other batch size is refused: its batches would mix lengths. More batches per bucket
    /// mix more samples and pad more; with 1, batches have the same samples in nearly every epoch.
    /// [`BatchSampler::padding_share`](crate::BatchSampler::padding_share) counts the padding.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let lengths = [9, 1, 8, 2, 9, 1, 8, 2];
    /// let sampler = Sampler::bucketed(&lengths, 4, 1)?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 8,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 4,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of the first batch.
    /// ids.sort();
    /// assert!(ids == [0, 2, 4, 6] || ids == [1, 3, 5, 7]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a batch size or a number of batches of 0.
    pub fn bucketed(lengths: &[u32], batch: u64, batches_per_bucket: u64) -> Result<Self> {
        Bucketed::new(lengths, batch, batches_per_bucket).map(Self::Bucketed)
    }

    /// Every sample once, in runs of `run` samples of similar cost, so that the ranks of a step have nearly
    /// equal work; `costs[i]` is the cost of sample `i`, such as [`Packed::costs`](crate::Packed::costs). The
    /// runs of an epoch are in random order. Within one, the cost rises or falls, and neighbours are
    /// shuffled.
    ///
    /// A step takes as many samples as all ranks together. Its costs are similar if the steps divide a run:
    /// with batches of one sample, a run of 24 does for worlds of 1, 2, 3, 4, 6, 8, 12 and 24 ranks, and a
    /// cursor may be resumed by any of them.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::alike(&[9, 1, 8, 2], 2)?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 4,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 2,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of the first run.
    /// ids.sort();
    /// assert!(ids == [0, 2] || ids == [1, 3]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for runs of 0 samples.
    pub fn alike(costs: &[u32], run: u64) -> Result<Self> {
        Bucketed::of_runs(costs, run).map(Self::Bucketed)
    }

    /// `inner` over the samples `ids`: index `i` of `inner` is sample `ids[i]`.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::subset(vec![30, 10, 20], Sampler::Sequential)?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 100,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 3,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of epoch 0.
    /// assert_eq!(ids, [30, 10, 20]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for an empty list.
    pub fn subset(ids: Vec<u64>, inner: Self) -> Result<Self> {
        Subset::new(ids, inner).map(Self::Subset)
    }

    /// `inner` over groups of `size` consecutive samples: index `i` of `inner` is the samples `i * size` to
    /// `i * size + size - 1`, which follow each other in this order. A batch has whole groups: the batch size
    /// must be a multiple of `size`, and the ranks share a short last step by groups.
    ///
    /// A loader orders the copies of [`Dataset::repeated`](crate::Dataset::repeated) like this on its own.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::grouped(2, Sampler::Shuffle)?; // the samples are pairs: 0 and 1, 2 and 3, ...
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 100,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 4,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of the first batch.
    /// assert_eq!((ids[1], ids[3]), (ids[0] + 1, ids[2] + 1));
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for groups of 0 samples, and for groups of groups.
    pub fn grouped(size: u64, inner: Self) -> Result<Self> {
        Grouped::new(size, inner).map(Self::Grouped)
    }

    /// Changes the sampler by epoch, such as for a curriculum: each of `spans` is an epoch, and the sampler
    /// from that epoch on. All must have the same number of samples per epoch: set it by
    /// [`draws`](Self::draws).
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let easy = Sampler::weighted(&[1.0, 1.0, 0.0, 0.0])?; // two of four samples
    /// let sampler = Sampler::by_epoch([(0, easy), (2, Sampler::Shuffle)])?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 4,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 4,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(1, 0, 0, &mut ids);
    /// // `ids` are the samples of epoch 1.
    /// assert!(ids.iter().all(|&id| id < 2));
    /// # batch_sampler.batch(2, 0, 0, &mut ids);
    /// // Of epoch 2:
    /// ids.sort();
    /// assert_eq!(ids, [0, 1, 2, 3]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` if the first span does not begin at epoch 0, or the others are not in order.
    pub fn by_epoch(spans: impl Into<Vec<(u64, Self)>>) -> Result<Self> {
        ByEpoch::new(spans.into()).map(Self::ByEpoch)
    }

    /// An order of your own: `order(epoch, position)` is the sample at `position` of `epoch`, which has
    /// positions from 0 to `per_epoch - 1`. It may name a sample several times, or not at all.
    ///
    /// A cursor holds a hash of `name` and `per_epoch`, and fits no loader with others: change the name when
    /// you change the order. Several threads call it, in any order, also for positions of later epochs.
    ///
    /// `order` must always return the same for the same arguments. A loader calls it when it reads a batch,
    /// ahead of the training and into the next epoch, and again on the training loop's thread when it
    /// delivers the batch. If that gives another id, because the order is random or follows losses that have
    /// changed meanwhile, the loop gets an error in place of the batch. `docs/data.md` shows an order by
    /// losses (hard examples): a loader for each epoch.
    ///
    /// A batch for which it panics, or returns an id that the data set does not have, ends the run with an
    /// error that names epoch and position.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::custom("every second, from the end", 5, |_epoch, position| 9 - 2 * position)?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 10,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 5,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::single(),
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of epoch 0.
    /// assert_eq!(ids, [9, 7, 5, 3, 1]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for an empty name, and for a `per_epoch` of 0 or above [`MAX_LEN`].
    pub fn custom(
        name: impl Into<String>,
        per_epoch: u64,
        order: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Result<Self> {
        Custom::new(name.into(), per_epoch, order).map(Self::Custom)
    }

    /// Batches of your own: `function(epoch, step)` names the samples of step `step` of `epoch`, which has
    /// `steps` steps over all ranks. Rank `r` of `n` takes the steps `r`, `r + n`, ...: so a run resumes at a
    /// step, also with another number of ranks. A batch has 1 to as many samples as the batch size of the
    /// loader. With [`LastBatch::Keep`](crate::LastBatch::Keep) a rank without a batch in the last step gets
    /// one from the beginning of the epoch, without valid rows.
    ///
    /// With `repeats`, a sample may come several times in an epoch, each time with other random numbers; else
    /// that is an error. Samples may be left out.
    ///
    /// The function must depend on its arguments alone. It is called for all steps of an epoch at once, in
    /// order, by a thread of the loader that reads ahead; and for epoch 0 here, twice. A cursor holds a hash
    /// of the batches of epoch 0 and the batch size of the loader, and fits no loader with others.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// let sampler = Sampler::batches(3, false, |_epoch, step| Ok(vec![2 * step, 2 * step + 1]))?;
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, World};
    /// # let options = BatchSamplerOptions {
    /// #     len: 100,
    /// #     sampler,
    /// #     seed: 7,
    /// #     batch: 4,
    /// #     last_batch: LastBatch::Keep,
    /// #     world: World::new(1, 3)?,
    /// # };
    /// # let (batch_sampler, mut ids) = (BatchSampler::new(options)?, Vec::new());
    /// # batch_sampler.batch(0, 0, 0, &mut ids);
    /// // `ids` are the samples of the first batch of rank 1 of 3.
    /// assert_eq!(ids, [2, 3]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for 0 steps, for an error of the function, for batches without samples, samples that come
    /// twice, and for a function that gives other batches for epoch 0 in the second call. A later epoch that
    /// has such an error, a batch that is too large, or an id that the data set does not have, ends the run
    /// with it.
    pub fn batches(
        steps: u64,
        repeats: bool,
        function: impl Fn(u64, u64) -> Result<Vec<u64>, ReadError> + Send + Sync + 'static,
    ) -> Result<Self> {
        Batches::new(steps, repeats, function).map(Self::Batches)
    }

    /// Sets the number of positions of an epoch, for weighted and balanced samplers.
    ///
    /// # Errors
    /// `Config` for 0, for more than [`MAX_LEN`], for more draws without replacement than weights above zero,
    /// and for any other sampler.
    pub fn draws(self, draws: u64) -> Result<Self> {
        if draws == 0 || draws > MAX_LEN {
            return Err(config(format!("{draws} draws per epoch: use 1 to 2^63")));
        }
        match self {
            Self::Weighted(sampler) => Ok(Self::Weighted(sampler.draws(draws))),
            Self::WithoutReplacement(sampler) => sampler.draws(draws).map(Self::WithoutReplacement),
            Self::Balanced(sampler) => Ok(Self::Balanced(sampler.draws(draws))),
            _ => Err(config(
                "draws are for weighted and balanced samplers: this sampler's epoch is as long \
                 as its data set",
            )),
        }
    }

    /// Whether a function of the program gives ids, which may differ in a second call.
    pub(crate) fn is_custom(&self) -> bool {
        match self {
            Self::Custom(_) => true,
            Self::Subset(sampler) => sampler.inner().is_custom(),
            Self::Grouped(sampler) => sampler.inner().is_custom(),
            Self::ByEpoch(sampler) => sampler.all().any(Self::is_custom),
            _ => false,
        }
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl Sampler {
    /// This sampler for a loader whose batches have up to `batch` samples, which [batches](Self::batches) of
    /// your own need to know.
    pub fn with_batch(self, batch: usize) -> Self {
        match self {
            Self::Batches(sampler) => Self::Batches(sampler.with_batch(batch as u64)),
            Self::ByEpoch(sampler) => Self::ByEpoch(sampler.with_batch(batch)),
            other => other,
        }
    }

    /// Whether batches are named as such, and may be shorter than the batch size in any step.
    pub fn names_batches(&self) -> bool {
        match self {
            Self::Batches(_) => true,
            Self::ByEpoch(sampler) => sampler.all().any(Self::names_batches),
            Self::Subset(sampler) => sampler.inner().names_batches(),
            _ => false,
        }
    }

    /// Why [batches](Self::batches) of your own have none in `epoch` for a data set of `len` samples.
    pub(crate) fn fault(&self, len: u64, epoch: u64) -> Option<Error> {
        match self {
            Self::Batches(sampler) => sampler.fault(len, epoch),
            Self::ByEpoch(sampler) => sampler.of(epoch).fault(len, epoch),
            _ => None,
        }
    }

    /// Checks that this sampler fits a data set of `len` samples.
    ///
    /// # Errors
    /// `Config` for an empty data set, one longer than [`MAX_LEN`], a number of weights or labels other than
    /// `len`, listed ids or ids of your own batches that the data set does not have, and a last group that is
    /// not whole.
    pub fn check(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Err(config("the data set is empty: add samples"));
        }
        if len > MAX_LEN {
            return Err(config(format!("the data set has {len} samples: the maximum is 2^63")));
        }
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) => Ok(()),
            Self::Weighted(sampler) => same_count("weights", sampler.samples(), len),
            Self::WithoutReplacement(sampler) => same_count("weights", sampler.samples(), len),
            Self::Balanced(sampler) => same_count("labels", sampler.samples(), len),
            Self::Bucketed(sampler) => same_count("lengths", sampler.samples(), len),
            Self::Subset(sampler) => sampler.check(len),
            Self::ByEpoch(sampler) => sampler.check(len),
            Self::Grouped(sampler) => sampler.check(len),
            Self::Batches(sampler) => sampler.check(len),
            // Its samples are checked when they are drawn.
            Self::Custom(_) => Ok(()),
        }
    }

    /// Number of positions of an epoch over a data set of `len` samples.
    pub fn len(&self, len: u64) -> u64 {
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) => len,
            Self::Weighted(sampler) => sampler.len(),
            Self::WithoutReplacement(sampler) => sampler.len(),
            Self::Balanced(sampler) => sampler.len(),
            Self::Bucketed(sampler) => sampler.samples(),
            Self::Subset(sampler) => sampler.len(),
            Self::ByEpoch(sampler) => sampler.of(0).len(len),
            Self::Custom(sampler) => sampler.len(),
            Self::Grouped(sampler) => sampler.len(len),
            Self::Batches(sampler) => sampler.len(),
        }
    }

    /// The sample at `position`. For many positions, [`fill`](Self::fill) is faster.
    ///
    /// # Panics
    /// As for [`fill`](Self::fill).
    pub fn id(&self, len: u64, seed: u64, epoch: u64, position: u64) -> u64 {
        let mut id = [0];
        self.fill(len, seed, epoch, position, &mut id);
        id[0]
    }

    /// Writes the samples at positions `start`, `start + 1`, ... of `epoch` into `out`.
    ///
    /// Does not allocate, except that the first call in an epoch of [`WithoutReplacement`] draws the whole
    /// epoch.
    ///
    /// # Panics
    /// If the positions exceed [`len(len)`](Self::len), or the sampler fails [`check(len)`](Self::check).
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
            Self::WithoutReplacement(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Balanced(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Bucketed(sampler) => sampler.fill(seed, epoch, start, out),
            Self::Subset(sampler) => sampler.fill(seed, epoch, start, out),
            Self::ByEpoch(sampler) => sampler.of(epoch).fill(len, seed, epoch, start, out),
            Self::Custom(sampler) => sampler.fill(len, epoch, start, out),
            Self::Grouped(sampler) => sampler.fill(len, seed, epoch, start, out),
            Self::Batches(sampler) => sampler.fill(len, epoch, start, out),
        }
    }

    /// Number of consecutive positions that no batch and no rank may divide: the size of a
    /// [group](Self::grouped), or of the largest of your own [batches](Self::batches); 1 for other samplers.
    pub fn unit(&self) -> u64 {
        match self {
            Self::Grouped(sampler) => sampler.size(),
            Self::Batches(sampler) => sampler.batch(),
            Self::Subset(sampler) => sampler.inner().unit(),
            Self::ByEpoch(sampler) => sampler.of(0).unit(),
            _ => 1,
        }
    }

    /// The order of the groups of a [grouped](Self::grouped) sampler; any other sampler itself.
    pub fn of_groups(&self) -> &Self {
        if let Self::Grouped(sampler) = self { sampler.inner() } else { self }
    }

    /// Samples of the batches that [`bucketed`](Self::bucketed) makes; `None` for other samplers.
    pub fn bucketed_batch(&self) -> Option<u64> {
        match self {
            Self::Bucketed(sampler) => sampler.batch_of_loader(),
            Self::Subset(sampler) => sampler.inner().bucketed_batch(),
            Self::ByEpoch(sampler) => sampler.all().find_map(Self::bucketed_batch),
            Self::Grouped(sampler) => Some(sampler.inner().bucketed_batch()?.saturating_mul(sampler.size())),
            _ => None,
        }
    }

    /// Whether an epoch contains every sample of the data set exactly once.
    pub fn is_permutation(&self) -> bool {
        match self {
            Self::ByEpoch(sampler) => sampler.all().all(Self::is_permutation),
            Self::Grouped(sampler) => sampler.inner().is_permutation(),
            _ => matches!(self, Self::Sequential | Self::Shuffle | Self::Block(_) | Self::Bucketed(_)),
        }
    }

    /// Whether an epoch may contain a sample more than once.
    pub fn repeats(&self) -> bool {
        match self {
            Self::Sequential | Self::Shuffle | Self::Block(_) => false,
            Self::WithoutReplacement(_) | Self::Bucketed(_) => false,
            Self::Weighted(_) | Self::Balanced(_) => true,
            Self::Subset(sampler) => sampler.repeats(),
            Self::ByEpoch(sampler) => sampler.all().any(Self::repeats),
            Self::Grouped(sampler) => sampler.inner().repeats(),
            Self::Batches(sampler) => sampler.repeats(),
            // The function may name a sample twice.
            Self::Custom(_) => true,
        }
    }

    /// A number that identifies this order over `len` samples; a cursor with another digest is rejected.
    pub fn digest(&self, len: u64) -> u64 {
        let (version, kind) = match self {
            Self::Sequential => (VERSION, key(&[1])),
            Self::Shuffle => (SHUFFLED, key(&[2])),
            Self::Block(sampler) => (SHUFFLED, key(&[3, sampler.digest()])),
            Self::Weighted(sampler) => (VERSION, key(&[4, sampler.digest()])),
            Self::WithoutReplacement(sampler) => (VERSION, key(&[5, sampler.digest()])),
            Self::Balanced(sampler) => (SHUFFLED, key(&[6, sampler.digest()])),
            Self::Bucketed(sampler) => (SHUFFLED, key(&[8, sampler.digest()])),
            Self::Subset(sampler) => (VERSION, key(&[7, sampler.digest()])),
            Self::ByEpoch(sampler) => (VERSION, key(&[9, sampler.digest(len)])),
            Self::Custom(sampler) => (VERSION, key(&[10, sampler.digest()])),
            Self::Grouped(sampler) => (VERSION, key(&[11, sampler.digest(len)])),
            Self::Batches(sampler) => (VERSION, key(&[12, sampler.digest()])),
        };
        key(&[version, len, kind])
    }
}

/// A key part that makes the random numbers of different uses independent.
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
