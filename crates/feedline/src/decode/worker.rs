//! One worker thread: its scratch memory, and its activity, so that a read that never returns can be named.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_core::{Context, ErrorKind, Result, Scratch, Timeline, timeline::now};

const IDLE: u64 = u64::MAX;

/// The activity of one worker of a pool. Its worker writes it for each piece, so it has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Activity {
    step: AtomicU64,
    sample: Arc<AtomicU64>,
    /// The time of [`now`].
    since_ns: AtomicU64,
}

/// A read in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The worker's index; its thread is called `fl-decode-N`.
    pub worker: usize,
    /// The step of the batch.
    pub step: u64,
    /// The sample, or the first of several that are read in one call.
    pub sample: u64,
    /// How long the read has taken so far.
    pub time: Duration,
}

impl Activity {
    /// The activity of an idle worker.
    pub(super) fn idle() -> Self {
        let (step, sample) = (AtomicU64::new(IDLE), Arc::new(AtomicU64::new(0)));
        Self { step, sample, since_ns: AtomicU64::new(0) }
    }

    /// The reads in progress of `workers`, the longest first. A snapshot; exact for reads that hang.
    pub(super) fn readings(workers: &[Self]) -> Vec<Reading> {
        let now = now();
        let reading = |(worker, activity): (usize, &Self)| Reading {
            worker,
            step: activity.step.load(Ordering::Relaxed),
            sample: activity.sample.load(Ordering::Relaxed),
            time: Duration::from_nanos(now.saturating_sub(activity.since_ns.load(Ordering::Relaxed))),
        };
        let readings = workers.iter().enumerate().map(reading).filter(|reading| reading.step != IDLE);
        let mut readings: Vec<_> = readings.collect();
        readings.sort_by_key(|reading| std::cmp::Reverse(reading.time));
        readings
    }
}

impl std::fmt::Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worker, step, sample, time } = self;
        let seconds = time.as_secs_f64();
        write!(
            f,
            "worker fl-decode-{worker} has been reading sample {sample} of batch {step} for {seconds:.1} s"
        )
    }
}

/// One worker thread of a pool.
pub(crate) struct Worker<'a> {
    activity: &'a Activity,
    index: usize,
    /// Kept across batches; empty while a batch uses it.
    scratch: Cell<Scratch>,
    /// The ids of a batch whose samples it prepares.
    ids: Cell<Vec<u64>>,
    /// Nanoseconds spent preparing samples since its last batch.
    prefetch_ns: Cell<u64>,
    /// The time at which it last finished some work; 0 before.
    idle_since: Cell<u64>,
    /// The time at which its last batch was handed out, and the start of its idle time before that.
    last: Cell<(u64, u64)>,
}

impl<'a> Worker<'a> {
    /// Worker number `index` of a pool, which records its reads in `activity`.
    pub(crate) fn new(activity: &'a Activity, index: usize) -> Self {
        let (scratch, ids, prefetch_ns, idle_since, last) = Default::default();
        Self { activity, index, scratch, ids, prefetch_ns, idle_since, last }
    }

    /// This worker begins the batch of `timeline` at `at`. Batches that were handed out together all get the
    /// idle time before the first of them.
    pub(crate) fn begin_batch(&self, at: u64, timeline: &mut Timeline) {
        if self.last.get().0 != timeline.handed_out {
            self.last.set((timeline.handed_out, self.idle_since.get()));
        }
        timeline.begin(at, self.index, self.last.get().1);
    }

    /// The worker's index in the pool.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// This worker has finished some work.
    pub(crate) fn set_idle_since(&self, at: u64) {
        self.idle_since.set(at);
    }

    /// The worker begins to read rows of `step`. Returns the cell in which it stores the id of each sample.
    pub(crate) fn begin(&self, step: u64, sample: u64) -> Arc<AtomicU64> {
        self.activity.sample.store(sample, Ordering::Relaxed);
        self.activity.since_ns.store(now(), Ordering::Relaxed);
        self.activity.step.store(step, Ordering::Relaxed);
        self.activity.sample.clone()
    }

    /// The worker has finished reading.
    pub(crate) fn end(&self) {
        self.activity.step.store(IDLE, Ordering::Relaxed);
    }

    /// Takes the memory for the ids of a batch.
    pub(super) fn take_ids(&self) -> Vec<u64> {
        self.ids.take()
    }

    /// Keeps that memory.
    pub(super) fn keep_ids(&self, ids: Vec<u64>) {
        self.ids.set(ids);
    }

    /// Adds `ns` nanoseconds of preparing samples; the next batch that the worker finishes counts them as
    /// decoding.
    pub(super) fn add_prefetch(&self, ns: u64) {
        self.prefetch_ns.set(self.prefetch_ns.get() + ns);
    }

    /// Takes the nanoseconds spent preparing samples since the last call.
    pub(super) fn take_prefetch(&self) -> u64 {
        self.prefetch_ns.take()
    }

    /// Calls `read` with `context`, which gets the worker's scratch memory, for samples of these `draws`. The
    /// worker has then finished reading.
    ///
    /// A read that panicked may have left the scratch memory half written: the next one starts anew.
    pub(crate) fn read<T>(
        &self,
        context: Context,
        draws: &[u64],
        read: impl FnOnce(&mut Context) -> Result<T>,
    ) -> Result<T> {
        let mut context = context.with_scratch(self.scratch.take()).with_draws(draws);
        let result = read(&mut context);
        self.activity.step.store(IDLE, Ordering::Relaxed);
        if !result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {
            self.scratch.set(context.into_scratch());
        }
        result
    }
}
