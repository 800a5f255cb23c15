//! The options of a loader, and the one place where they are checked.

use std::ops::Range;
use std::time::Duration;

use crate::decode::{Input, WorkerPool, Workers};
use feedline_core::{
    BadSamples, BatchSampler, BatchSamplerOptions, Error, ErrorKind, LastBatch, Layout, Result, Sampler,
    World, source,
};
use feedline_device::Device;

use crate::transfer_mode::{Choice, against_zero_copy};
use crate::{Loader, TransferMode};

/// Page-locked memory a loader may take unless told otherwise.
const PINNED_BUDGET: usize = 2 << 30;

/// How long `next` waits while its thread holds every device slot, unless told otherwise.
const HELD_LIMIT: Duration = Duration::from_secs(60);

/// How long the drop of a loader waits, unless told otherwise.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// Bytes that all device slots have, where batches are so small that there can be many.
const SMALL: usize = 32 << 20;

/// A loader to be; made by [`Loader::builder`] and [`Loader::from_source`].
///
/// ```
/// use feedline::{Device, Loader};
/// # use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
/// # struct Ones(Spec);
/// # impl Dataset for Ones {
/// #     fn len(&self) -> u64 { 10 }
/// #     fn spec(&self) -> &Spec { &self.0 }
/// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
/// #         row.bytes_mut(0).fill(1);
/// #         Ok(())
/// #     }
/// # }
/// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
/// let error = Loader::builder(data).batch_size(11).drop_last(true).build(&Device::host()).unwrap_err();
/// assert!(error.to_string().contains("11"), "{error}");
/// # Ok::<(), feedline::Error>(())
/// ```
pub struct LoaderBuilder {
    pub(crate) input: Input,
    batch_size: usize,
    sampler: Sampler,
    seed: u64,
    pub(crate) last_batch: LastBatch,
    world: World,
    pub(crate) workers: Workers,
    pool: Option<WorkerPool>,
    depth: Option<usize>,
    pinned_budget: usize,
    transfer_mode: TransferMode,
    pub(crate) epochs: Option<u64>,
    pub(crate) held_limit: Duration,
    pub(crate) drop_limit: Duration,
    pub(crate) bad_samples: BadSamples,
    skips: Vec<(u64, Range<u64>)>,
}

impl LoaderBuilder {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            batch_size: 1,
            sampler: Sampler::Sequential,
            seed: 0,
            last_batch: LastBatch::Keep,
            world: World::single(),
            workers: Workers::Auto,
            pool: None,
            depth: None,
            pinned_budget: PINNED_BUDGET,
            transfer_mode: TransferMode::Auto,
            epochs: None,
            held_limit: HELD_LIMIT,
            drop_limit: DROP_LIMIT,
            bad_samples: BadSamples::Fail,
            skips: Vec::new(),
        }
    }

    /// Samples a batch; 1 unless told otherwise.
    pub fn batch_size(self, batch_size: usize) -> Self {
        Self { batch_size, ..self }
    }

    /// Another order every epoch, over the whole set: a function of `seed` and the epoch alone.
    pub fn shuffle(self, seed: u64) -> Self {
        Self { sampler: Sampler::Shuffle, seed, ..self }
    }

    /// Any order; of a source, an order of its shards.
    pub fn sampler(self, sampler: Sampler) -> Self {
        Self { sampler, ..self }
    }

    /// The seed of the order and of the random numbers that `Dataset::read` gets.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Whether a last batch that is not full is dropped; it is delivered short unless told otherwise.
    pub fn drop_last(self, drop: bool) -> Self {
        Self { last_batch: if drop { LastBatch::Drop } else { LastBatch::Keep }, ..self }
    }

    /// What becomes of the samples that do not fill a last batch. A source can keep or drop them.
    pub fn last_batch(self, last_batch: LastBatch) -> Self {
        Self { last_batch, ..self }
    }

    /// Which part of every global batch this process loads; all of it unless told otherwise.
    ///
    /// A global batch is `batch_size` samples for each rank, and every rank has the same number of steps. Nothing is read
    /// from the environment unasked: pass [`World::from_env`] for what torchrun, Open MPI or Slurm have set.
    ///
    /// ```
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec, World};
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 10 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
    /// let mut loader = Loader::builder(data).batch_size(2).world(World::from_env()?).build(&Device::host())?;
    /// assert_eq!(loader.epoch(0)?.count() as u64, loader.batch_sampler().steps(0, 0));
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn world(self, world: World) -> Self {
        Self { world, ..self }
    }

    /// Threads that decode; on the direct road nothing is decoded, and there is one.
    pub fn workers(self, workers: Workers) -> Self {
        Self { workers, ..self }
    }

    /// Decodes with the workers of `pool`, which other loaders may use too, in place of threads of its own.
    ///
    /// ```
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// use feedline::{WorkerPool, Workers};
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 10 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let (train, validate) = (Ones(Spec::new().field("x", DType::U8, [])?), Ones(Spec::new().field("x", DType::U8, [])?));
    /// # let device = Device::host();
    /// let pool = WorkerPool::new(Workers::Auto)?;
    /// let mut train = Loader::builder(train).pool(&pool).build(&device)?;
    /// let mut validate = Loader::builder(validate).pool(&pool).build(&device)?;
    /// assert_eq!(train.epoch(0)?.count() + validate.epoch(0)?.count(), 20);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn pool(self, pool: &WorkerPool) -> Self {
        Self { pool: Some(pool.clone()), ..self }
    }

    /// Batches on the device at a time: being copied, waiting, or being read. Unless told otherwise as many as 32 MiB hold, from
    /// 3 to 8.
    pub fn depth(self, depth: usize) -> Self {
        Self { depth: Some(depth), ..self }
    }

    /// How rows get to the device: unless told otherwise the device of a GPU reads them itself where it can; see [`TransferMode`].
    ///
    /// ```
    /// use feedline::{Context, DType, Dataset, Device, Loader, ReadError, TransferMode, Row, Spec, StridedColumn};
    ///
    /// // Ten numbers in memory: a set that lies ready says where.
    /// struct Numbers(Vec<u8>, Spec);
    /// impl Dataset for Numbers {
    ///     fn len(&self) -> u64 { self.0.len() as u64 }
    ///     fn spec(&self) -> &Spec { &self.1 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         row.bytes_mut(0)[0] = self.0[id as usize];
    ///         Ok(())
    ///     }
    ///     fn table(&self, field: usize) -> Option<Table<'_>> {
    ///         (field == 0).then(|| Table::new(&self.0, 0, 1, self.0.len(), 1).ok())?
    ///     }
    /// }
    /// let numbers = Numbers((0..10).collect(), Spec::new().field("number", DType::U8, [])?);
    /// let mut loader = Loader::builder(numbers).batch_size(4).shuffle(7).transfer_mode(TransferMode::ZeroCopy).build(&Device::host())?;
    /// assert_eq!(loader.transfer_mode().to_string(), "direct");
    /// assert_eq!(loader.epoch(0)?.count(), 3);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn transfer_mode(self, transfer_mode: TransferMode) -> Self {
        Self { transfer_mode, ..self }
    }

    /// The most page-locked memory, in bytes; 2 GiB unless told otherwise. On the direct road the set counts too.
    pub fn pinned_budget(self, bytes: usize) -> Self {
        Self { pinned_budget: bytes, ..self }
    }

    /// Epochs 0 to `epochs - 1` are all there will be: nothing is read ahead beyond them, and a later one is
    /// an error.
    pub fn epochs(self, epochs: u64) -> Self {
        Self { epochs: Some(epochs), ..self }
    }

    /// How long `next` waits while the thread that calls it holds every device slot, before it fails with
    /// [`SlotsHeld`](crate::ErrorKind::SlotsHeld); 60 seconds by default, `Duration::MAX` for ever.
    ///
    /// A batch counts as held by the thread that took it. Once a batch was opened or dropped on another
    /// thread, or another thread has called `next`, the loader counts no more and `next` waits without a
    /// limit. Raise the limit where other threads may keep the very first batches unopened for longer.
    /// `try_next` and `next_timeout` never fail with `SlotsHeld`.
    pub fn held_limit(self, limit: Duration) -> Self {
        Self { held_limit: limit, ..self }
    }

    /// How long the drop of the loader waits for its threads, and for the device to end its work on dropped
    /// batches; 5 seconds by default. What happens after it: see [`Loader`](crate::Loader#drop).
    pub fn drop_limit(self, limit: Duration) -> Self {
        Self { drop_limit: limit, ..self }
    }

    /// What happens at a sample that cannot be read; the run fails unless told otherwise.
    pub fn bad_samples(self, bad_samples: BadSamples) -> Self {
        Self { bad_samples, ..self }
    }

    /// Leaves out the steps `steps` of `epoch`, counted from its beginning, without decoding them; what a run does that
    /// met a loss spike there. Not for a source.
    pub fn skip(mut self, epoch: u64, steps: Range<u64>) -> Self {
        self.skips.push((epoch, steps));
        self
    }

    /// Allocates the slots and starts the threads; nothing is read before the first [`Loader::epoch`].
    ///
    /// # Errors
    /// `Config` for options that cannot work, `Budget` for slots beyond the budget, a device failure; why the direct road
    /// cannot be taken, where that was asked for.
    pub fn build(self, device: &Device) -> Result<Loader> {
        if self.depth == Some(0) {
            return Err(Error::new(
                ErrorKind::Config,
                "depth is 0: at least one batch must fit on the device",
            ));
        }
        self.workers.count()?;
        let layout = Layout::new(self.input.spec(), self.batch_size)?;
        self.bad_samples.check()?;
        let batch_sampler = match &self.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => self.batch_sampler(dataset.len())?,
            Input::Source(source) => self.shard_plan(source.shards())?,
        };
        let choice = Choice {
            transfer_mode: self.transfer_mode,
            against: against_zero_copy((device.kind(), device.name()), &self.sampler, self.workers),
            input: &self.input,
            layout: &layout,
            samples: batch_sampler.options().len,
            host_slots: self.host_slots(&layout),
            pinned_budget: self.pinned_budget,
        };
        let chosen = choice.choose(device)?;
        Loader::start(self, chosen, batch_sampler, layout, device)
    }

    /// The workers: those of the pool that was given, or new ones. In zero-copy mode one is enough, which writes ids.
    pub(crate) fn start_pool(&self, is_zero_copy: bool) -> Result<WorkerPool> {
        match &self.pool {
            Some(pool) => Ok(pool.clone()),
            None if is_zero_copy => WorkerPool::new(Workers::Count(1)),
            None => WorkerPool::new(self.workers),
        }
    }

    fn batch_sampler(&self, len: u64) -> Result<BatchSampler> {
        let mut batch_sampler = BatchSampler::new(self.plan_options(len, self.batch_size, self.last_batch))?;
        for (epoch, steps) in &self.skips {
            batch_sampler.skip(*epoch, steps.clone())?;
        }
        Ok(batch_sampler)
    }

    /// The plan of a source: one shard a step.
    fn shard_plan(&self, shards: u64) -> Result<BatchSampler> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, why));
        if shards == 0 {
            return refuse("the source has no shards: there is nothing to read");
        }
        if self.batch_size == 0 {
            return refuse("batch size is 0: it must be at least 1");
        }
        if self.last_batch == LastBatch::Pad {
            return refuse(
                "the last batch of a source cannot be padded: its samples are not kept; keep or drop it",
            );
        }
        if !self.skips.is_empty() {
            return refuse(
                "steps of a source cannot be skipped: where they begin is known only once they were read",
            );
        }
        let batch_sampler = BatchSampler::new(self.plan_options(shards, 1, LastBatch::Keep))?;
        source::check(&batch_sampler)?;
        Ok(batch_sampler)
    }

    fn plan_options(&self, len: u64, batch: usize, last_batch: LastBatch) -> BatchSamplerOptions {
        BatchSamplerOptions {
            len,
            sampler: self.sampler.clone(),
            seed: self.seed,
            batch,
            last_batch,
            world: self.world,
        }
    }

    /// Slots on the device. Small batches get more of them: from the end of a step it takes 100 to 200 us, and twice that when
    /// the system is slow to wake a thread, until the batch that takes its place is on the device, and shorter steps
    /// have to be covered by more batches. With 3, steps of 50 to 130 us fed on an H200 took up to 1.2 times as long as alone, with 8
    /// at most 1.03.
    pub(crate) fn device_slots(&self, layout: &Layout) -> usize {
        let bytes = layout.bytes().max(1);
        let budget = (self.pinned_budget / bytes).saturating_sub(1);
        self.depth.unwrap_or_else(|| (SMALL / bytes).min(budget).clamp(3, 8))
    }

    /// Host slots: one more than on the device, so that decoding goes on while every device slot is taken.
    pub(crate) fn host_slots(&self, layout: &Layout) -> usize {
        self.device_slots(layout).saturating_add(1)
    }
}

impl std::fmt::Debug for LoaderBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("batch_size", &self.batch_size)
            .field("workers", &self.workers)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use feedline_testkit::fixtures::Fine;

    use super::*;

    /// Slots on the device for batches of `bytes`, with a budget.
    fn slots(bytes: usize, budget: usize, depth: Option<usize>) -> usize {
        let builder = Loader::builder(Fine::new(10, 1024).unwrap()).batch_size(bytes / 1024);
        let builder = builder.pinned_budget(budget);
        let builder = if let Some(depth) = depth { builder.depth(depth) } else { builder };
        builder.device_slots(&Layout::new(builder.input.spec(), builder.batch_size).unwrap())
    }

    #[test]
    fn small_batches_get_more_slots_as_far_as_the_budget_goes() {
        for (bytes, wanted) in
            [(1 << 10, 8), (1 << 20, 8), (3 << 20, 8), (6 << 20, 5), (10 << 20, 3), (64 << 20, 3)]
        {
            assert_eq!(slots(bytes, PINNED_BUDGET, None), wanted, "{bytes} bytes a batch");
        }
        assert_eq!(slots(1 << 20, 7 << 20, None), 5, "five and one on the host");
        assert_eq!(slots(1 << 20, 1 << 20, None), 3, "the budget is checked elsewhere");
        assert_eq!(
            [slots(1 << 20, PINNED_BUDGET, Some(2)), slots(64 << 20, PINNED_BUDGET, Some(12))],
            [2, 12]
        );
    }
}
