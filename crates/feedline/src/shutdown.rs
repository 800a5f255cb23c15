//! How a pipeline ends: stop, close, join, and only then free.
//!
//! Every wait of a stage ends by one of three things: its ring is closed, the other end of its channel is gone, or what
//! it waits for arrives. A stop from outside closes both rings. The end of a stage closes the host ring, so that decode
//! ends too; downstream the channels run dry by themselves, and batches before a failed one are still delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use feedline_core::{Error, ErrorKind, Result, Stop, Ticket};
use feedline_decode::Activity;
use feedline_device::slot::SlotRing;
use feedline_device::{Device, Pinned};
use feedline_slots::Ring;

/// What wakes every waiting stage.
#[derive(Clone)]
pub(crate) struct Closers {
    stop: Arc<Stop>,
    close_host: Arc<dyn Fn() + Send + Sync>,
    close_device: Arc<dyn Fn() + Send + Sync>,
}

impl Closers {
    pub(crate) fn new(stop: Arc<Stop>, ring: Ring<Pinned, Option<Arc<Ticket>>>, slots: SlotRing) -> Self {
        Self {
            stop,
            close_host: Arc::new(move || ring.close()),
            close_device: Arc::new(move || slots.close()),
        }
    }

    /// Ends every wait of every stage.
    fn close(&self) {
        (self.close_host)();
        (self.close_device)();
    }
}

/// The stages that run, and the way to end them.
pub(crate) struct Running {
    closers: Closers,
    started: Vec<&'static str>,
    ended: (Sender<&'static str>, Receiver<&'static str>),
    activity: Option<Arc<Activity>>,
    errors: Box<dyn Fn() -> Vec<Error> + Send + Sync>,
}

impl Running {
    pub(crate) fn new(closers: Closers, device: Device) -> Self {
        let errors = Box::new(move || device.ledger().take_errors());
        Self { closers, started: Vec::new(), ended: unbounded(), activity: None, errors }
    }

    /// What a stage calls with its outcome, before it closes its channels: who finds them closed finds the cause.
    pub(crate) fn over(&self) -> impl FnOnce(Result<()>) + Send + 'static {
        let closers = self.closers.clone();
        move |result| {
            // A stage that stops because the rings were closed is no cause of its own.
            if let Some(cause) = result.err().filter(|error| error.kind() != ErrorKind::Stopped) {
                closers.stop.trip(cause);
            }
            (closers.close_host)();
        }
    }

    /// Counts a stage as started; the result is what the stage calls with itself when it has ended.
    pub(crate) fn stage<S>(&mut self, name: &'static str) -> impl FnOnce(S) + Send + 'static {
        self.started.push(name);
        let ended = self.ended.0.clone();
        move |stage| {
            // In this order: who hears that it has ended finds its slots given back.
            drop(stage);
            let _ = ended.send(name);
        }
    }

    pub(crate) fn watch(&mut self, activity: Arc<Activity>) {
        self.activity = Some(activity);
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

    /// Ends the stages and waits for them, for at most `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        self.closers.stop.request();
        self.closers.close();
        let deadline = Instant::now() + limit;
        while !self.started.is_empty() {
            match self.ended.1.recv_deadline(deadline) {
                Ok(name) => self.started.retain(|started| *started != name),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.stuck(limit));
                }
            }
        }
        match (self.errors)().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn stuck(&self, limit: Duration) -> Error {
        let reading = self.activity.as_ref().and_then(|activity| activity.readings().into_iter().next());
        let what = reading.map_or_else(|| format!("stages {:?} still run", self.started), |r| r.to_string());
        let why = format!("the pipeline did not stop within {:.1} s: {what}", limit.as_secs_f64());
        Error::new(ErrorKind::Timeout, why)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Also when the loader was never finished: what was started must end.
        self.closers.close();
    }
}
