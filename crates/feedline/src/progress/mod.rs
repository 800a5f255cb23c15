//! The progress of a loader. It is counted as batches are delivered, and can be read while an epoch borrows
//! the loader. A checkpoint is the progress that matches the model: it counts the batches whose work has
//! finished.

mod file;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use feedline_core::{
    BadSampleReport, BadSamples, BatchProof, BatchSampler, Cursor, Error, ErrorKind, Result, SourcePosition,
    Stage,
};
use feedline_device::{Device, Stream};

use crate::Batch;
use crate::record::{Writer, lock};
use crate::report::{Report, Reporter, ServiceTimes};

/// The progress of a loader: its cursor, checkpoints and report. A [`Loader`](crate::Loader) and an
/// [`Epoch`](crate::Epoch) have its methods too.
///
/// [`Loader::progress`](crate::Loader::progress) gives a handle that can be used while an epoch borrows the
/// loader, and on another thread. Clones are handles of the same loader. A handle outlives the loader, and
/// then keeps its last state.
///
/// ```
/// use feedline::{Device, Loader};
/// # use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
/// # struct Ones(Spec);
/// # impl Dataset for Ones {
/// #     fn len(&self) -> u64 { 40 }
/// #     fn spec(&self) -> &Spec { &self.0 }
/// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
/// #         row.bytes_mut(0).fill(1);
/// #         Ok(())
/// #     }
/// # }
/// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
/// let device = Device::new_host();
/// let compute = device.stream()?;
/// let mut loader = Loader::builder(data).batch_size(4).build(&device)?;
/// let progress = loader.progress();
/// for (step, batch) in (1..).zip(loader.epoch(0)?) {
///     let batch = batch?.wait_on(&compute)?;
///     // queue a training step on `compute` here
///     drop(batch); // the checkpoint counts this batch, so its work must be queued and the batch released
///     if step % 5 == 0 {
///         let saved = progress.checkpoint(&compute)?; // blocks until the steps so far have run
///         assert_eq!(saved.cursor.proof().count(), 4 * step);
///     }
/// }
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
pub struct Progress {
    /// The state after the batches delivered so far.
    counted: Arc<Mutex<Checkpoint>>,
    /// The number of delivered batches that are not released; see `SlotRing::unreleased`.
    unreleased: Arc<AtomicUsize>,
    bad_samples: BadSamples,
    device: Device,
    reporter: Arc<Reporter>,
    /// The record of the run; the loader owns it.
    recorder: Weak<Mutex<Writer>>,
}

/// The state of a loader that matches the state of the model; created by
/// [`Progress::checkpoint`](crate::Progress::checkpoint).
///
/// Save it with the model, by [`save`](Self::save) or by its two fields. To continue the run, pass them to
/// [`Loader::set_bad_sample_report`](crate::Loader::set_bad_sample_report) and
/// [`Loader::resume`](crate::Loader::resume).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The batches delivered so far.
    pub cursor: Cursor,
    /// The samples that could not be read so far.
    pub bad_sample_report: BadSampleReport,
}

impl Progress {
    pub(crate) fn new(
        cursor: Cursor,
        (unreleased, bad_samples): (Arc<AtomicUsize>, BadSamples),
        device: Device,
        reporter: Arc<Reporter>,
        recorder: Weak<Mutex<Writer>>,
    ) -> Self {
        let counted = Checkpoint { cursor, bad_sample_report: BadSampleReport::default() };
        Self { counted: Arc::new(Mutex::new(counted)), unreleased, bad_samples, device, reporter, recorder }
    }

    /// The position after the batches delivered so far.
    ///
    /// It counts a batch as soon as it is delivered, before the work on it has finished. To save a run, use
    /// [`checkpoint`](Self::checkpoint), which waits for the model.
    pub fn cursor(&self) -> Cursor {
        self.lock().cursor
    }

    /// The samples that could not be read so far, and their substitutes.
    pub fn bad_sample_report(&self) -> BadSampleReport {
        self.lock().bad_sample_report.clone()
    }

    /// The account of the time up to the last delivery; never blocks for long.
    ///
    /// ```
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// use feedline::report::Cause;
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 40 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
    /// let mut loader = Loader::builder(data).batch_size(4).build(&Device::new_host())?;
    /// let progress = loader.progress(); // for another thread, while the epoch runs
    /// loader.epoch(0)?.try_for_each(|batch| batch.map(drop))?;
    /// let report = loader.report();
    /// assert_eq!(report.epoch.batches, 10);
    /// let charged = Cause::ALL.map(|cause| report.epoch.time(cause)); // every nanosecond has one cause
    /// assert_eq!(charged.iter().sum::<std::time::Duration>(), report.epoch.wall());
    /// println!("{:.0} % in decoding", 100.0 * report.epoch.share(Cause::Decode));
    /// println!("{report}"); // a table; the crate feedline-report says what would help
    /// assert_eq!(progress.report().run.batches, 10);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn report(&self) -> Report {
        self.reporter.report()
    }

    /// Sets the time of a step on the device, if it is known: from `feedline_report::WaitMeter`, for example.
    ///
    /// The loader only observes the consumer's calls. If steps are queued on a stream and data comes late,
    /// the calls do not show the time of a step, and predictions are too high.
    pub fn set_step_time(&self, step: Duration) {
        self.reporter.set_step_time(step);
    }

    /// Charges `time` of the calling thread to the device map instead of the consumer. For consumers that map
    /// batches ahead of the step on their own thread, such as the Python package's `device_map`. Call it
    /// before taking the next batch.
    pub fn add_device_map_time(&self, time: Duration) {
        self.reporter.add_device_map_time(time);
    }

    /// A checkpoint to save with the model.
    ///
    /// Blocks until all work queued on `compute` so far has finished. Without that wait the model would be
    /// behind the loader: work on a stream runs later, so when `next` returns batch 40 the weights may
    /// be those of step 30. After this call the model has seen exactly the batches that the cursor
    /// counts, until the next batch is delivered.
    ///
    /// Pass the stream that updates the model. If several streams do, make `compute` wait for the
    /// others first ([`Stream::wait`]).
    ///
    /// # Errors
    /// `BatchHeld` while a delivered batch is not released: the cursor counts that batch, but its work may
    /// not be queued yet. Also if another thread takes a batch during the call, since the model may or may
    /// not have seen it. `Config` for a stream of another device, or one that is being recorded. A device
    /// failure, including a failure of the queued work.
    ///
    /// ```
    /// use feedline::{Device, Loader};
    /// # use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 40 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = || Ok::<_, feedline::Error>(Ones(Spec::new().field("x", DType::U8, [])?));
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(data()?).batch_size(4).build(&device)?;
    /// let mut batches = loader.epoch(0)?;
    /// for _ in 0..3 {
    ///     let Some(batch) = batches.next() else { break };
    ///     let batch = batch?.wait_on(&compute)?;
    ///     // queue a training step on `compute` here
    /// } // the batch is released before the checkpoint
    /// let saved = batches.checkpoint(&compute)?; // blocks until the three steps have run
    ///
    /// let mut loader = Loader::builder(data()?).batch_size(4).build(&device)?;
    /// loader.set_bad_sample_report(saved.bad_sample_report);
    /// assert_eq!(loader.resume(saved.cursor)?.count(), 7);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn checkpoint(&self, compute: &Stream) -> Result<Checkpoint> {
        self.device.check_stream(compute)?;
        // This comes before the wait, so that no work queued for a batch after this point is missed.
        let saved = self.released()?;
        compute.synchronize()?;
        let after = self.released()?;
        if saved.cursor != after.cursor {
            let why = "a batch was delivered on another thread while the checkpoint waited: take checkpoints \
                       on the thread of the training loop, between two batches";
            return Err(Error::new(ErrorKind::BatchHeld, why).at_stage(Stage::Compute));
        }
        Ok(saved)
    }

    /// The present state, if every delivered batch is released.
    pub(crate) fn released(&self) -> Result<Checkpoint> {
        // A batch is counted as held first, and by the cursor afterwards. So lock the cursor first.
        let counted = self.lock();
        let held = self.unreleased.load(Ordering::Acquire);
        if held > 0 {
            let batches = if held == 1 { "batch is held" } else { "batches are held" };
            let why = format!(
                "cannot take a checkpoint while {held} delivered {batches}: queue the work and drop it first"
            );
            return Err(Error::new(ErrorKind::BatchHeld, why).at_stage(Stage::Compute));
        }
        // A resumed run must find every step before its cursor in the record.
        self.recorder.upgrade().map_or(Ok(()), |writer| lock(&writer).flush())?;
        Ok(counted.clone())
    }

    pub(crate) fn begin(&self, epoch: u64) {
        self.lock().cursor.begin(epoch);
    }

    pub(crate) fn set_cursor(&self, cursor: Cursor) {
        let mut counted = self.lock();
        counted.cursor = cursor;
        if let Some(writer) = self.recorder.upgrade() {
            lock(&writer).resume();
        }
    }

    pub(crate) fn set_bad_sample_report(&self, bad_sample_report: BadSampleReport) {
        self.lock().bad_sample_report = bad_sample_report;
    }

    /// Whether `batch_sampler` has no step left in the epoch.
    pub(crate) fn is_at_end(&self, batch_sampler: &BatchSampler) -> bool {
        self.lock().cursor.is_at_end(batch_sampler)
    }

    /// Moves the cursor to `source_position`, the end of the source's epoch.
    pub(crate) fn end_epoch(&self, source_position: SourcePosition) {
        self.lock().cursor.reach(source_position, &BatchProof::default());
    }

    /// Counts a batch that is about to be delivered, and checks the bad samples against the budget.
    ///
    /// # Errors
    /// `Sample` if there are more bad samples than the loader tolerates, `Data` if the record cannot be
    /// written; the cursor does not count the batch.
    pub(crate) fn count(&self, batch: &Batch, batch_sampler: &BatchSampler) -> Result<()> {
        let Checkpoint { cursor, bad_sample_report } = &mut *self.lock();
        bad_sample_report.delivered(batch.len() as u64);
        for substituted in batch.substituted() {
            for (number, failure) in substituted.failures.iter().enumerate() {
                let path = failure.path.clone();
                if number == 0 {
                    let (own, substitute) = (failure.sample, substituted.substitute);
                    bad_sample_report.replaced(batch.epoch(), own, substitute, path, &failure.cause);
                } else {
                    bad_sample_report.failed(failure.sample, path, &failure.cause);
                }
            }
        }
        // The check allocates, so it runs only if there are bad samples.
        if !bad_sample_report.samples().is_empty() {
            bad_sample_report.check(self.bad_samples).map_err(|error| error.at_batch(batch.step()))?;
        }
        let info = &**batch;
        debug_assert_eq!(info.proof, BatchProof::of(cursor.epoch(), &info.ids[..info.valid]));
        let before = *cursor;
        match info.source_position {
            Some(source_position) => cursor.reach(source_position, &info.proof),
            None => cursor.deliver(batch_sampler, &info.proof),
        }
        if let Some(writer) = self.recorder.upgrade()
            && let Err(error) = lock(&writer).step(&before, info, cursor)
        {
            *cursor = before;
            return Err(error);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Checkpoint> {
        lock(&self.counted)
    }
}

/// # For loaders
///
/// What the crate feedline-report calls. It may change in any release.
impl Progress {
    /// The service times of the last batches, up to 256, the oldest first.
    pub fn service_times(&self) -> Vec<ServiceTimes> {
        self.reporter.samples()
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cursor = self.cursor();
        write!(f, "Progress(epoch {}, position {})", cursor.epoch(), cursor.position())
    }
}
