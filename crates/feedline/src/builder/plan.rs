//! Derives batches, slots and pool from the options of a builder.

use std::sync::Arc;

use feedline_core::{
    BatchSampler, BatchSamplerOptions, Error, ErrorKind, Fingerprint, LastBatch, Layout, Pad, RecordOrder,
    Result, Sampler, Spec, named,
};

use super::options::refuse;
use super::{LoaderBuilder, LoaderOptions};
use crate::decode::filler::DataDescription;
use crate::decode::{CACHED, Input, MAX_WORKERS, WorkerPool, Workers};
use crate::transfer_mode::ChosenMode;

/// Bytes of all device slots together, for batches so small that many slots fit.
const SMALL: usize = 32 << 20;

/// Number of workers that write the ids of resident batches. On an H200, one worker took 40 us for a batch of
/// 4096 rows of 784 bytes, three times as long as the gather.
const RESIDENT_WORKERS: usize = 4;

/// A change of a ragged field by the builder.
#[derive(Clone, Copy)]
pub(super) enum RaggedForm {
    Pad(Pad),
    MaxPerBatch(usize),
}

impl<T: ?Sized> LoaderBuilder<T> {
    /// Pads the rows of the ragged field `field` to one width per batch; read them by
    /// [`Ready::padded`](crate::Ready::padded). Only rows of that width cross the bus.
    ///
    /// ```
    /// use feedline::{Context, DType, Dataset, Device, Loader, Pad, ReadError, Row, Spec};
    ///
    /// // Sample 0 is [], sample 1 is [1], sample 2 is [2, 2], ...
    /// struct Counts(Spec);
    /// impl Dataset for Counts {
    ///     fn len(&self) -> u64 { 8 }
    ///     fn spec(&self) -> &Spec { &self.0 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         Ok(row.write_ragged(0, &vec![id as u16; id as usize])?)
    ///     }
    /// }
    /// let counts = Counts(Spec::new().ragged("count", DType::U16, [], 100)?);
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let builder = Loader::builder(counts).batch_size(4).pad("count", Pad::multiple_of(2));
    /// let mut loader = builder.build(&device)?;
    /// for (batch, width) in loader.epoch(0)?.zip([4, 8]) {
    ///     let batch = batch?.wait_on(&compute)?;
    ///     let counts = batch.padded::<u16>("count")?;
    ///     assert_eq!((counts.width, counts.values.len(), counts.lengths.len()), (width, 4 * width, 4));
    /// }
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn pad(mut self, field: &str, pad: Pad) -> Self {
        self.options.forms.push((field.to_owned(), RaggedForm::Pad(pad)));
        self
    }

    /// Max items of the ragged field `field` in a batch, padding included. Default: `batch_size` times the
    /// max of a sample. Slots have room for this number; a batch with more ends the run with an error of kind
    /// [`Budget`](crate::ErrorKind::Budget).
    pub fn max_per_batch(mut self, field: &str, items: usize) -> Self {
        self.options.forms.push((field.to_owned(), RaggedForm::MaxPerBatch(items)));
        self
    }

    /// Keeps a copy of the rows of the field `field` on the host, for what the program reads there while
    /// the batch is on its way, such as texts. See [`Ready::host_rows`](crate::Ready::host_rows).
    ///
    /// ```
    /// use feedline::{Device, InMemory, Loader};
    /// let captions = InMemory::new().ragged("caption", [], 9, ["a cat", "", "two dogs"])?;
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let builder = Loader::builder(captions).batch_size(3).keep_on_host("caption");
    /// let mut loader = builder.build(&device)?;
    /// let batch = loader.epoch(0)?.next().expect("a batch")?.wait_on(&compute)?;
    /// let captions: Vec<_> = batch.host_rows("caption")?.rows().map(String::from_utf8_lossy).collect();
    /// assert_eq!(captions, ["a cat", "", "two dogs"]);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn keep_on_host(mut self, field: &str) -> Self {
        self.options.kept_on_host.push(field.to_owned());
        self
    }
}

impl LoaderOptions {
    /// The given pool, or a new one. If the device gathers the rows, workers write ids only, about 100
    /// million per second each: one is enough if rows cross the bus.
    pub(crate) fn start_pool(&self, mode: &ChosenMode) -> Result<WorkerPool> {
        let workers = match mode {
            ChosenMode::Resident => Workers::Count(self.workers.threads()?.min(RESIDENT_WORKERS)),
            ChosenMode::ZeroCopy => Workers::Count(1),
            _ => self.workers,
        };
        self.pool
            .as_ref()
            .map_or_else(|| WorkerPool::start(workers, self.worker_stack), |pool| Ok(pool.clone()))
    }

    /// Whether this loader tunes the number of its workers. One worker is enough for a gather, and one
    /// loader must not tune a shared pool.
    pub(crate) fn tunes_workers(&self, is_gathered: bool) -> bool {
        matches!(self.workers, Workers::Auto | Workers::AutoUpTo(_)) && self.pool.is_none() && !is_gathered
    }

    /// The spec of the batches: the samples' fields, with ragged fields in their forms.
    pub(super) fn spec(&self) -> Result<Spec> {
        let spec = self.input.spec().clone();
        self.forms.iter().try_fold(spec, |spec, (field, form)| match *form {
            RaggedForm::Pad(pad) => spec.padded(field, pad),
            RaggedForm::MaxPerBatch(items) => spec.max_per_batch(field, items),
        })
    }

    /// The fields of which the host keeps the rows, and their names.
    ///
    /// # Errors
    /// `Config` for a field that does not exist.
    pub(crate) fn host_fields(&self) -> Result<Vec<(usize, Arc<str>)>> {
        let spec = self.input.spec();
        let index = |name: &String| Ok((spec.index_of(name)?, name.as_str().into()));
        self.kept_on_host.iter().map(index).collect()
    }

    pub(super) fn batch_sampler(&self, len: u64, sampler: Sampler) -> Result<BatchSampler> {
        let mut batch_sampler =
            BatchSampler::new(self.plan_options(len, sampler, self.batch_size, self.last_batch))?;
        for (epoch, steps) in &self.skips {
            batch_sampler.skip(*epoch, steps.clone())?;
        }
        Ok(batch_sampler)
    }

    /// The fingerprint of the data, or of its stated version.
    ///
    /// # Errors
    /// As [`Input::fingerprint`].
    pub(crate) fn fingerprint(&self, len: u64) -> Result<u64> {
        let Some(version) = &self.data_version else { return self.input.fingerprint() };
        let state = Fingerprint::new().bytes(b"data version").bytes(version.as_bytes()).number(len);
        Ok(state.spec(self.input.spec()).value())
    }

    /// The batch sampler of a source: one shard per step.
    pub(super) fn shard_plan(&self, shards: u64, sampler: Sampler) -> Result<BatchSampler> {
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
        if self.shuffle_buffer == Some(0) {
            return refuse("shuffle_buffer is 0 bytes: give it memory for some batches, or leave it out");
        }
        if sampler.names_batches() {
            return refuse(
                "batches of your own are of a data set, and a source is read in sequence: leave them out",
            );
        }
        let batch_sampler = BatchSampler::new(self.plan_options(shards, sampler, 1, LastBatch::Keep))?;
        let records =
            RecordOrder { split: self.splits_shards, buffer_bytes: self.shuffle_buffer.unwrap_or(0) };
        let batch_sampler = batch_sampler.with_records(records);
        batch_sampler.check_source()?;
        let (shards, ranks) = (batch_sampler.positions(), self.world.size());
        if shards < u64::from(ranks) && !self.splits_shards {
            let what = if shards == 1 { "1 shard" } else { &format!("{shards} shards") };
            return refuse(format!(
                "the source has {what} in an epoch for {ranks} ranks, so that some would get no batch: split \
                 the shards over the ranks ({}), write at least {ranks} shards, or use fewer ranks",
                named("split_shards", "split_shards=True")
            ));
        }
        Ok(batch_sampler)
    }

    fn plan_options(
        &self,
        len: u64,
        sampler: Sampler,
        batch: usize,
        last_batch: LastBatch,
    ) -> BatchSamplerOptions {
        BatchSamplerOptions { len, sampler, seed: self.seed, batch, last_batch, world: self.world }
    }

    /// Slots on the device. Small batches get more slots: a slot is refilled 100 to 200 us after its
    /// step ends, or twice that if the system is slow to wake a thread, so shorter steps need more
    /// batches in flight. On an H200, fed steps of 50 to 130 us took up to 1.2 times as long as alone
    /// with 3 slots, and at most 1.03 times with 8.
    ///
    /// With a device map, these are the slots of its output, and `layout` is that of the output. Lanes that
    /// block hold one each while they work, so there are two more.
    pub(crate) fn device_slots(&self, layout: &Layout) -> usize {
        let bytes = layout.bytes().max(1);
        let budget = (self.pinned_budget / bytes).saturating_sub(1);
        let min = if self.reads_host() { self.device_lanes + 2 } else { 3 };
        self.depth.unwrap_or_else(|| (SMALL / bytes).min(budget).clamp(min, min.max(8)))
    }

    /// Slots on the device that batches are copied into. With a device map, one for each lane and one to copy
    /// into meanwhile; without, the slots of the consumer.
    pub(crate) fn copied_slots(&self, layout: &Layout) -> usize {
        if self.device_map.is_some() { self.device_lanes + 1 } else { self.device_slots(layout) }
    }

    /// Host slots if lanes read them: for each lane one that it works on and one that waits for it, and two
    /// to fill. If the budget is smaller, one for each lane and one to fill.
    fn slots_of_host_lanes(&self, layout: &Layout) -> usize {
        let ahead = self.depth.unwrap_or(0).saturating_add(1).max(2 * self.device_lanes + 2);
        ahead.min(self.pinned_budget / layout.bytes().max(1)).max(self.device_lanes + 1)
    }

    /// Whether lanes read batches in their host slots.
    pub(crate) fn reads_host(&self) -> bool {
        self.device_map.as_ref().is_some_and(|map| map.reads_host)
    }

    /// The number of decode threads. 1 for invalid options, which are refused later.
    fn workers_or_one(&self) -> usize {
        self.pool.as_ref().map_or_else(|| self.workers.threads().unwrap_or(1), WorkerPool::workers)
    }

    /// Host slots: one more than on the device, so that decoding continues while every device slot is taken.
    ///
    /// For batches of [`CACHED`] bytes, at least two per worker and one more, if the budget allows: one
    /// worker then decodes a whole batch, into a slot that is in its core's cache.
    ///
    /// A filler adds one slot for each batch that it fills at a time, if the budget allows.
    pub(crate) fn host_slots(&self, layout: &Layout) -> usize {
        let own = if self.reads_host() {
            self.slots_of_host_lanes(layout)
        } else {
            self.device_slots(layout).saturating_add(1)
        };
        let own = if CACHED.contains(&layout.bytes()) {
            own.max((2 * self.workers_or_one() + 1).min(self.pinned_budget / layout.bytes()))
        } else {
            own
        };
        own.saturating_add(self.lanes.min((self.pinned_budget / layout.bytes().max(1)).saturating_sub(own)))
    }

    /// The number of batches that the filler fills at a time; 0 without a filler.
    ///
    /// # Errors
    /// `Config` for more than [`MAX_WORKERS`]: each needs a thread.
    pub(super) fn filler_lanes(&self) -> Result<usize> {
        let lanes = self.filler.as_ref().map_or(0, |filler| filler.in_flight());
        if lanes > MAX_WORKERS {
            let why = format!(
                "the filler fills {lanes} batches at a time: at most {MAX_WORKERS}; a few for each server \
                 are enough"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(lanes)
    }

    /// Lets the filler compare its data.
    pub(super) fn check_filler(&self, layout: &Layout, samples: u64) -> Result<()> {
        let Some(filler) = &self.filler else { return Ok(()) };
        let (spec, fingerprint, seed) = (layout.spec(), self.input.fingerprint()?, self.seed);
        let is_source = matches!(self.input, Input::Source(_));
        filler.check(&DataDescription { spec, fingerprint, samples, seed, is_source })
    }
}

#[cfg(test)]
mod tests {
    use feedline_testkit::fixtures::Fine;

    use super::super::options::PINNED_BUDGET;
    use super::*;
    use crate::Loader;

    /// Device slots for batches of `bytes` within `budget`.
    fn slots(bytes: usize, budget: usize, depth: Option<usize>) -> usize {
        let builder = Loader::builder(Fine::new(10, 1024).unwrap()).batch_size(bytes / 1024);
        let builder = builder.pinned_budget(budget);
        let builder = if let Some(depth) = depth { builder.depth(depth) } else { builder };
        builder
            .options
            .device_slots(&Layout::new(builder.options.input.spec(), builder.options.batch_size).unwrap())
    }

    #[test]
    fn batches_that_fit_a_cache_get_two_host_slots_for_each_worker_within_the_budget() {
        let slots = |rows: usize, workers, budget| {
            let builder = Loader::builder(Fine::new(10, 1024).unwrap()).batch_size(rows).depth(3);
            let builder = builder.workers(Workers::Count(workers)).pinned_budget(budget);
            builder
                .options
                .host_slots(&Layout::new(builder.options.input.spec(), builder.options.batch_size).unwrap())
        };
        for (rows, workers, wanted) in
            [(60, 8, 4), (80, 8, 17), (1000, 8, 17), (1030, 8, 4), (80, 1, 4), (80, 2, 5)]
        {
            assert_eq!(slots(rows, workers, PINNED_BUDGET), wanted, "{rows} KiB, {workers} workers");
        }
        assert_eq!([slots(80, 8, 1 << 20), slots(80, 8, 80 << 10)], [12, 4]);
    }

    #[test]
    fn lanes_that_read_host_slots_get_more_of_both_within_the_budget() {
        let slots = |lanes, depth: Option<usize>, budget| {
            let builder = Loader::builder(Fine::new(10, 1024).unwrap()).batch_size(40 << 10);
            let builder = builder.pinned_budget(budget).device_lanes(lanes);
            let spec = builder.options.input.spec().clone();
            let builder = builder.produce(spec, |_| Ok(|_: &mut crate::batch::PinnedBatch<'_>| Ok(())));
            let builder = if let Some(depth) = depth { builder.depth(depth) } else { builder };
            let layout = Layout::new(builder.options.input.spec(), builder.options.batch_size).unwrap();
            (builder.options.host_slots(&layout), builder.options.device_slots(&layout))
        };
        let (large, batch) = (8 << 30, 41 << 20);
        assert_eq!(
            [slots(3, None, large), slots(1, None, large), slots(8, None, large)],
            [(8, 5), (4, 3), (18, 10)]
        );
        assert_eq!([slots(3, Some(2), large), slots(3, Some(12), large)], [(8, 2), (13, 12)]);
        assert_eq!([slots(3, None, 6 * batch), slots(3, None, batch)], [(6, 5), (4, 5)]);
    }

    #[test]
    fn small_batches_get_more_slots_within_the_budget() {
        for (bytes, wanted) in
            [(1 << 10, 8), (1 << 20, 8), (3 << 20, 8), (6 << 20, 5), (10 << 20, 3), (64 << 20, 3)]
        {
            assert_eq!(slots(bytes, PINNED_BUDGET, None), wanted, "{bytes} bytes per batch");
        }
        assert_eq!(slots(1 << 20, 7 << 20, None), 5, "six host slots fit, one more than on the device");
        assert_eq!(slots(1 << 20, 1 << 20, None), 3, "the minimum; `build` checks the budget");
        assert_eq!(
            [slots(1 << 20, PINNED_BUDGET, Some(2)), slots(64 << 20, PINNED_BUDGET, Some(12))],
            [2, 12]
        );
    }
}
