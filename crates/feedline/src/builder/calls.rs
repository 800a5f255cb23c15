//! The order of the samples. Calls of a builder that contradict each other are errors, never ignored.

use feedline_core::internal::{self, named, option};
use feedline_core::{Dataset, Error, ErrorKind, LastBatch, Result, Sampler};

use super::LoaderBuilder;
use crate::decode::Input;

/// The options that two methods can set. The last call of a method counts.
#[derive(Clone, Default)]
pub(super) struct Calls {
    pub(super) shuffle: Option<u64>,
    pub(super) shuffle_shards: Option<u64>,
    pub(super) sampler: Option<Sampler>,
    pub(super) seed: Option<u64>,
    pub(super) shuffle_buffer: Option<u64>,
}

impl LoaderBuilder {
    /// Shuffles the set anew every epoch; the order depends on the data, `seed` and the epoch only. The
    /// same as `sampler(Sampler::Shuffle).seed(seed)`, for most sets. Not for a source: see
    /// [`shuffle_shards`](Self::shuffle_shards).
    ///
    /// A set that is decoded in groups, such as the row groups of Parquet, and takes more than 512 MiB
    /// decoded is shuffled by blocks of a group: all blocks, then the samples of a window of some 256 MiB
    /// ([`Dataset::plain_shuffle`](feedline_core::Dataset::plain_shuffle)), whatever is held in memory. The
    /// report has both sizes. `sampler` says another order: `sampler(Sampler::Shuffle)` shuffles all
    /// samples at once.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.calls.shuffle = Some(seed);
        self
    }

    /// Shuffles the order of a source's shards anew every epoch. The records of a shard keep their order;
    /// [`shuffle_buffer`](Self::shuffle_buffer) shuffles them too.
    pub fn shuffle_shards(mut self, seed: u64) -> Self {
        self.calls.shuffle_shards = Some(seed);
        self
    }

    /// Shuffles the records of a source anew every epoch, within a buffer of `bytes` bytes. Default: the
    /// order of the shards.
    ///
    /// The records of a rank are cut into blocks of a quarter to a half of the buffer, also across the ends
    /// of shards. Each block is shuffled; one is delivered while the next one is read. The order depends only
    /// on the source, the seed, the epoch, the rank and `bytes`. A run resumes exactly at any step, for which
    /// it reads at most one block again.
    ///
    /// Records move within their block only, so combine this with [`shuffle_shards`](Self::shuffle_shards),
    /// and write many shards that are smaller than the buffer: the smaller they are, the closer the order is
    /// to a shuffle of the whole set. The loader holds up to `bytes` bytes of records, 40 bytes of them for
    /// each record, and two records more. A source that grows delivers a block when it is full.
    pub fn shuffle_buffer(mut self, bytes: u64) -> Self {
        self.calls.shuffle_buffer = Some(bytes);
        self
    }

    /// Splits every shard of a source over the ranks: each rank reads all shards and takes every `n`-th
    /// record of `n` ranks. Default: each rank reads shards of its own.
    ///
    /// For sources with fewer shards than ranks, or with shards of very different lengths: the ranks get
    /// equal numbers of records, up to one per shard. Each rank reads the bytes of all records, and decodes
    /// its own.
    pub fn split_shards(mut self) -> Self {
        self.records.split = true;
        self
    }

    /// The order of the samples, or of a source's shards. Default: sequential. [`Sampler::custom`] makes one
    /// of your own.
    ///
    /// ```
    /// use feedline::{Device, InMemory, Loader, Sampler};
    /// let numbers = InMemory::new().field("number", [], (0..10).collect::<Vec<u8>>())?;
    /// // The name goes into the cursor: a run with another order does not resume this one.
    /// let backwards = Sampler::custom("backwards", 10, |_epoch, position| 9 - position)?;
    /// let builder = Loader::builder(numbers).batch_size(4).sampler(backwards);
    /// let mut loader = builder.build(&Device::new_host())?;
    /// let first = loader.epoch(0)?.next().expect("a batch")?;
    /// assert_eq!(first.ids(), [9, 8, 7, 6]);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.calls.sampler = Some(sampler);
        self
    }

    /// The seed of the order and of the random numbers passed to `Dataset::read`. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.calls.seed = Some(seed);
        self
    }

    /// Sets a version of the data, such as `"imagenet-2012"`, in place of its fingerprint: a cursor then fits
    /// data of the same version, length and fields, and the content is not read. Change the version when
    /// samples change. Default: the [`fingerprint`](feedline_core::Dataset::fingerprint) of the data.
    pub fn data_version(mut self, version: impl Into<String>) -> Self {
        self.data_version = Some(version.into());
        self
    }

    /// What happens to a last batch that is not full. A source can keep or drop it, not pad it. Default: it
    /// is delivered short.
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.last_batch = last_batch;
        self
    }

    /// Refuses calls that contradict each other, and combines the others.
    ///
    /// # Errors
    /// `Config`, naming both calls.
    pub(super) fn resolved(mut self) -> Result<Self> {
        self.resolve_order()?;
        if let Some(epochs) = self.epochs
            && let Some((epoch, _)) = self.skips.iter().find(|(epoch, _)| *epoch >= epochs)
        {
            return refuse(format!(
                "skip names epoch {epoch}, but epochs is {epochs}, counted from 0: skip steps of an epoch \
                 below it, or raise epochs"
            ));
        }
        self.check_buckets()?;
        Ok(self)
    }

    fn resolve_order(&mut self) -> Result<()> {
        let Calls { shuffle, shuffle_shards, sampler, seed, shuffle_buffer } = &self.calls;
        let is_source = matches!(self.input, Input::Source(_));
        if let (false, Some(bytes)) = (is_source, shuffle_buffer) {
            return refuse(format!(
                "{} is for sources, and a data set has random access: use shuffle",
                option("shuffle_buffer", bytes)
            ));
        }
        if !is_source && self.records.split {
            return refuse("split_shards is for sources, and a data set has no shards: leave it out");
        }
        if *shuffle_buffer == Some(0) {
            return refuse("shuffle_buffer is 0 bytes: give it memory for some batches, or leave it out");
        }
        self.records.buffer_bytes = shuffle_buffer.unwrap_or(0);
        if let (true, Some(shuffle)) = (is_source, shuffle) {
            return refuse(format!(
                "{} orders samples, but the records of a source are read in sequence: use {}, which orders \
                 its shards, and shuffle_buffer, which shuffles records",
                option("shuffle", shuffle),
                option("shuffle_shards", shuffle)
            ));
        }
        if let (false, Some(shards)) = (is_source, shuffle_shards) {
            return refuse(format!(
                "{} is for sources, and a data set has no shards: use {}",
                option("shuffle_shards", shards),
                option("shuffle", shards)
            ));
        }
        let shuffled = shuffle.map(|seed| ("shuffle", seed));
        let of_shards = named("shuffle_shards", "shuffle");
        let shuffled = shuffled.or(shuffle_shards.map(|seed| (of_shards, seed)));
        let Some((name, shuffle)) = shuffled else {
            self.sampler = sampler.clone().unwrap_or(Sampler::Sequential);
            self.seed = seed.unwrap_or(0);
            return Ok(());
        };
        if sampler.as_ref().is_some_and(|sampler| !matches!(sampler, Sampler::Shuffle)) {
            return refuse(format!(
                "{} and sampler set two orders: keep one of them; with sampler, the seed is set by {}",
                option(name, shuffle),
                option("seed", shuffle)
            ));
        }
        if let Some(seed) = seed.filter(|&seed| seed != shuffle) {
            let (order, seed) = (option(name, shuffle), option("seed", seed));
            return refuse(format!("{order} and {seed} set two seeds: leave out seed"));
        }
        let by_blocks = self.input.stable_dataset().and_then(|set| set.plain_shuffle());
        self.sampler = match by_blocks {
            Some((block, window)) if sampler.is_none() => Sampler::block(block, window)?,
            _ => Sampler::Shuffle,
        };
        self.seed = shuffle;
        Ok(())
    }

    /// Block and window, if `shuffle` goes by blocks.
    pub(crate) fn plain_shuffle(&self) -> Option<(u64, u64)> {
        match (&self.sampler, self.calls.shuffle) {
            (Sampler::Block(blocks), Some(_)) => Some(blocks.sizes().into()),
            _ => None,
        }
    }

    /// Refuses a batch size that differs from the sampler's buckets: batches would mix lengths and have more
    /// padding.
    fn check_buckets(&self) -> Result<()> {
        let (batch, ranks) = (self.batch_size as u64, u64::from(self.world.size()));
        let Some(bucketed) = internal::sampler::bucketed_batch(&self.sampler) else { return Ok(()) };
        let step = batch.saturating_mul(ranks);
        if batch == 0 || [batch, step].contains(&bucketed) || matches!(self.input, Input::Source(_)) {
            return Ok(());
        }
        let or_step = if ranks > 1 {
            format!(", or {step} if the {ranks} ranks wait for each other")
        } else {
            String::new()
        };
        refuse(format!(
            "{} makes batches of {bucketed} samples, but batch_size is {batch}: give it {batch}{or_step}",
            named("Sampler::bucketed", "Sampler.bucketed")
        ))
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, why))
}
