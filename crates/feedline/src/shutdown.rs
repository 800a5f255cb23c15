//! How a pipeline ends: stop, close, join, and only then free.
//!
//! Every wait of the transfer thread ends by one of three things: the slots are closed, the other end of its channel is
//! gone, or what it waits for arrives. A stop from outside closes the slots and wakes the thread. An error inside ends the
//! thread; batches before the failed one are delivered first, and then the consumer finds the channel closed, and the cause.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use feedline_core::{Error, ErrorKind, Result, Stop};
use feedline_device::slot::SlotRing;
use feedline_device::{Device, Pinned};
use feedline_slots::Ring;

use crate::decode::{Decoder, Message, Note, WorkerPool};
use crate::transfer::{Request, Wanted};

/// What wakes every thread that waits.
#[derive(Clone)]
pub(crate) struct Closers {
    pub(crate) stop: Arc<Stop>,
    pub(crate) host_slots: Ring<Pinned, Note>,
    pub(crate) device_slots: SlotRing,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) inbox: Sender<Message>,
}

impl Closers {
    fn close(&self) {
        self.host_slots.close();
        self.device_slots.close();
        self.wanted.stop(&self.inbox);
    }
}

/// The threads of a loader, and the way to end them.
pub(crate) struct Running {
    closers: Closers,
    device: Device,
    /// The stages that have not ended yet.
    started: Vec<&'static str>,
    ended: (Sender<&'static str>, Receiver<&'static str>),
    decoder: Weak<Decoder>,
    pool: Option<WorkerPool>,
    transfer: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(closers: Closers, device: Device, pool: WorkerPool) -> Self {
        let (started, ended) = (Vec::new(), unbounded());
        Self { closers, device, started, ended, decoder: Weak::new(), pool: Some(pool), transfer: None }
    }

    /// What a stage calls with its outcome, before its channels close: a consumer that finds them closed finds the cause.
    pub(crate) fn outcome(&self) -> impl Fn(Result<()>) + Send + Sync + 'static {
        let closers = self.closers.clone();
        move |result| {
            // A stage that ends because the slots were closed is no cause of its own.
            if let Some(cause) = result.err().filter(|error| error.kind() != ErrorKind::Stopped) {
                closers.stop.trip(cause);
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
        self.closers.wanted.ask(request, &self.closers.inbox).map_err(|_| self.cause())
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

    /// Ends the threads and waits for them, for at most `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        self.closers.stop.request();
        self.close();
        let deadline = Instant::now().checked_add(limit);
        while !self.started.is_empty() {
            let ended = match deadline {
                Some(deadline) => self.ended.1.recv_deadline(deadline),
                None => self.ended.1.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match ended {
                Ok(name) => self.started.retain(|started| *started != name),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.stuck(limit));
                }
            }
        }
        // They have nothing left to do but to return.
        let workers = self.pool.take().map(WorkerPool::into_handles).unwrap_or_default();
        for thread in self.transfer.take().into_iter().chain(workers) {
            // A panic was caught and told by the thread itself.
            let _ = thread.join();
        }
        match self.device.ledger().take_errors().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn close(&self) {
        if let Some(decoder) = self.decoder.upgrade() {
            decoder.stop();
        }
        self.closers.close();
    }

    fn stuck(&self, limit: Duration) -> Error {
        let readings = self.pool.as_ref().map(WorkerPool::readings).unwrap_or_default();
        let what = readings
            .first()
            .map_or_else(|| format!("still running: {}", self.started.join(", ")), ToString::to_string);
        let why = format!("the pipeline did not stop within {:.1} s: {what}", limit.as_secs_f64());
        Error::new(ErrorKind::Timeout, why)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Also when the loader was never finished: what was started must end.
        self.close();
    }
}
