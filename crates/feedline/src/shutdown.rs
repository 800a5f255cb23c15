//! How a pipeline ends: stop, close, join, drain the device, and only then free.
//!
//! Every wait of the transfer thread ends in one of three ways: the slots are closed, the other end of its
//! channel is gone, or the awaited item arrives. A stop from outside closes the slots and wakes the thread.
//! An error inside ends the thread: the batches before the failed one are delivered first, then the consumer
//! finds the channel closed, and the cause.
//!
//! Freeing a slot waits for the device without a limit. So `stop` first waits for the device with a
//! limit, and dropping a loader whose device is still busy after the limit leaks the slots.

use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use feedline_core::{Error, ErrorKind, Result, named, panic_text};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Device, Pinned, forks};

use crate::decode::WorkerPool;
use crate::job::{HostInfo, Requests};

/// The means to end every wait of the threads.
pub(crate) struct Closers {
    /// The first cause of the end.
    pub(crate) stop: Arc<OnceLock<Error>>,
    pub(crate) host_slots: Ring<Pinned, HostInfo>,
    /// The consumer's slots, and those of a device map's input.
    pub(crate) device_slots: Vec<Arc<SlotRing>>,
    pub(crate) requests: Arc<Requests>,
}

/// Ends a loader from another thread, for example when the user interrupts the program; created by
/// [`Loader::stop_handle`](crate::Loader::stop_handle).
///
/// Clones are handles of the same loader. A handle keeps nothing of the loader alive.
///
/// ```
/// use feedline::{Device, ErrorKind, Loader};
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
/// let mut loader = Loader::builder(data).batch_size(4).build(&Device::new_host())?;
/// let stop = loader.stop_handle();
/// let mut batches = loader.epoch(0)?;
/// batches.next().transpose()?;
/// std::thread::spawn(move || stop.stop()).join().unwrap();
/// assert_eq!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Stopped);
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
pub struct StopHandle {
    forks: u64,
    closers: Weak<Closers>,
}

impl StopHandle {
    /// Stops the loader, and returns at once. A call of `next` that blocks, and every later one, returns an
    /// error of kind [`Stopped`](ErrorKind::Stopped); the batches read ahead are dropped.
    ///
    /// Batches that were delivered stay valid. [`Loader::stop`](crate::Loader::stop) or the drop of the
    /// loader waits for the threads. In a forked child this does nothing.
    pub fn stop(&self) {
        if self.forks == forks()
            && let Some(closers) = self.closers.upgrade()
        {
            closers.stop();
        }
    }
}

impl std::fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopHandle")
    }
}

impl Closers {
    /// Ends every wait of the threads. The cause is the user's request, unless there is an earlier cause.
    fn stop(&self) {
        let _ = self.stop.set(stopped());
        self.close();
    }

    /// Ends every wait of the threads.
    fn close(&self) {
        self.host_slots.close();
        self.device_slots.iter().for_each(|slots| slots.close());
        self.requests.stop();
    }
}

/// The threads of a loader, and the means to end them.
pub(crate) struct Running {
    /// The value of [`forks`] at the start. Threads do not survive a fork, so a forked child waits for
    /// nothing.
    forks: u64,
    /// The first cause of the end.
    stop: Arc<OnceLock<Error>>,
    closers: Arc<Closers>,
    device: Device,
    /// The stages that have not ended yet.
    started: Vec<&'static str>,
    ended: (Sender<&'static str>, Receiver<&'static str>),
    pool: Option<WorkerPool>,
    /// The threads outside the pool.
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(closers: Closers, device: Device, pool: WorkerPool) -> Self {
        let (started, ended) = (Vec::new(), unbounded());
        Self {
            forks: forks(),
            stop: closers.stop.clone(),
            closers: Arc::new(closers),
            device,
            started,
            ended,
            pool: Some(pool),
            threads: Vec::new(),
        }
    }

    /// A stage calls this with its outcome before its channels close, so that a consumer that finds them
    /// closed also finds the cause.
    pub(crate) fn outcome(&self) -> impl Fn(Result<()>) + Send + Sync + 'static {
        let stop = self.stop.clone();
        move |result| {
            // A stage that ends because the slots were closed is not a cause.
            if let Some(cause) = result.err().filter(|error| error.kind() != ErrorKind::Stopped) {
                let _ = stop.set(cause);
            }
        }
    }

    /// Counts a stage as started. The stage calls the returned closure when it has ended.
    pub(crate) fn stage(&mut self, name: &'static str) -> impl Fn() + Send + Sync + 'static {
        self.started.push(name);
        let ended = self.ended.0.clone();
        move || {
            let _ = ended.send(name);
        }
    }

    /// Lets `stop` join `thread`.
    pub(crate) fn join(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    pub(crate) fn stop_handle(&self) -> StopHandle {
        StopHandle { forks: self.forks, closers: Arc::downgrade(&self.closers) }
    }

    /// Fails once a stop was requested. The batches before any other cause are still delivered.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        let is_stop = |cause: &&Error| cause.kind() == ErrorKind::Stopped;
        self.stop.get().filter(is_stop).cloned().map_or(Ok(()), Err)
    }

    /// Fails with the first cause once the pipeline has ended.
    pub(crate) fn check(&self) -> Result<()> {
        self.stop.get().cloned().map_or(Ok(()), Err)
    }

    /// The reason why no more batches will come.
    pub(crate) fn cause(&self) -> Error {
        self.stop.get().cloned().unwrap_or_else(stopped)
    }

    /// Refuses a process that was forked from the one that built the loader.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.forks == forks() {
            return Ok(());
        }
        let why = format!(
            "process {} was forked from the one that built the loader and has none of its threads: fork \
             before the loader is built",
            std::process::id()
        );
        Err(Error::new(ErrorKind::Forked, why))
    }

    /// Whether the calling thread is a worker of the loader's pool. Such a thread must not wait for a batch
    /// or for the end of the workers: it would wait for itself.
    pub(crate) fn is_on_own_worker(&self) -> bool {
        self.pool.as_ref().is_some_and(WorkerPool::is_worker)
    }

    /// Refuses `call` on a worker of the loader's pool.
    pub(crate) fn check_thread(&self, call: &str) -> Result<()> {
        if !self.is_on_own_worker() {
            return Ok(());
        }
        let thread = std::thread::current();
        let why = format!(
            "{call} was called on {}, a worker of this loader, which would wait for itself: {}",
            thread.name().unwrap_or("a thread"),
            named(
                "a data set must not drive a loader of the pool that reads it, so give the inner loader a \
                 pool of its own",
                "samples cannot be made of batches of the loader that reads them, so index the data, or make \
                 another loader"
            )
        );
        Err(Error::new(ErrorKind::Config, why))
    }

    /// Begins to end the threads, and returns at once.
    pub(crate) fn close(&self) {
        self.closers.stop();
    }

    /// Ends the threads, and waits for them and for the device, for at most `limit` in all.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        self.check_process()?;
        self.close();
        let start = Instant::now();
        let left = || limit.saturating_sub(start.elapsed());
        while !self.started.is_empty() {
            let Ok(name) = self.ended.1.recv_timeout(left()) else { return Err(self.stuck(limit)) };
            self.started.retain(|started| *started != name);
        }
        // The threads have only to return. If the data set owns the loader, this thread may be `fl-transfer`.
        let this = std::thread::current().id();
        let workers = self.pool.take().map(WorkerPool::into_handles).unwrap_or_default();
        let threads = std::mem::take(&mut self.threads).into_iter().chain(workers);
        for thread in threads.filter(|thread| thread.thread().id() != this) {
            // The thread has caught and reported panics of its work. The payload of any other may panic on
            // drop.
            if let Err(panic) = thread.join() {
                panic_text(panic);
            }
        }
        self.drain(left()).map_err(|error| match error.kind() {
            ErrorKind::Timeout => self.stuck(limit),
            _ => error,
        })?;
        let mut reported = self.device.stats().take_errors().into_iter();
        let first = reported.next();
        reported.for_each(|error| self.device.report(error));
        first.map_or(Ok(()), Err)
    }

    /// After a failed `stop`: leaks the slots if the device still uses them, because freeing them would
    /// block.
    pub(crate) fn leak_busy_slots(&self) {
        if self.runs_on_device().is_some() {
            self.leak_slots();
        }
    }

    /// In a forked child: leaks everything, because a drop may take a lock that stays locked for ever.
    pub(crate) fn abandon(&mut self) {
        self.leak_slots();
        std::mem::forget(std::mem::replace(&mut self.ended, unbounded()));
        std::mem::forget((self.pool.take(), std::mem::take(&mut self.threads)));
    }

    fn leak_slots(&self) {
        std::mem::forget(self.closers.clone());
    }

    /// Waits for the device. A `Timeout` error names the work that still runs there.
    fn drain(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let left = || limit.saturating_sub(start.elapsed());
        self.closers.device_slots.iter().try_for_each(|slots| slots.drain_timeout(left()))
    }

    /// A description of the work that still runs on the device, if any. A failed device counts as idle here:
    /// freeing the slots reports the failure again.
    fn runs_on_device(&self) -> Option<String> {
        let busy = self.drain(Duration::ZERO).err().filter(|error| error.kind() == ErrorKind::Timeout);
        busy.map(|error| error.message().to_owned())
    }

    fn stuck(&self, limit: Duration) -> Error {
        let readings = self.pool.as_ref().map(WorkerPool::readings).unwrap_or_default();
        let stages = || format!("still running: {}", self.started.join(", "));
        let stages =
            (!self.started.is_empty()).then(|| readings.first().map_or_else(stages, ToString::to_string));
        let what = stages.into_iter().chain(self.runs_on_device()).collect::<Vec<_>>().join("; ");
        let why = format!("the pipeline did not stop within {:.1} s: {what}", limit.as_secs_f64());
        Error::new(ErrorKind::Timeout, why)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Needed also if building the loader fails halfway: the threads already started must end.
        if self.check_process().is_ok() {
            self.closers.close();
        }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "the pipeline was stopped")
}
