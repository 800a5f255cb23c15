//! The options of a loader as its builder has set them, and their checks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use feedline_core::{
    About, BadSamples, BatchSampler, Dataset, Error, ErrorKind, LastBatch, Layout, Result, Sampler, World,
    named,
};
use feedline_device::Device;
use feedline_device::device_slots::MAX_SLOTS;

use super::plan::RaggedForm;
use super::record::Recording;
use crate::decode::filler::BatchFiller;
use crate::decode::{Input, MapBatch, WorkerPool, Workers};
use crate::device_map::DeviceMap;
use crate::trace::Trace;
use crate::transfer_mode::against_zero_copy;
use crate::{Loader, TransferMode};

/// Default limit of a loader's pinned memory, in bytes.
pub(super) const PINNED_BUDGET: usize = 2 << 30;

/// Default time that `next` waits while its thread holds every device slot.
const HELD_LIMIT: Duration = Duration::from_secs(1);

/// Default time that dropping a loader waits.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// The order of the samples, or of a source's shards.
#[derive(Clone)]
pub(super) enum Order {
    /// The set decides: all samples at once, or by blocks.
    PlainShuffle,
    Sampler(Sampler),
}

/// The options of a loader, for either kind of data.
#[derive(Clone)]
pub(crate) struct LoaderOptions {
    pub(crate) input: Input,
    pub(crate) batch_size: usize,
    pub(super) order: Order,
    pub(super) seed: u64,
    pub(crate) last_batch: LastBatch,
    /// For a source: the size of the shuffle buffer, and whether each rank reads all shards.
    pub(super) shuffle_buffer: Option<u64>,
    pub(super) splits_shards: bool,
    pub(super) data_version: Option<String>,
    pub(super) world: World,
    pub(crate) workers: Workers,
    /// The threads that make up one worker of the report.
    pub(crate) threads_per_worker: usize,
    pub(crate) pool: Option<WorkerPool>,
    pub(crate) worker_stack: Option<usize>,
    /// `None` for as many as [`depth`](super::LoaderBuilder::depth) says.
    pub(super) depth: Option<usize>,
    pub(crate) pinned_budget: usize,
    pub(crate) resident_budget: usize,
    pub(crate) transfer_mode: TransferMode,
    pub(crate) epochs: Option<u64>,
    pub(crate) is_under_one_lock: bool,
    pub(crate) lanes_use_cpu: bool,
    pub(crate) held_timeout: Duration,
    pub(crate) drop_timeout: Duration,
    pub(crate) bad_samples: BadSamples,
    pub(crate) map_batch: Option<MapBatch>,
    pub(crate) device_map: Option<DeviceMap>,
    pub(crate) device_lanes: usize,
    pub(crate) filler: Option<Arc<dyn BatchFiller>>,
    /// The number of batches that the filler fills at a time; asked for once, by `build`.
    pub(crate) lanes: usize,
    pub(crate) skips: Vec<(u64, Range<u64>)>,
    pub(crate) trace: Option<Trace>,
    pub(super) recording: Recording,
    /// The forms of ragged fields, by name, in the order in which they were stated.
    pub(super) forms: Vec<(String, RaggedForm)>,
    /// The names of the fields of which the host keeps the rows.
    pub(super) kept_on_host: Vec<String>,
}

impl LoaderOptions {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            batch_size: 1,
            order: Order::Sampler(Sampler::Sequential),
            seed: 0,
            last_batch: LastBatch::Keep,
            shuffle_buffer: None,
            splits_shards: false,
            data_version: None,
            world: World::single(),
            workers: Workers::PerCore,
            threads_per_worker: 1,
            pool: None,
            worker_stack: None,
            depth: None,
            pinned_budget: PINNED_BUDGET,
            resident_budget: usize::MAX,
            transfer_mode: TransferMode::Auto,
            epochs: None,
            is_under_one_lock: false,
            lanes_use_cpu: false,
            held_timeout: HELD_LIMIT,
            drop_timeout: DROP_LIMIT,
            bad_samples: BadSamples::Fail,
            map_batch: None,
            device_map: None,
            device_lanes: 1,
            filler: None,
            lanes: 0,
            skips: Vec::new(),
            forms: Vec::new(),
            kept_on_host: Vec::new(),
            trace: None,
            recording: Recording::default(),
        }
    }

    /// Checks the options, and starts the loader; see [`build`](super::LoaderBuilder::build).
    pub(super) fn start(mut self, device: &Device) -> Result<Loader> {
        self.check_skips()?;
        self.lanes = self.filler_lanes()?;
        if self.depth == Some(0) {
            return Err(Error::new(
                ErrorKind::Config,
                format!("{} is 0: at least one batch must fit on the device", named("depth", "prefetch")),
            ));
        }
        if let Some(slots) = self.depth
            && slots >= MAX_SLOTS
        {
            let depth = named("depth", "prefetch");
            let why = format!("{depth} is {slots}: it must be below {MAX_SLOTS}; a few slots are enough");
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.workers.threads()?;
        let spec = self.spec()?;
        let layout = Layout::new(&spec, self.batch_size)?;
        let mapped = self.device_map.as_ref().map(|map| map.layout(&spec, self.batch_size)).transpose()?;
        self.bad_samples.check()?;
        let sampler = self.sampler()?;
        self.check_buckets(&sampler)?;
        let batch_sampler = match &self.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => {
                <dyn Dataset>::check_nesting("a loader", dataset.about().nesting)?;
                self.batch_sampler(dataset.len(), sampler)?
            }
            Input::Source(source) => self.shard_plan(source.shards(), sampler)?,
        };
        let against = against_zero_copy(device, &spec, &batch_sampler.options().sampler, self.workers);
        let chosen = self.choose(device, &layout, against)?;
        self.check_filler(&layout, batch_sampler.options().len)?;
        Loader::start(self, chosen, batch_sampler, (layout, mapped), device)
    }

    /// The sampler of the order. That of a repeated set keeps the copies of a sample together.
    ///
    /// # Errors
    /// `Config` if the set asks for blocks of a size that a block shuffle cannot have.
    fn sampler(&self) -> Result<Sampler> {
        let About { plain_shuffle, copies, .. } = self.input.about();
        let sampler = match &self.order {
            Order::Sampler(sampler) => sampler.clone(),
            Order::PlainShuffle => match plain_shuffle {
                Some((block, window)) => Sampler::block(block, window)?,
                None => Sampler::Shuffle,
            },
        };
        if copies > 1 && sampler.unit() != copies { Sampler::grouped(copies, sampler) } else { Ok(sampler) }
    }

    /// Block and window, if [`shuffle`](super::LoaderBuilder::shuffle) goes by blocks.
    pub(crate) fn plain_shuffle(&self, batch_sampler: &BatchSampler) -> Option<(u64, u64)> {
        match (&self.order, batch_sampler.options().sampler.of_groups()) {
            (Order::PlainShuffle, Sampler::Block(blocks)) => Some(blocks.sizes().into()),
            _ => None,
        }
    }

    fn check_skips(&self) -> Result<()> {
        let Some(epochs) = self.epochs else { return Ok(()) };
        let Some((epoch, _)) = self.skips.iter().find(|(epoch, _)| *epoch >= epochs) else { return Ok(()) };
        refuse(format!(
            "skip names epoch {epoch}, but epochs is {epochs}, counted from 0: skip steps of an epoch below \
             it, or raise epochs"
        ))
    }

    /// Refuses a batch size other than that of the sampler's buckets: batches would mix lengths and have more
    /// padding.
    fn check_buckets(&self, sampler: &Sampler) -> Result<()> {
        let (batch, ranks) = (self.batch_size as u64, u64::from(self.world.size()));
        let Some(bucketed) = sampler.bucketed_batch() else { return Ok(()) };
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

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, why))
}
