//! The worker threads, owned by one loader or shared by several.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use feedline_core::timeline::now;
use feedline_core::{Error, ErrorKind, Result};

use super::decoder::Decoder;
use super::queue::{Queue, Work};
use super::split::Split;
use super::worker::{Activity, Reading, Worker};
use crate::job::Job;

/// The largest number of workers in a pool.
pub const MAX_WORKERS: usize = 1024;

/// The smallest stack of a worker: sets may be nested as deep as it holds.
const MIN_STACK: usize = 2 << 20;

/// Batches that the queue holds without allocating.
const QUEUE_CAPACITY: usize = 1024;

/// The number of decode threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workers {
    /// One worker per core; on machines with more than two cores one fewer, for the training loop.
    #[default]
    PerCore,
    /// Starts as many as [`PerCore`](Self::PerCore), and puts those to sleep that do not make batches come
    /// faster, so that the cores are free for other work. They wake up when the consumer waits.
    /// [`Report::tuning`](crate::report::Report::tuning) has the number. In a [`WorkerPool`] that loaders
    /// share, the same as [`PerCore`](Self::PerCore).
    Auto,
    /// As [`Auto`](Self::Auto), but starts this number, from 1 to [`MAX_WORKERS`].
    AutoUpTo(usize),
    /// This number, from 1 to [`MAX_WORKERS`].
    Count(usize),
}

/// Threads that decode batches, called `fl-decode-N`.
///
/// A loader starts its own pool unless [`LoaderBuilder::pool`](crate::LoaderBuilder::pool) gives it one.
/// Several loaders may share a pool: workers begin batches in the order of the requests of all loaders.
///
/// Clones are handles of the same threads, which end when the last handle is dropped and no loader uses them.
///
/// ```
/// use feedline::{WorkerPool, Workers};
/// let pool = WorkerPool::new(Workers::Count(2))?;
/// assert_eq!(pool.workers(), 2);
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
pub struct WorkerPool {
    queue: Arc<Queue<Decoder, Job, Split>>,
    /// The activity of each worker: the sample that it reads.
    activity: Arc<[Activity]>,
    /// The number of workers that may take work, which decoders read too.
    active: Arc<AtomicUsize>,
    /// Owned by the handles of the pool, not by its threads: dropping the last handle ends the threads.
    /// `None` only during that drop.
    threads: Option<Arc<Vec<JoinHandle<()>>>>,
}

thread_local! {
    /// The pool that this thread is a worker of: the address of its queue, or 0.
    static POOL: Cell<usize> = const { Cell::new(0) };
}

/// A handle that sets the number of active workers. Keeps no thread alive.
pub(crate) struct ActiveWorkers {
    queue: Arc<Queue<Decoder, Job, Split>>,
    active: Arc<AtomicUsize>,
}

impl ActiveWorkers {
    /// From now on the first `workers` workers take work; the others finish what they have begun.
    pub(crate) fn set(&self, workers: usize) {
        self.active.store(workers, Ordering::Relaxed);
        self.queue.set_limit(workers);
    }
}

impl WorkerPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Config` for 0 workers or more than [`MAX_WORKERS`], and if the system refuses a thread; the threads
    /// already started then end.
    pub fn new(workers: Workers) -> Result<Self> {
        Self::start(workers, None)
    }

    /// As [`new`](Self::new), with threads that have a stack of `bytes` bytes, for a
    /// [`read`](crate::Dataset::read) that needs more than 2 MiB; see
    /// [`LoaderBuilder::worker_stack`](crate::LoaderBuilder::worker_stack).
    ///
    /// # Errors
    /// As [`new`](Self::new); also for less than 2 MiB, and if there is no room for the stacks.
    pub fn with_stack(workers: Workers, bytes: usize) -> Result<Self> {
        Self::start(workers, Some(bytes))
    }

    pub(crate) fn start(workers: Workers, stack: Option<usize>) -> Result<Self> {
        let count = workers.threads()?;
        if let Some(bytes) = stack.filter(|&bytes| bytes < MIN_STACK) {
            let why = format!("worker_stack is {bytes} bytes: give at least {MIN_STACK}, or leave it out");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let is_waited_for = |decoder: &Decoder| decoder.requests.is_waited_for();
        let queue = Arc::new(Queue::new(QUEUE_CAPACITY, is_waited_for, Job::choose_slot));
        let activity: Arc<[Activity]> = (0..count).map(|_| Activity::idle()).collect();
        let spawn = |index| {
            let (queue, activity) = (queue.clone(), activity.clone());
            let thread = std::thread::Builder::new().name(format!("fl-decode-{index}"));
            let thread = if let Some(bytes) = stack { thread.stack_size(bytes) } else { thread };
            thread.spawn(move || work(&queue, &activity[index], index)).map_err(|error| {
                let with = stack.map_or(String::new(), |bytes| format!(" with a stack of {bytes} bytes"));
                let less = if stack.is_some() { ", a smaller stack" } else { "" };
                let why = format!(
                    "cannot start decode worker {index} of {count}{with}: take fewer workers{less}, or \
                     raise the limit of memory (ulimit -v)"
                );
                Error::new(ErrorKind::Config, why).with_source(error)
            })
        };
        let threads = (0..count).map(spawn).collect::<Result<_>>().inspect_err(|_| queue.close())?;
        Ok(Self { queue, activity, active: Arc::new(count.into()), threads: Some(Arc::new(threads)) })
    }

    /// Number of threads.
    pub fn workers(&self) -> usize {
        self.activity.len()
    }

    /// The number of workers that may take work, as it changes.
    pub(crate) fn active(&self) -> Arc<AtomicUsize> {
        self.active.clone()
    }

    /// Sets the number of workers that may take work.
    pub(crate) fn active_workers(&self) -> ActiveWorkers {
        ActiveWorkers { queue: self.queue.clone(), active: self.active.clone() }
    }

    /// Whether the calling thread is one of the workers.
    pub(crate) fn is_worker(&self) -> bool {
        POOL.get() == address(&self.queue)
    }

    /// The reads in progress, the longest first.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        Activity::readings(&self.activity)
    }

    /// Queues a batch of `decoder`.
    pub(crate) fn begin(&self, decoder: &Arc<Decoder>, batch: Job, wake: bool) {
        // The queue stays open while a handle exists, and this is one.
        let _ = self.queue.begin(decoder, batch, wake);
        if let Some(filling) = &decoder.filling {
            filling.wake();
        }
    }

    /// Takes a batch of `decoder` that no worker has begun, for its filler.
    pub(super) fn take(&self, decoder: &Arc<Decoder>) -> Option<Job> {
        self.queue.take(decoder).map(Job::taken)
    }

    /// Whether [`take`](Self::take) would return a batch.
    pub(super) fn has_queued(&self, decoder: &Arc<Decoder>) -> bool {
        self.queue.has(decoder)
    }

    /// Queues a batch of `decoder` that its filler has taken, for a worker.
    pub(super) fn give_back(&self, decoder: &Arc<Decoder>, batch: Job) {
        // The queue stays open while a handle exists, and this is one.
        let _ = self.queue.give_back(decoder, batch);
    }

    /// Whether a worker sleeps for want of work.
    pub(super) fn has_idle_workers(&self) -> bool {
        self.queue.is_idle()
    }

    /// Drops the batches of `decoder` that no worker has begun, and stops further workers from joining
    /// the others.
    pub(crate) fn remove(&self, decoder: &Arc<Decoder>) {
        self.queue.remove(decoder);
    }

    /// The threads to join, if this is the last handle. They end as soon as they have no work.
    pub(crate) fn into_handles(mut self) -> Vec<JoinHandle<()>> {
        self.end()
    }

    /// Ends this handle; the last one ends the threads, and returns them.
    fn end(&mut self) -> Vec<JoinHandle<()>> {
        let Some(threads) = self.threads.take().and_then(Arc::into_inner) else { return Vec::new() };
        self.queue.close();
        threads
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.end();
    }
}

fn address(queue: &Arc<Queue<Decoder, Job, Split>>) -> usize {
    Arc::as_ptr(queue) as usize
}

/// Works as worker number `index` until the queue is closed.
fn work(queue: &Arc<Queue<Decoder, Job, Split>>, activity: &Activity, index: usize) {
    POOL.set(address(queue));
    let worker = Worker::new(activity, index);
    let mut next = queue.next(index);
    while let Some((decoder, work)) = next {
        let decode = |job: Job| {
            let share = |split, others| queue.share(&decoder, split, others);
            job.decode(&decoder, &worker, (|| queue.unused(), share));
        };
        match work {
            Work::Begin(job) => decode(job.taken()),
            Work::Resume(job) => decode(job),
            Work::Join(split) => split.join(&decoder, &worker),
        }
        // This worker has handed in outcomes without a wake-up. It wakes the transfer thread now, unless it
        // has more work of this loader.
        let (mut at_once, queued) = queue.try_next(index);
        let is_busy = match &at_once {
            Some((other, Work::Begin(_))) => Arc::ptr_eq(other, &decoder) && decoder.is_busy_with(queued),
            Some((_, Work::Resume(_) | Work::Join(_))) | None => false,
        };
        decoder.requests.wake_for_outcomes(is_busy);
        // Until there is other work, it prepares samples of later batches.
        while at_once.is_none() && decoder.prefetch.is_on() && decoder.prefetch.after_batch(&decoder, &worker)
        {
            worker.set_idle_since(now());
            (at_once, _) = queue.try_next(index);
        }
        drop(decoder);
        next = at_once.or_else(|| queue.next(index));
    }
}

impl std::fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkerPool({} workers)", self.workers())
    }
}

/// # For loaders
///
/// What a loader and benches call. It may change in any release.
impl Workers {
    /// The number of threads of `workers` on this machine.
    ///
    /// # Errors
    /// `Config` for a count of zero, or above [`MAX_WORKERS`].
    pub fn threads(self) -> Result<usize> {
        match self {
            Workers::Count(0) | Workers::AutoUpTo(0) => {
                Err(Error::new(ErrorKind::Config, "workers is 0: at least one thread must decode"))
            }
            Workers::Count(count) | Workers::AutoUpTo(count) if count > MAX_WORKERS => Err(Error::new(
                ErrorKind::Config,
                format!("workers is {count}: at most {MAX_WORKERS}; a few per core are enough"),
            )),
            Workers::Count(count) | Workers::AutoUpTo(count) => Ok(count),
            Workers::PerCore | Workers::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                Ok(if cores > 2 { cores - 1 } else { cores }.min(MAX_WORKERS))
            }
        }
    }
}
