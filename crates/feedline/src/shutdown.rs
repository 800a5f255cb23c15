//! How a pipeline ends: stop, close, join, drain the device, and only then free.
//!
//! Every wait of the transfer thread ends by one of three things: the slots are closed, the other end of its channel is
//! gone, or what it waits for arrives. A stop from outside closes the slots and wakes the thread. An error inside ends the
//! thread; batches before the failed one are delivered first, and then the consumer finds the channel closed, and the cause.
//!
//! Freeing a slot waits for the device without a limit. So `stop` first waits for the device with one, and
//! the drop of a loader whose device is still busy after its limit leaks the slots.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use feedline_core::{Error, ErrorKind, Result, Stop};
use feedline_device::slot::SlotRing;
use feedline_device::{Device, Pinned, forks};
use feedline_slots::Ring;

use crate::decode::{Decoder, Note, WorkerPool};
use crate::transfer::{Request, Wanted};

/// What ends every wait of the threads.
#[derive(Clone)]
pub(crate) struct Closers {
    pub(crate) stop: Arc<Stop>,
    pub(crate) host_slots: Ring<Pinned, Note>,
    pub(crate) device_slots: SlotRing,
    pub(crate) wanted: Arc<Wanted>,
}

/// The threads of a loader, and the way to end them.
pub(crate) struct Running {
    /// What [`forks`] said at the start: threads do not survive a fork, so nothing is waited for after one.
    forks: u64,
    closers: Closers,
    device: Device,
    /// The stages that have not ended yet.
    started: Vec<&'static str>,
    ended: (Sender<&'static str>, Receiver<&'static str>),
    /// Of the threads, so that the data is dropped with the last of them, and with it what was not delivered.
    decoder: Weak<Decoder>,
    pool: Option<WorkerPool>,
    transfer: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(closers: Closers, device: Device, pool: WorkerPool) -> Self {
        let (started, ended) = (Vec::new(), unbounded());
        Self {
            forks: forks(),
            closers,
            device,
            started,
            ended,
            decoder: Weak::new(),
            pool: Some(pool),
            transfer: None,
        }
    }

    /// What a stage calls with its outcome, before its channels close: a consumer that finds them closed finds the cause.
    pub(crate) fn outcome(&self) -> impl Fn(Result<()>) + Send + Sync + 'static {
        let stop = self.closers.stop.clone();
        move |result| {
            // A stage that ends because the slots were closed is no cause of its own.
            if let Some(cause) = result.err().filter(|error| error.kind() != ErrorKind::Stopped) {
                stop.trip(cause);
            }
        }
    }

    /// Counts a stage as started; the stage calls the result when it has ended.
    pub(crate) fn stage(&mut self, name: &'static str) -> impl FnOnce() + Send + 'static {
        self.started.push(name);
        let ended = self.ended.0.clone();
        move || {
            let _ = ended.send(name);
        }
    }

    pub(crate) fn watch(&mut self, decoder: &Arc<Decoder>) {
        self.decoder = Arc::downgrade(decoder);
    }

    pub(crate) fn join(&mut self, transfer: JoinHandle<()>) {
        self.transfer = Some(transfer);
    }

    /// Asks for other batches.
    pub(crate) fn ask(&self, request: Request) -> Result<()> {
        let decoder = self.decoder.upgrade().ok_or_else(|| self.cause())?;
        self.closers.wanted.ask(request, decoder.inbox()).map_err(|_| self.cause())
    }

    /// The first cause, once the pipeline has ended.
    pub(crate) fn check(&self) -> Result<()> {
        self.closers.stop.check()
    }

    /// Why no batch comes any more.
    pub(crate) fn cause(&self) -> Error {
        let stopped = || Error::new(ErrorKind::Stopped, "the pipeline was stopped");
        self.closers.stop.cause().cloned().unwrap_or_else(stopped)
    }

    /// Refuses a process that was forked from the one that built the loader.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.forks == forks() {
            return Ok(());
        }
        let why = format!(
            "process {} is a fork of the one that built the loader and has none of its threads: fork before \
             the loader is built",
            std::process::id()
        );
        Err(Error::new(ErrorKind::Forked, why))
    }

    /// Ends the threads, and waits for them and for the device, for at most `limit` in all.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        self.check_process()?;
        self.closers.stop.request();
        self.close();
        let start = Instant::now();
        let left = || limit.saturating_sub(start.elapsed());
        while !self.started.is_empty() {
            let Ok(name) = self.ended.1.recv_timeout(left()) else { return Err(self.stuck(limit)) };
            self.started.retain(|started| *started != name);
        }
        // They have nothing left to do but to return. A data set may own the loader: then one is this thread.
        let this = std::thread::current().id();
        let workers = self.pool.take().map(WorkerPool::into_handles).unwrap_or_default();
        let threads = self.transfer.take().into_iter().chain(workers);
        for thread in threads.filter(|thread| thread.thread().id() != this) {
            // A panic was caught and told by the thread itself.
            let _ = thread.join();
        }
        self.drain(left()).map_err(|error| match error.kind() {
            ErrorKind::Timeout => self.stuck(limit),
            _ => error,
        })?;
        let mut reported = self.device.stats().take_errors().into_iter();
        let first = reported.next();
        reported.for_each(|error| self.device.stats().report(error));
        first.map_or(Ok(()), Err)
    }

    /// After a `stop` that failed: leaks the slots if the device still uses them, because freeing them would
    /// wait.
    pub(crate) fn leak_busy_slots(&self) {
        if self.runs_on_device().is_some() {
            self.leak_slots();
        }
    }

    /// In a forked child: leaves everything as it is, because a lock that a drop takes may be locked for
    /// ever.
    pub(crate) fn abandon(&mut self) {
        self.leak_slots();
        std::mem::forget(std::mem::replace(&mut self.ended, unbounded()));
        std::mem::forget((self.pool.take(), self.transfer.take()));
    }

    fn leak_slots(&self) {
        std::mem::forget(self.closers.clone());
    }

    /// Waits for the device; an error of kind `Timeout` says what still runs there.
    fn drain(&self, limit: Duration) -> Result<()> {
        self.closers.device_slots.drain_timeout(limit)
    }

    /// What still runs on the device, if anything. A device that cannot say is not waited for by those who
    /// ask this: whoever frees the slots meets its failure again.
    fn runs_on_device(&self) -> Option<String> {
        let busy = self.drain(Duration::ZERO).err().filter(|error| error.kind() == ErrorKind::Timeout);
        busy.map(|error| error.message().to_owned())
    }

    fn close(&self) {
        self.closers.host_slots.close();
        self.closers.device_slots.close();
        // Without a decoder there is no thread left that waits.
        if let Some(decoder) = self.decoder.upgrade() {
            decoder.stop();
            self.closers.wanted.stop(decoder.inbox());
        }
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
        // Also when the loader was never finished: what was started must end.
        if self.check_process().is_ok() {
            self.close();
        }
    }
}
