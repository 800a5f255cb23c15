//! The builder of a loader: the options of both kinds of data here, those of one kind in [`set`] and
//! [`source`].

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use feedline_core::{BadSamples, Context, Dataset, LastBatch, ReadError, Result, Sampler, World};
use feedline_device::Device;

use crate::Loader;
use crate::decode::filler::BatchFiller;
use crate::decode::{FilledBatch, Input, MapBatch, WorkerPool, Workers};
use crate::trace::Trace;

pub(crate) use self::options::LoaderOptions;
use self::options::Order;

mod devices;
mod options;
mod plan;
mod record;
mod set;
mod source;

/// Configures a loader; created by [`Loader::builder`] for a data set, and by [`Loader::source_builder`] for
/// a source.
///
/// `T` is the kind of the data. The options in the block of `LoaderBuilder<dyn Dataset>` are for data sets,
/// those of `LoaderBuilder<dyn Source>` for sources, and all others for both: a function that changes either
/// builder is generic, `fn with<T: ?Sized>(builder: LoaderBuilder<T>) -> LoaderBuilder<T>`.
///
/// The last call of a method counts; [`sampler`](Self::sampler) and `shuffle` set the same option, the order.
///
/// ```
/// use feedline::{Device, InMemory, LastBatch, Loader};
/// let numbers = InMemory::new().field("number", [], [1_u8, 2, 3])?;
/// let builder = Loader::builder(numbers).batch_size(4).last_batch(LastBatch::Drop);
/// let error = builder.build(&Device::new_host()).unwrap_err();
/// assert!(error.to_string().contains("4"), "{error}");
/// # Ok::<(), feedline::Error>(())
/// ```
///
/// The records of a source are read in sequence, and a data set has no shards:
///
/// ```
/// use feedline::{Dataset, Loader, LoaderBuilder, Source};
/// fn of_source(source: impl Source) -> LoaderBuilder<dyn Source> {
///     Loader::source_builder(source).batch_size(32).shuffle_shards().shuffle_buffer(1 << 20)
/// }
/// fn of_set(set: impl Dataset) -> LoaderBuilder {
///     Loader::builder(set).batch_size(32).shuffle()
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use feedline::{Dataset, Loader, LoaderBuilder, Source};
/// fn of_source(source: impl Source) -> LoaderBuilder<dyn Source> {
///     Loader::source_builder(source).batch_size(32).shuffle() // shuffle_shards
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use feedline::{Dataset, Loader, LoaderBuilder, Source};
/// fn of_set(set: impl Dataset) -> LoaderBuilder {
///     Loader::builder(set).batch_size(32).shuffle().shuffle_buffer(1 << 20) // no buffer
/// }
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct LoaderBuilder<T: ?Sized = dyn Dataset> {
    pub(crate) options: LoaderOptions,
    data: PhantomData<fn(&T)>,
}

impl<T: ?Sized> LoaderBuilder<T> {
    pub(crate) fn new(input: Input) -> Self {
        Self { options: LoaderOptions::new(input), data: PhantomData }
    }

    /// Samples per batch. Default: 1.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.options.batch_size = batch_size;
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
        self.options.order = Order::Sampler(sampler);
        self
    }

    /// The seed of the order, and of the random numbers passed to `Dataset::read`. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Sets a version of the data, such as `"imagenet-2012"`, in place of its fingerprint: a cursor then fits
    /// data of the same version, length and fields, and the content is not read. Change the version when
    /// samples change. Default: the [`fingerprint`](feedline_core::Dataset::fingerprint) of the data.
    pub fn data_version(mut self, version: impl Into<String>) -> Self {
        self.options.data_version = Some(version.into());
        self
    }

    /// What happens to a last batch that is not full. A source can keep or drop it, not pad it. Default: it
    /// is delivered short.
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.options.last_batch = last_batch;
        self
    }

    /// Which part of every global batch this process loads. Default: all of it.
    ///
    /// A global batch has `batch_size` samples per rank, and every rank has the same number of steps, except
    /// of a source, whose ranks read different shards. The environment is not read by default: pass
    /// [`World::from_env`] to use what torchrun, Open MPI or Slurm have set.
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
    pub fn world(mut self, world: World) -> Self {
        self.options.world = world;
        self
    }

    /// Number of decode threads. Default: [`Workers::PerCore`]. In zero-copy mode nothing is decoded and
    /// there is one.
    pub fn workers(mut self, workers: Workers) -> Self {
        self.options.workers = workers;
        self
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
    pub fn pool(mut self, pool: &WorkerPool) -> Self {
        self.options.pool = Some(pool.clone());
        self
    }

    /// Bytes of stack of each worker, for a [`read`](crate::Dataset::read) that needs more than the default:
    /// 2 MiB, which is the least, or the bytes that the environment variable `RUST_MIN_STACK` gives. With a
    /// [`pool`](Self::pool) it has no effect: see [`WorkerPool::with_stack`].
    ///
    /// A read that needs more than there is ends the process: the system sends `SIGSEGV`, and standard error
    /// says that the thread `fl-decode-N` has overflowed its stack. Memory of the stack is taken as it is
    /// used.
    ///
    /// ```
    /// use feedline::{DType, Loader, Spec, from_fn};
    /// let deep = from_fn(4, Spec::new().field("sum", DType::I64, [])?, |id, row, _| {
    ///     let table = std::hint::black_box([id as i64; 500_000]); // 4 MB of stack
    ///     row.field_mut::<i64>("sum")?[0] = table.iter().sum();
    ///     Ok(())
    /// });
    /// let mut loader = Loader::builder(deep).worker_stack(32 << 20).build_host()?;
    /// assert_eq!(loader.epoch(0)?.count(), 4);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn worker_stack(mut self, bytes: usize) -> Self {
        self.options.worker_stack = Some(bytes);
        self
    }

    /// Number of batches on the device at a time, whether being copied, waiting or being read. Default: as
    /// many as fit into 32 MiB, from 3 to 8.
    pub fn depth(mut self, slots: usize) -> Self {
        self.options.depth = Some(slots);
        self
    }

    /// Records what the loader's threads and its copy stream do into `trace`. Default: nothing is recorded.
    ///
    /// Every copy is timed by events while a trace is recorded, which costs a few driver calls per batch.
    pub fn trace(mut self, trace: &Trace) -> Self {
        self.options.trace = Some(trace.clone());
        self
    }

    /// Max pinned memory, in bytes. Default: 2 GiB. In zero-copy mode the set counts too.
    pub fn pinned_budget(mut self, bytes: usize) -> Self {
        self.options.pinned_budget = bytes;
        self
    }

    /// The number of epochs: nothing is read ahead beyond epoch `epochs - 1`, and asking for a later
    /// one is an error. Default: no limit.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.options.epochs = Some(epochs);
        self
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
    pub fn held_timeout(mut self, limit: Duration) -> Self {
        self.options.held_timeout = limit;
        self
    }

    /// How long dropping the loader waits for its threads and for work on dropped batches. Default: 5
    /// seconds. [`Loader`](crate::Loader#drop) describes what happens after it.
    pub fn drop_timeout(mut self, limit: Duration) -> Self {
        self.options.drop_timeout = limit;
        self
    }

    /// What happens when a sample cannot be read. Default: the run fails.
    pub fn bad_samples(mut self, bad_samples: BadSamples) -> Self {
        self.options.bad_samples = bad_samples;
        self
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
        mut self,
        hook: impl Fn(&mut FilledBatch<'_>, &mut Context) -> Result<(), ReadError> + Send + Sync + 'static,
    ) -> Self {
        self.options.map_batch = Some(MapBatch(Arc::new(hook)));
        self
    }

    /// Lets `filler` fill batches beside the workers: servers on other machines, for example. Order, cursors
    /// and batches are the same as from workers. Not in zero-copy or resident mode. The loader reads the
    /// records of a source, and the filler decodes them.
    ///
    /// The filler replaces the reading of samples only: the hook of [`map_batch`](Self::map_batch), the forms
    /// of ragged fields and the record of the run are the loader's own. Default: none.
    pub fn filler(mut self, filler: impl BatchFiller) -> Self {
        self.options.filler = Some(Arc::new(filler));
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
        self.options.start(device)
    }
}

/// # For loaders
///
/// What the Python package, the bridges and the readers of records call. It may change in any release.
impl<T: ?Sized> LoaderBuilder<T> {
    /// Declares that samples are read under one lock, so that the report names it as the limit.
    pub fn under_one_lock(mut self) -> Self {
        self.options.is_under_one_lock = true;
        self
    }

    /// Declares that `threads` decode threads ask one worker process, so that the report counts processes.
    pub fn threads_per_worker(mut self, threads: usize) -> Self {
        self.options.threads_per_worker = threads.max(1);
        self
    }

    /// This builder as one of either kind of data: only the shared options can be set.
    pub fn either(self) -> LoaderBuilder<()> {
        LoaderBuilder { options: self.options, data: PhantomData }
    }

    /// Declares that the lanes decode on the CPU too, so that the report does not advise it.
    pub fn lanes_use_cpu(mut self) -> Self {
        self.options.lanes_use_cpu = true;
        self
    }
}

impl<T: ?Sized> Clone for LoaderBuilder<T> {
    fn clone(&self) -> Self {
        Self { options: self.options.clone(), data: PhantomData }
    }
}

impl<T: ?Sized> std::fmt::Debug for LoaderBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("batch_size", &self.options.batch_size)
            .field("workers", &self.options.workers)
            .field("depth", &self.options.depth)
            .finish_non_exhaustive()
    }
}
