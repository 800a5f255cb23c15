//! The pool of streams: a bounded queue of requests, and a thread per stream that answers micro-batches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use feedline::{Device, Error, ErrorKind, Result};
use feedline_core::deadline;
use tokio::sync::oneshot;

use crate::replica::Replica;
use crate::{Answer, Metrics, Model};

/// The options of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Streams, each with a copy of the model and a thread.
    pub streams: usize,
    /// The maximum number of requests of a micro-batch.
    pub batch: usize,
    /// The max time that the first request of a micro-batch waits for more. Zero: a micro-batch takes the
    /// requests in the queue and leaves at once.
    pub delay: Duration,
    /// The maximum number of requests in the queue; more are refused.
    pub queue: usize,
}

/// A pool of streams that answers requests.
pub struct Pool {
    queue: Sender<Request>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A request in the queue.
struct Request {
    pixels: Bytes,
    arrived: Instant,
    answer: oneshot::Sender<Result<Answer>>,
}

struct Shared {
    /// Locked while a thread collects a micro-batch: otherwise requests would spread over many small ones.
    queue: Mutex<Receiver<Request>>,
    options: PoolOptions,
    metrics: Arc<Metrics>,
    inputs: usize,
}

/// The reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full: try again later.
    Full,
    /// The input is wrong, as this line describes.
    Wrong(String),
}

impl Pool {
    /// Copies the model to each stream and starts the threads.
    ///
    /// # Errors
    /// `Config` for an option of zero, or sizes that do not fit the parameters; a device failure;
    /// `Unavailable` if the system refuses a thread.
    pub fn start(device: &Device, model: &Model, options: PoolOptions) -> Result<Self> {
        let PoolOptions { streams, batch, queue, .. } = options;
        if [streams, batch, queue].contains(&0) {
            let why = "streams, batch and queue must be 1 or more";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let (sender, receiver) = bounded(queue);
        let (metrics, inputs) = (Arc::new(Metrics::default()), model.inputs);
        let shared = Arc::new(Shared { queue: Mutex::new(receiver), options, metrics, inputs });
        let mut pool = Self { queue: sender, shared, threads: Vec::with_capacity(streams) };
        for number in 0..streams {
            let (replica, shared) = (Replica::new(device, model, batch)?, pool.shared.clone());
            let thread = std::thread::Builder::new().name(format!("serve-{number}"));
            pool.threads.push(thread.spawn(move || shared.work(replica)).map_err(|error| {
                let why = "cannot start the thread of a stream: use fewer streams";
                Error::new(ErrorKind::Unavailable, why).with_source(error)
            })?);
        }
        Ok(pool)
    }

    /// Puts a request into the queue; never blocks. The receiver gets the answer, or the failure of the
    /// device.
    ///
    /// # Errors
    /// [`Refused`], and the request is not answered.
    pub fn submit(&self, pixels: Bytes) -> Result<oneshot::Receiver<Result<Answer>>, Refused> {
        let (metrics, wanted) = (&self.shared.metrics, self.shared.inputs);
        if pixels.len() != wanted {
            metrics.wrong.add(1);
            let why = format!("the body has {} bytes: send {wanted}, one per pixel", pixels.len());
            return Err(Refused::Wrong(why));
        }
        let (answer, receiver) = oneshot::channel();
        // Counted first: a thread may take the request before `try_send` returns.
        metrics.queued.add(1);
        match self.queue.try_send(Request { pixels, arrived: Instant::now(), answer }) {
            Ok(()) => {
                metrics.accepted.add(1);
                Ok(receiver)
            }
            // Never disconnected: the threads hold the other end and live as long as the pool.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                metrics.queued.subtract(1);
                metrics.refused.add(1);
                Err(Refused::Full)
            }
        }
    }

    /// The length of a request's body, in bytes.
    pub fn inputs(&self) -> usize {
        self.shared.inputs
    }

    /// The counters of the pool.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Answers all requests in the queue and ends the threads; blocks until they have ended.
    pub fn drain(self) {
        let Self { queue, threads, .. } = self;
        drop(queue);
        for thread in threads {
            // A thread that panicked has dropped its requests, so their receivers return an error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Receiver<Request>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers micro-batches until the queue is empty and the pool has been dropped.
    fn work(&self, mut replica: Replica) {
        let mut batch = Vec::with_capacity(self.options.batch);
        while self.collect(&mut batch) {
            self.metrics.queued.subtract(batch.len() as u64);
            self.metrics.batches.add(1);
            let answers = replica.answer(batch.iter().map(|request| &*request.pixels));
            match answers {
                Ok(answers) => {
                    for (Request { arrived, answer, .. }, result) in batch.drain(..).zip(answers) {
                        self.metrics.answer(arrived.elapsed());
                        // The client may be gone.
                        let _ = answer.send(Ok(result));
                    }
                }
                Err(error) => {
                    self.metrics.failed.add(batch.len() as u64);
                    for request in batch.drain(..) {
                        let _ = request.answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Collects the next micro-batch. Returns false once the queue is empty and the pool has been dropped.
    fn collect(&self, batch: &mut Vec<Request>) -> bool {
        let queue = self.queue();
        let Ok(first) = queue.recv() else { return false };
        let leaves = deadline(self.options.delay.saturating_sub(first.arrived.elapsed()));
        batch.push(first);
        while batch.len() < self.options.batch {
            let Ok(next) = queue.recv_deadline(leaves) else { break };
            batch.push(next);
        }
        true
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
