//! The loader: runs the three stages and hands out their batches.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, never};
use feedline_core::{
    BadSampleReport, BatchSampler, BatchSamplerOptions, Cursor, Dataset, Error, ErrorKind, LastBatch, Layout,
    Result, Sampler, Source, SourcePosition,
};
use feedline_device::Device;
use feedline_device::device_slots::{Held, SlotRing};

use crate::builder::LoaderBuilder;
use crate::decode::{ActiveWorkers, Input};
use crate::job::{Delivery, Request, Requests};
use crate::progress::Progress;
use crate::record::{RankWriter, lock};
use crate::report::{Ledger, shuffle_at_once};
use crate::shutdown::{Running, StopHandle};
use crate::transfer_mode::ChosenMode;
use crate::tune::Tuner;

mod epoch;
mod start;

pub use epoch::{Epoch, TryNext};

/// Loads batches of a data set or a source: decodes and copies them while the caller computes.
///
/// # Drop
///
/// Dropping a loader calls [`stop`](Loader::stop) with the limit
/// [`drop_timeout`](LoaderBuilder::drop_timeout), and then frees the slots. Anything that still runs after
/// the limit is reported to the device's [`DeviceStats`](crate::device::DeviceStats) and left behind: a
/// thread whose read does not return keeps the host slots until it does; if work on the device still uses
/// slots, all slots and the copy stream are leaked. Delivered batches stay valid; dropping the last one frees
/// the slots and waits for the work that reads them. On a worker of its own pool, for example as a part of a
/// data set, a drop ends the loader without waiting for it.
///
/// # Fork
///
/// The threads of a loader do not exist in a forked child. There `epoch`, `resume`, `next` and `stop` return
/// an error of kind [`Forked`](ErrorKind::Forked), and dropping the loader does nothing. The child must
/// not use batches and streams of the parent: fork before the device is opened, or leave the child by
/// `exec` or `_exit`.
pub struct Loader {
    pub(crate) batch_sampler: Arc<BatchSampler>,
    /// Memory for the ids of a batch in a second call of a custom sampler.
    ids_again: Vec<u64>,
    /// The data set, which the workers drop when they end; `None` for a source.
    dataset: Option<Weak<dyn Dataset>>,
    /// The layout of the rows that workers write.
    layout: Arc<Layout>,
    /// The layout of the batches that are delivered. A device map changes it.
    delivered: Arc<Layout>,
    device: Device,
    slots: Arc<SlotRing>,
    requests: Arc<Requests>,
    /// The batches whose copies are queued.
    loaded: Receiver<Delivery>,
    /// The time that a thread that holds every slot waits for a free one.
    held_timeout: Duration,
    /// The holders of the slots at the last wait, and how long the loader has waited for them.
    held: (Held, Duration),
    /// The current request, and the next batch it will deliver; `None` before the first epoch.
    current: Option<Request>,
    epochs: Option<u64>,
    progress: Progress,
    /// The record of the run; `None` after a [`stop`](Self::stop).
    recorder: Option<RankWriter>,
    fingerprint: u64,
    /// Whether the batch sampler is over shards, so that the end of an epoch is not known in advance.
    is_source: bool,
    transfer_mode: ChosenMode,
    memory_use: MemoryUse,
    drop_timeout: Duration,
    running: Running,
    pub(crate) ledger: Ledger,
    /// With [`Workers::Auto`](crate::Workers::Auto): the tuner, and the workers that it puts to sleep.
    tuning: Option<(Tuner, ActiveWorkers)>,
}

/// Bytes held by a loader's slots, and by the set in zero-copy and resident mode. They are allocated at the
/// start and never grow. Memory that the closures of [`device_map`](crate::LoaderBuilder::device_map) and
/// [`produce`](crate::LoaderBuilder::produce) allocate is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Pinned host memory.
    pub pinned_bytes: u64,
    /// Device memory.
    pub device_bytes: u64,
}

impl Loader {
    /// Configures a loader of `dataset`.
    pub fn builder(dataset: impl Dataset) -> LoaderBuilder {
        LoaderBuilder::new(Input::dataset(dataset))
    }

    /// Configures a loader of `source`: data without a length or random access.
    ///
    /// Differences from a data set:
    ///
    /// - [`shuffle_shards`](LoaderBuilder::shuffle_shards) and the sampler order the shards only, never the
    ///   records. Each rank reads its own shards, so there must be at least as many as ranks; see
    ///   [`source`](crate::source).
    /// - The end of an epoch is not known in advance: [`Epoch::steps`] is `None`, and ranks may have
    ///   different numbers of steps.
    /// - One worker at a time reads records in sequence; all workers decode.
    /// - A bad sample is replaced by another of its batch. A shard that cannot be read ends the run.
    /// - The last batch cannot be padded, and steps cannot be skipped.
    /// - The cursor holds shard and offset. It belongs to one rank, and the world can change only
    ///   between epochs.
    ///
    /// ```
    /// use feedline::source::{Next, Shard, Source};
    /// use feedline::{Context, DType, Device, Loader, ReadError, Row, Spec};
    ///
    /// struct Numbers { spec: Spec }
    /// struct From { at: u64, end: u64 }
    ///
    /// impl Source for Numbers {
    ///     fn shards(&self) -> u64 { 3 }
    ///     fn spec(&self) -> &Spec { &self.spec }
    ///     fn open(&self, _epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
    ///         Ok(Box::new(From { at: offset, end: 10 * shard }))
    ///     }
    ///     fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         row.write(0, record);
    ///         Ok(())
    ///     }
    /// }
    /// impl Shard for From {
    ///     fn offset(&self) -> u64 { self.at }
    ///     fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
    ///         if self.at == self.end { return Ok(Next::End) }
    ///         record.extend(self.at.to_le_bytes());
    ///         self.at += 1;
    ///         Ok(Next::Record)
    ///     }
    /// }
    /// let numbers = Numbers { spec: Spec::new().field("number", DType::I64, [])? };
    /// let builder = Loader::source_builder(numbers).batch_size(8).shuffle_shards().seed(7);
    /// let mut loader = builder.build(&Device::new_host())?;
    /// let rows = loader.epoch(0)?.map(|batch| Ok(batch?.len())).sum::<feedline::Result<usize>>()?;
    /// assert_eq!(rows, 30);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn source_builder(source: impl Source) -> LoaderBuilder<dyn Source> {
        LoaderBuilder::new(Input::Source(Arc::new(source)))
    }
}

/// # For loaders
///
/// What bridges and tests call. It may change in any release.
impl Loader {
    /// The memory layout of a batch as it is copied, before a device map.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl Loader {
    /// The batches of `epoch`, in order.
    ///
    /// Consecutive epochs follow each other without a gap: the next epoch's first batches are read
    /// while this one drains. Any other epoch, or a new start after an early `break`, drops the batches
    /// read ahead.
    ///
    /// # Errors
    /// `Config` for an epoch that [`epochs`](LoaderBuilder::epochs) excludes, and on a worker of the loader's
    /// pool, which would wait for itself; `Forked` in a forked child; once the pipeline has ended, the first
    /// cause.
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch<'_>> {
        self.running.check_process()?;
        self.check_thread("epoch")?;
        self.check_epoch(epoch)?;
        self.progress.begin(epoch);
        self.continue_epoch()
    }

    /// The rest of the epoch in which `cursor` was saved ([`checkpoint`](Progress::checkpoint)). Call
    /// [`epoch`](Self::epoch) for the epochs after it.
    ///
    /// Takes the same time for every cursor. Workers, depth and device may differ from the run that
    /// saved it, and so may batch size, last batch and world: the global order continues unchanged. The
    /// world of a source may change only between epochs.
    ///
    /// The data must be the same as in the run that saved the cursor. The loader compares the set's
    /// [`fingerprint`](Dataset::fingerprint), which the set defines. By default it covers only the length and
    /// the spec: if samples change, but not their number, the run is resumed without an error, unless your
    /// set states another [`version`](Dataset::version). The sets of `feedline-datasets` cover the content of
    /// files in memory, and the length and a sample of the content of others; a copy of a file is the same
    /// data. For your own set, `feedline_core::Fingerprint` covers files by content. To resume with data
    /// that you know to be the same, state its version ([`LoaderBuilder::data_version`]), or resume with
    /// [`Cursor::ignore_fingerprint`].
    ///
    /// # Errors
    /// `Cursor` if it does not fit the data set, the order or the seed, or points into the middle of a step;
    /// otherwise as [`epoch`](Self::epoch).
    pub fn resume(&mut self, cursor: Cursor) -> Result<Epoch<'_>> {
        self.running.check_process()?;
        self.check_thread("resume")?;
        self.check_epoch(cursor.epoch())?;
        let fit = if self.is_source { Cursor::fit_source } else { Cursor::fit };
        let fitted = fit(cursor, &self.batch_sampler, self.fingerprint);
        self.progress.set_cursor(fitted.map_err(|error| self.of_shuffle_at_once(cursor).unwrap_or(error))?);
        self.continue_epoch()
    }

    /// The error for the cursor of a run that shuffled all samples at once. This run shuffles them by blocks.
    fn of_shuffle_at_once(&self, cursor: Cursor) -> Option<Error> {
        let options = self.batch_sampler.options();
        if self.is_source || !matches!(options.sampler, Sampler::Block(_)) {
            return None;
        }
        let at_once = BatchSamplerOptions { sampler: Sampler::Shuffle, ..options.clone() };
        cursor.fit(&BatchSampler::new(at_once).ok()?, self.fingerprint).ok()?;
        let why = "the cursor belongs to another order of the samples: the run that saved it shuffled all \
                   samples at once, and this one shuffles them by blocks; to go on with that run";
        Some(Error::new(ErrorKind::Cursor, format!("{why}, {}", shuffle_at_once())))
    }

    fn check_epoch(&self, epoch: u64) -> Result<()> {
        let Some(epochs) = self.epochs.filter(|&epochs| epoch >= epochs) else { return Ok(()) };
        let why = format!(
            "the loader was built for {epochs} epochs, counted from 0, and has no epoch {epoch}: raise \
             epochs, or do not set it"
        );
        Err(Error::new(ErrorKind::Config, why))
    }

    /// The batches from the cursor to the end of its epoch.
    fn continue_epoch(&mut self) -> Result<Epoch<'_>> {
        let cursor = self.cursor();
        let (epoch, at) = (cursor.epoch(), cursor.source_position());
        let paused = self.ledger.begin(epoch, self.slots.take_host_waits());
        if let Some((tuner, _)) = &mut self.tuning {
            tuner.paused(paused);
        }
        let steps = self.batch_sampler.steps(epoch, at.position);
        let is_next = |request: Request| {
            (request.epoch, request.source_position(), request.step) == (epoch, at, 0)
                && request.epoch < request.end
        };
        // If the current request continues, the batches read before an error are delivered first.
        if !self.current.is_some_and(is_next) {
            self.running.check()?;
            if steps > 0 {
                self.request(epoch, at)?;
            }
        }
        let steps = (!self.is_source).then_some(steps);
        Ok(Epoch::new(self, epoch, steps))
    }

    /// Requests the batches from `at` in `epoch` on; batches of older requests are dropped on arrival.
    fn request(&mut self, epoch: u64, at: SourcePosition) -> Result<()> {
        let number = self.current.map_or(1, |at| at.number + 1);
        let end = self.epochs.unwrap_or(u64::MAX);
        let SourcePosition { position: start, offset, taken } = at;
        let request = Request { number, epoch, start, offset, taken, end, step: 0 };
        self.requests.begin(request).map_err(|_| self.running.cause())?;
        self.current = Some(request);
        Ok(())
    }

    /// Continues the report of the run that saved the cursor: its samples count towards the budget.
    pub fn set_bad_sample_report(&mut self, bad_sample_report: BadSampleReport) {
        self.progress.set_bad_sample_report(bad_sample_report);
    }

    /// A handle to take checkpoints and read the cursor and the report while an epoch borrows the loader.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// A handle that another thread can stop the loader with.
    pub fn stop_handle(&self) -> StopHandle {
        self.running.stop_handle()
    }

    /// Steps of an epoch, the same on every rank; `None` for a source, whose end is not known in advance.
    ///
    /// [`Epoch::steps`] is less where [`skip`](LoaderBuilder::skip) leaves out steps, and after
    /// [`resume`](Self::resume).
    pub fn steps_per_epoch(&self) -> Option<u64> {
        let (positions, per_step) = (self.batch_sampler.positions(), self.batch_sampler.global_batch());
        let steps = match self.batch_sampler.options().last_batch {
            LastBatch::Drop => positions / per_step,
            LastBatch::Keep | LastBatch::Pad => positions.div_ceil(per_step),
        };
        (!self.is_source).then_some(steps)
    }

    /// Refuses `call` on a worker of the loader's pool.
    pub(crate) fn check_thread(&self, call: &str) -> Result<()> {
        self.running.check_thread(call)
    }

    /// Tells the report that the epoch is over.
    pub(crate) fn end_epoch(&mut self) {
        self.ledger.end(self.slots.take_host_waits());
    }

    /// Whether the epoch has nothing more to deliver.
    pub(crate) fn is_at_end(&self) -> bool {
        self.progress.is_at_end(&self.batch_sampler)
    }

    /// The samples of each batch; for a source, the shard that this rank reads at each step.
    pub fn batch_sampler(&self) -> &BatchSampler {
        &self.batch_sampler
    }

    /// The data set, for example to look something up in it, or to keep it longer than the loader. `None` for
    /// a source, and once the loader has stopped.
    ///
    /// The workers share it. As long as you hold it, the end of the loader does not drop it. To keep its
    /// type, give the loader an `Arc` of it: `Loader::builder(data.clone())`.
    ///
    /// ```
    /// use feedline::{Dataset, Device, InMemory, Loader};
    /// let numbers = InMemory::new().field("number", [], [1_u8, 2, 3])?;
    /// let loader = Loader::builder(numbers).batch_size(2).build(&Device::new_host())?;
    /// let numbers = loader.dataset().expect("the loader has not stopped");
    /// drop(loader);
    /// let more = Loader::builder(numbers.repeat(10)?).batch_size(2).build(&Device::new_host())?;
    /// assert_eq!(more.dataset().map(|set| set.len()), Some(30));
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn dataset(&self) -> Option<Arc<dyn Dataset>> {
        self.dataset.as_ref()?.upgrade()
    }

    /// The memory that the loader holds, constant over its life.
    pub fn memory_use(&self) -> MemoryUse {
        self.memory_use
    }

    /// The transfer mode, and why it is staged if zero copy was not possible.
    pub fn transfer_mode(&self) -> &ChosenMode {
        &self.transfer_mode
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The addresses of the device slots, by [`Ready::slot`](crate::Ready::slot). On a GPU they are fixed for
    /// the life of the loader. On the host they are not: large batches are
    /// [handed over](crate::HostLoader#memory) with their memory.
    pub fn slot_addresses(&self) -> Vec<feedline_device::Address> {
        self.slots.addresses().collect()
    }

    /// Stops the stages. Waits for at most `limit` until their threads have ended and the device has finished
    /// all copies into the slots and all work on dropped batches. Calling it again waits for the rest.
    ///
    /// Batches that you still hold stay valid and are not waited for. The threads of a
    /// [`WorkerPool`](crate::WorkerPool) that is in use elsewhere continue.
    ///
    /// # Errors
    /// `Timeout` naming what still runs: a read that does not return, or work on the device. `Panic` if
    /// the data set panicked while it was dropped. `Forked` in a forked child. `Config` on a worker of the
    /// loader's pool. Device failures that no other call has returned.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        self.running.check_process()?;
        self.check_thread("stop")?;
        // The transfer thread's sends fail instead of blocking.
        self.loaded = never();
        self.current = None;
        let stopped = self.running.stop(limit);
        stopped.and(self.recorder.take().map_or(Ok(()), |writer| lock(&writer).flush()))
    }

    /// In a forked child: leaks everything. A thread that does not exist in the child may hold a lock
    /// that a drop would take.
    fn abandon(&mut self) {
        std::mem::forget(self.tuning.take());
        std::mem::forget(std::mem::replace(&mut self.loaded, never()));
        self.running.abandon();
    }
}

/// The progress: its cursor, checkpoints and report.
impl std::ops::Deref for Loader {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if self.running.check_process().is_ok() && self.running.is_on_own_worker() {
            self.running.close();
            return self.running.leak_busy_slots();
        }
        match self.stop(self.drop_timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Forked => self.abandon(),
            Err(error) => {
                self.device.report(error);
                self.running.leak_busy_slots();
            }
        }
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.is_source { "shards" } else { "samples" };
        write!(f, "Loader({} {what} on {:?})", self.batch_sampler.options().len, self.device)
    }
}
