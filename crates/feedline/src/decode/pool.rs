//! The worker threads, owned by one loader or shared by several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use feedline_core::timeline::now;
use feedline_core::{Error, ErrorKind, Result};

use super::batch::{Split, Undecoded};
use super::decoder::Decoder;
use super::queue::{Queue, Work};
use super::worker::{Activity, Reading, Worker};

/// The largest number of workers in a pool.
pub const MAX_WORKERS: usize = 1024;

/// Batches that the queue holds without allocating.
const QUEUE_CAPACITY: usize = 1024;

/// The number of decode threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workers {
    /// One per core; one fewer on machines with more than two cores, for the training loop.
    #[default]
    PerCore,
    /// Starts [`max_workers`](crate::LoaderBuilder::max_workers), and puts those to sleep that do not make
    /// batches come faster, so that the cores are free for other work. They wake up when the consumer waits.
    /// [`Report::tuning`](crate::report::Report::tuning) has the number. In a [`WorkerPool`] that loaders
    /// share, the same as [`PerCore`](Self::PerCore).
    Auto,
    /// This number, from 1 to [`MAX_WORKERS`].
    Count(usize),
}

impl Workers {
    /// The number of threads on this machine.
    ///
    /// # Errors
    /// `Config` for a count of zero, or above [`MAX_WORKERS`].
    #[doc(hidden)] // Called by `WorkerPool::new`.
    pub fn count(self) -> Result<usize> {
        match self {
            Self::Count(0) => {
                Err(Error::new(ErrorKind::Config, "workers is 0: at least one thread must decode"))
            }
            Self::Count(count) if count > MAX_WORKERS => Err(Error::new(
                ErrorKind::Config,
                format!("workers is {count}: at most {MAX_WORKERS}; a few per core are enough"),
            )),
            Self::Count(count) => Ok(count),
            Self::PerCore | Self::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                Ok(if cores > 2 { cores - 1 } else { cores }.min(MAX_WORKERS))
            }
        }
    }
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
    threads: Arc<Threads>,
}

/// The last owner ends the threads. The threads themselves do not own this.
struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Work, and the loader that it belongs to.
type OfLoader<T> = (Arc<Decoder>, T);

type PoolWork = Work<OfLoader<Undecoded>, OfLoader<Arc<Split>>>;

struct Shared {
    queue: Queue<OfLoader<Undecoded>, OfLoader<Arc<Split>>>,
    /// The activity of each worker: the sample that it reads.
    activity: Box<[Activity]>,
    /// The number of workers that may take work, which decoders read too.
    active: Arc<AtomicUsize>,
}

/// A handle that sets the number of active workers. Keeps no thread alive.
pub(crate) struct ActiveWorkers {
    shared: Arc<Shared>,
}

impl ActiveWorkers {
    /// From now on the first `workers` workers take work; the others finish what they have begun.
    pub(crate) fn set(&self, workers: usize) {
        self.shared.active.store(workers, Ordering::Relaxed);
        self.shared.queue.set_limit(workers);
    }
}

impl WorkerPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// As [`Workers::count`]; `Config` if the system refuses a thread, after which the threads already
    /// started end.
    pub fn new(workers: Workers) -> Result<Self> {
        let count = workers.count()?;
        let shared = Arc::new(Shared {
            queue: Queue::new(QUEUE_CAPACITY).choosing(Undecoded::choose_slot),
            activity: (0..count).map(|_| Activity::idle()).collect(),
            active: Arc::new(AtomicUsize::new(count)),
        });
        let threads = Threads { shared, handles: Mutex::new(Vec::with_capacity(count)) };
        for index in 0..count {
            let shared = threads.shared.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("fl-decode-{index}"))
                .spawn(move || shared.work(index))
                .map_err(|error| {
                    let why = format!("cannot start decode worker {index} of {count}: take fewer workers");
                    Error::new(ErrorKind::Config, why).with_source(error)
                })?;
            threads.handles().push(spawned);
        }
        Ok(Self { threads: Arc::new(threads) })
    }

    /// Number of threads.
    pub fn workers(&self) -> usize {
        self.threads.shared.activity.len()
    }

    /// The number of workers that may take work, as it changes.
    pub(crate) fn active(&self) -> Arc<AtomicUsize> {
        self.threads.shared.active.clone()
    }

    /// Sets the number of workers that may take work.
    pub(crate) fn active_workers(&self) -> ActiveWorkers {
        ActiveWorkers { shared: self.threads.shared.clone() }
    }

    /// The reads in progress, the longest first.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        Activity::readings(&self.threads.shared.activity)
    }

    /// Queues a batch of `decoder`.
    pub(crate) fn begin(&self, decoder: &Arc<Decoder>, batch: Undecoded, wake: bool) {
        // The queue stays open while a handle exists, and this is one.
        let _ = self.threads.shared.queue.begin((decoder.clone(), batch), wake);
        if let Some(filling) = &decoder.filling {
            filling.wake();
        }
    }

    /// Takes a batch of `decoder` that no worker has begun, for its filler.
    pub(super) fn take(&self, decoder: &Arc<Decoder>) -> Option<Undecoded> {
        let taken = self.threads.shared.queue.take(|(other, _)| Arc::ptr_eq(other, decoder));
        taken.map(|(_, batch)| batch)
    }

    /// Whether [`take`](Self::take) would return a batch.
    pub(super) fn has_queued(&self, decoder: &Arc<Decoder>) -> bool {
        self.threads.shared.queue.has(|(other, _)| Arc::ptr_eq(other, decoder))
    }

    /// Queues a batch of `decoder` that its filler has taken, for a worker.
    pub(super) fn give_back(&self, decoder: &Arc<Decoder>, batch: Undecoded) {
        // The queue stays open while a handle exists, and this is one.
        let _ = self.threads.shared.queue.give_back((decoder.clone(), batch));
    }

    /// Whether a worker sleeps for want of work.
    pub(super) fn has_idle_workers(&self) -> bool {
        self.threads.shared.queue.is_idle()
    }

    /// Drops the batches of `decoder` that no worker has begun, and stops further workers from joining
    /// the others.
    pub(crate) fn remove(&self, decoder: &Arc<Decoder>) {
        let is_of = |other: &Arc<Decoder>| Arc::ptr_eq(other, decoder);
        self.threads.shared.queue.remove(|(other, _)| is_of(other), |(other, _)| is_of(other));
    }

    /// The threads to join, if this is the last handle. They end as soon as they have no work.
    pub(crate) fn into_handles(self) -> Vec<JoinHandle<()>> {
        let Some(threads) = Arc::into_inner(self.threads) else { return Vec::new() };
        threads.shared.queue.close();
        std::mem::take(&mut *threads.handles())
    }
}

impl Threads {
    fn handles(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl Shared {
    /// Works as worker number `index` until the queue is closed.
    fn work(&self, index: usize) {
        let worker = Worker::new(&self.activity[index], index);
        let mut next = self.queue.next(index);
        while let Some(work) = next {
            let posted = match work {
                Work::Begin((decoder, batch)) => {
                    let share = |split, others| self.queue.share((decoder.clone(), split), others);
                    batch.decode(&decoder, &worker, (|| self.queue.unused(), share)).then_some(decoder)
                }
                Work::Join((decoder, split)) => {
                    split.join(&decoder, &worker);
                    None
                }
            };
            next = match posted {
                Some(decoder) => self.after_posted(index, decoder),
                None => self.queue.next(index),
            };
        }
    }

    /// The next work of a worker that has posted a batch of `decoder` without waking the transfer thread. The
    /// worker wakes it, unless it has more of the same work at once.
    fn after_posted(&self, index: usize, decoder: Arc<Decoder>) -> Option<PoolWork> {
        let (next, queued) = self.queue.try_next(index);
        let is_busy = match &next {
            Some(Work::Begin((other, _))) => Arc::ptr_eq(other, &decoder) && decoder.is_busy_with(queued),
            Some(Work::Join(_)) | None => false,
        };
        decoder.requests.wake_at(now(), is_busy);
        drop(decoder);
        next.or_else(|| self.queue.next(index))
    }
}

impl std::fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkerPool({} workers)", self.workers())
    }
}
