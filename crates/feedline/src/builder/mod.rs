//! The options of a loader, and their checks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::decode::filler::BatchFiller;
use crate::decode::{FilledBatch, Input, MapBatch, WorkerPool, Workers};
use feedline_core::internal::source::RecordOrder;
use feedline_core::internal::{self, named};
use feedline_core::{
    BadSamples, Context, Dataset, Error, ErrorKind, LastBatch, Layout, ReadError, Result, Sampler, World,
};
use feedline_device::Device;
use feedline_device::slot::MAX_SLOTS;

use crate::device_map::DeviceMap;
use crate::trace::Trace;
use crate::transfer_mode::against_zero_copy;
use crate::{Loader, TransferMode};

use self::calls::Calls;
use self::plan::RaggedForm;
use self::record::Recording;

mod calls;
mod devices;
mod plan;
mod record;

/// Default limit of a loader's pinned memory, in bytes.
const PINNED_BUDGET: usize = 2 << 30;

/// Default time that `next` waits while its thread holds every device slot.
const HELD_LIMIT: Duration = Duration::from_secs(1);

/// Default time that dropping a loader waits.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// Configures a loader; created by [`Loader::builder`] and [`Loader::source_builder`].
///
/// The last call of a method counts. Methods that contradict each other are an error of
/// [`build`](Self::build) that names both: [`shuffle`](Self::shuffle) and another [`sampler`](Self::sampler)
/// or [`seed`](Self::seed), a [`skip`](Self::skip) beyond [`epochs`](Self::epochs).
///
/// ```
/// use feedline::{Device, LastBatch, Loader};
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
/// let builder = Loader::builder(data).batch_size(11).last_batch(LastBatch::Drop);
/// let error = builder.build(&Device::new_host()).unwrap_err();
/// assert!(error.to_string().contains("11"), "{error}");
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct LoaderBuilder {
    pub(crate) input: Input,
    pub(crate) batch_size: usize,
    /// The options from which the next three fields are derived; see [`LoaderBuilder::resolved`].
    calls: Calls,
    sampler: Sampler,
    seed: u64,
    pub(crate) last_batch: LastBatch,
    /// For a source.
    records: RecordOrder,
    data_version: Option<String>,
    world: World,
    pub(crate) workers: Workers,
    pub(crate) pool: Option<WorkerPool>,
    /// `None` for as many as [`depth`](Self::depth) says.
    depth: Option<usize>,
    pub(crate) pinned_budget: usize,
    pub(crate) resident_budget: usize,
    pub(crate) transfer_mode: TransferMode,
    pub(crate) epochs: Option<u64>,
    pub(crate) is_under_one_lock: bool,
    pub(crate) is_handed_over: bool,
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
    recording: Recording,
    /// The forms of ragged fields, by name, in the order in which they were stated.
    forms: Vec<(String, RaggedForm)>,
}

impl LoaderBuilder {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            batch_size: 1,
            calls: Calls::default(),
            sampler: Sampler::Sequential,
            seed: 0,
            last_batch: LastBatch::Keep,
            records: RecordOrder::default(),
            data_version: None,
            world: World::single(),
            workers: Workers::PerCore,
            pool: None,
            depth: None,
            pinned_budget: PINNED_BUDGET,
            resident_budget: usize::MAX,
            transfer_mode: TransferMode::Auto,
            epochs: None,
            is_under_one_lock: false,
            is_handed_over: false,
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
            trace: None,
            recording: Recording::default(),
        }
    }

    /// Samples per batch. Default: 1.
    pub fn batch_size(self, batch_size: usize) -> Self {
        Self { batch_size, ..self }
    }

    /// Which part of every global batch this process loads. Default: all of it.
    ///
    /// A global batch has `batch_size` samples per rank, and every rank has the same number of steps. The
    /// environment is not read by default: pass [`World::from_env`] to use what torchrun, Open MPI or Slurm
    /// have set.
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
    /// let builder = Loader::builder(data).batch_size(2).world(World::from_env()?);
    /// let mut loader = builder.build(&Device::new_host())?;
    /// assert_eq!(loader.epoch(0)?.count() as u64, loader.batch_sampler().steps(0, 0));
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn world(self, world: World) -> Self {
        Self { world, ..self }
    }

    /// Number of decode threads. Default: [`Workers::PerCore`]. In zero-copy mode nothing is decoded and
    /// there is one.
    pub fn workers(self, workers: Workers) -> Self {
        Self { workers, ..self }
    }

    /// Decodes on the workers of `pool`, which other loaders may share, instead of starting own threads:
    /// [`workers`](Self::workers) then has no effect.
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
    /// # let ones = || Ok::<_, feedline::Error>(Ones(Spec::new().field("x", DType::U8, [])?));
    /// # let (train, validate) = (ones()?, ones()?);
    /// # let device = Device::new_host();
    /// let pool = WorkerPool::new(Workers::PerCore)?;
    /// let mut train = Loader::builder(train).pool(&pool).build(&device)?;
    /// let mut validate = Loader::builder(validate).pool(&pool).build(&device)?;
    /// assert_eq!(train.epoch(0)?.count() + validate.epoch(0)?.count(), 20);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn pool(self, pool: &WorkerPool) -> Self {
        Self { pool: Some(pool.clone()), ..self }
    }

    /// Number of batches on the device at a time, whether being copied, waiting or being read. Default: as
    /// many as fit into 32 MiB, from 3 to 8.
    pub fn depth(self, slots: usize) -> Self {
        Self { depth: Some(slots), ..self }
    }

    /// Records what the loader's threads and its copy stream do into `trace`. Default: nothing is recorded.
    ///
    /// Every copy is timed by events while a trace is recorded, which costs a few driver calls per batch.
    pub fn trace(self, trace: &Trace) -> Self {
        Self { trace: Some(trace.clone()), ..self }
    }

    /// How rows get to the device. Default: [`TransferMode::Auto`].
    ///
    /// ```
    /// use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// use feedline::TransferMode;
    /// use feedline::dataset::StridedColumn;
    ///
    /// // Ten numbers in memory. `column` says where they are, so the device can read them itself.
    /// struct Numbers(Vec<u8>, Spec);
    /// impl Dataset for Numbers {
    ///     fn len(&self) -> u64 { self.0.len() as u64 }
    ///     fn spec(&self) -> &Spec { &self.1 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         row.bytes_mut(0)[0] = self.0[id as usize];
    ///         Ok(())
    ///     }
    ///     fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
    ///         (field == 0).then(|| StridedColumn::new(&self.0, 0, 1, self.0.len(), 1).ok())?
    ///     }
    /// }
    /// let numbers = Numbers((0..10).collect(), Spec::new().field("number", DType::U8, [])?);
    /// let builder = Loader::builder(numbers).batch_size(4).shuffle(7).transfer_mode(TransferMode::ZeroCopy);
    /// let mut loader = builder.build(&Device::new_host())?;
    /// assert_eq!(loader.transfer_mode().to_string(), "zero-copy");
    /// assert_eq!(loader.epoch(0)?.count(), 3);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn transfer_mode(self, transfer_mode: TransferMode) -> Self {
        Self { transfer_mode, ..self }
    }

    /// Max pinned memory, in bytes. Default: 2 GiB. In zero-copy mode the set counts too.
    pub fn pinned_budget(self, bytes: usize) -> Self {
        Self { pinned_budget: bytes, ..self }
    }

    /// Max device memory, in bytes, for a set in [`Resident`](TransferMode::Resident) mode, in addition to
    /// the slots. If the set needs more, only the first samples that fit are kept, with room for the rows of
    /// a batch. Default: no limit but the device's.
    ///
    /// ```
    /// use feedline::report::ChosenMode;
    /// use feedline::{Device, InMemory, Loader, TransferMode};
    /// let numbers = InMemory::new().field("number", [], [1_u8, 2, 3])?;
    /// let builder = Loader::builder(numbers).batch_size(2).transfer_mode(TransferMode::Resident);
    /// let loader = builder.resident_budget(1 << 30).build(&Device::new_host())?;
    /// assert_eq!(*loader.transfer_mode(), ChosenMode::Resident);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn resident_budget(self, bytes: usize) -> Self {
        Self { resident_budget: bytes, ..self }
    }

    /// The number of epochs: nothing is read ahead beyond epoch `epochs - 1`, and asking for a later
    /// one is an error. Default: no limit.
    pub fn epochs(self, epochs: u64) -> Self {
        Self { epochs: Some(epochs), ..self }
    }

    /// Declares that samples are read under one lock, so that the report names it as the limit.
    #[doc(hidden)] // For the Python package.
    pub fn under_one_lock(self) -> Self {
        Self { is_under_one_lock: true, ..self }
    }

    /// On the host device, large batches are handed over with the memory of their host slots, rather than
    /// copied: [`Loader::slot_addresses`](crate::Loader::slot_addresses) are not fixed then.
    #[doc(hidden)] // For the Python package.
    pub fn hands_over(self) -> Self {
        Self { is_handed_over: true, ..self }
    }

    /// How long a wait for the next batch may last while the batches before it hold every device slot,
    /// because none of them was dropped. Then it fails with [`SlotsHeld`](crate::ErrorKind::SlotsHeld).
    /// Default: 1 second. `Duration::MAX` waits without a limit.
    ///
    /// The limit is 30 times as long if another thread seems to work with the batches: it has opened or read
    /// one of them but not yet the others, or has taken some itself. Raise the limit if another thread may
    /// hold all batches for longer before it opens the first, or between two.
    ///
    /// The waits of several calls of `next_timeout` add up. `try_next` never fails with `SlotsHeld`.
    pub fn held_timeout(self, limit: Duration) -> Self {
        Self { held_timeout: limit, ..self }
    }

    /// How long dropping the loader waits for its threads and for work on dropped batches. Default: 5
    /// seconds. [`Loader`](crate::Loader#drop) describes what happens after it.
    pub fn drop_timeout(self, limit: Duration) -> Self {
        Self { drop_timeout: limit, ..self }
    }

    /// What happens when a sample cannot be read. Default: the run fails.
    pub fn bad_samples(self, bad_samples: BadSamples) -> Self {
        Self { bad_samples, ..self }
    }

    /// Calls `hook` on every filled batch, before it is copied to the device: for work that needs all rows of
    /// a batch, such as mixup, or is cheaper per batch, such as tokenising. Default: none. Kernels that make
    /// another batch on the device belong into [`device_map`](Self::device_map).
    ///
    /// The worker that finishes the batch calls it, exactly once per batch; batches are mapped by several
    /// workers at a time, in any order. It changes the batch in place: for an output of another type or size,
    /// let [`Dataset::map`](crate::Dataset::map) add a field for it. Its output must depend only on the batch
    /// and on the random numbers of the context, which are keyed by the seed, the epoch and the position of
    /// the batch in the epoch: the same for any number of workers, and after a resume with the same batch
    /// size and world.
    ///
    /// An error or a panic of the hook ends the run, with the batch; it does not count as a bad sample. The
    /// hook is not covered by the fingerprint, and not possible in zero-copy mode.
    ///
    /// ```
    /// use feedline::{Device, InMemory, Loader};
    /// let numbers = InMemory::new().field("x", [2], [1.0_f32, 2.0, 3.0, 5.0])?;
    /// let mixup = Loader::builder(numbers).batch_size(2).map_batch(|batch, context| {
    ///     let share = context.random().uniform() as f32;
    ///     let (width, rows) = (2, batch.len());
    ///     let x = batch.field_mut::<f32>("x")?;
    ///     let (first, second) = x.split_at_mut(width * (rows / 2));
    ///     for (a, b) in first.iter_mut().zip(second) {
    ///         (*a, *b) = (share * *a + (1.0 - share) * *b, share * *b + (1.0 - share) * *a);
    ///     }
    ///     Ok(())
    /// });
    /// assert_eq!(mixup.build(&Device::new_host())?.epoch(0)?.count(), 1);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// Ragged fields can be changed too, in place or as a whole; they are padded afterwards.
    ///
    /// ```
    /// use feedline::{Device, InMemory, Loader, Pad};
    ///
    /// let texts = InMemory::new().ragged("text", [], 9, ["hello", "", "you"])?;
    /// let builder = Loader::builder(texts).batch_size(3).pad("text", Pad::multiple_of(4));
    /// let builder = builder.map_batch(|batch, _| {
    ///     let mut shorter = Vec::new();
    ///     for row in 0..batch.len() {
    ///         let text = batch.ragged_mut::<u8>("text", row)?;
    ///         text.make_ascii_uppercase();
    ///         shorter.push(text.iter().copied().take(3).collect::<Vec<_>>());
    ///     }
    ///     Ok(batch.set_ragged("text", shorter)?)
    /// });
    /// let mut loader = builder.build_host()?;
    /// let batch = loader.epoch(0)?.next().expect("a batch")?;
    /// let (values, lengths) = batch.padded::<u8>("text")?;
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn map_batch(
        self,
        hook: impl Fn(&mut FilledBatch<'_>, &mut Context) -> Result<(), ReadError> + Send + Sync + 'static,
    ) -> Self {
        Self { map_batch: Some(MapBatch(Arc::new(hook))), ..self }
    }

    /// Lets `filler` fill batches beside the workers: servers on other machines, for example. Order, cursors
    /// and batches are the same as from workers. Not in zero-copy or resident mode. The loader reads the
    /// records of a source, and the filler decodes them.
    ///
    /// The filler replaces the reading of samples only: the hook of [`map_batch`](Self::map_batch), the forms
    /// of ragged fields and the record of the run are the loader's own. Default: none.
    pub fn filler(self, filler: impl BatchFiller) -> Self {
        Self { filler: Some(Arc::new(filler)), ..self }
    }

    /// Skips the steps `steps` of `epoch`, counted from its beginning, without decoding them: for example, to
    /// pass a loss spike. Not for a source.
    pub fn skip(mut self, epoch: u64, steps: Range<u64>) -> Self {
        self.skips.push((epoch, steps));
        self
    }

    /// Allocates the slots and starts the threads; nothing is read before the first [`Loader::epoch`]. In
    /// resident mode it blocks until the whole set is read and on the device.
    ///
    /// # Errors
    /// `Config` for options that cannot work or contradict each other; `Budget` for slots beyond the budget;
    /// the reason why a requested zero-copy or resident mode is not possible; for a resident set, a sample
    /// that cannot be read; a device failure.
    pub fn build(self, device: &Device) -> Result<Loader> {
        let mut builder = self.resolved()?;
        builder.lanes = builder.filler_lanes()?;
        if builder.depth == Some(0) {
            return Err(Error::new(
                ErrorKind::Config,
                format!("{} is 0: at least one batch must fit on the device", named("depth", "prefetch")),
            ));
        }
        if let Some(slots) = builder.depth
            && slots >= MAX_SLOTS
        {
            let depth = named("depth", "prefetch");
            let why = format!("{depth} is {slots}: it must be below {MAX_SLOTS}; a few slots are enough");
            return Err(Error::new(ErrorKind::Config, why));
        }
        builder.workers.count()?;
        let spec = builder.spec()?;
        let layout = Layout::new(&spec, builder.batch_size)?;
        let mapped =
            builder.device_map.as_ref().map(|map| map.layout(&spec, builder.batch_size)).transpose()?;
        internal::bad_samples::check_policy(builder.bad_samples)?;
        let batch_sampler = match &builder.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => builder.batch_sampler(dataset.len())?,
            Input::Source(source) => builder.shard_plan(source.shards())?,
        };
        let against = against_zero_copy(device, &spec, &builder.sampler, builder.workers);
        let chosen = builder.choose(device, &layout, against)?;
        builder.check_filler(&layout, batch_sampler.options().len)?;
        Loader::start(builder, chosen, batch_sampler, (layout, mapped), device)
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
