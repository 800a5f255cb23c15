//! What each worker is reading, so that a read that never returns can be named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const IDLE: u64 = u64::MAX;

/// One entry per worker of a pool.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    workers: Box<[Entry]>,
}

/// Written by its worker for each piece, so it has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Entry {
    step: AtomicU64,
    sample: Arc<AtomicU64>,
    since_us: AtomicU64,
}

/// A read in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
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
    pub(crate) fn new(workers: usize) -> Self {
        let entry = || Entry {
            step: AtomicU64::new(IDLE),
            sample: Arc::new(AtomicU64::new(0)),
            since_us: AtomicU64::new(0),
        };
        Self { start: Instant::now(), workers: (0..workers).map(|_| entry()).collect() }
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Worker `worker` begins to read rows of `step`. Returns the cell in which it stores the id of
    /// each sample.
    pub(crate) fn begin(&self, worker: usize, step: u64, sample: u64) -> Arc<AtomicU64> {
        let entry = &self.workers[worker];
        entry.sample.store(sample, Ordering::Relaxed);
        entry.since_us.store(self.start.elapsed().as_micros() as u64, Ordering::Relaxed);
        entry.step.store(step, Ordering::Relaxed);
        entry.sample.clone()
    }

    /// Worker `worker` has finished reading.
    pub(crate) fn end(&self, worker: usize) {
        self.workers[worker].step.store(IDLE, Ordering::Relaxed);
    }

    /// The reads in progress, the longest first. A snapshot; exact for reads that hang.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        let now = self.start.elapsed();
        let mut readings: Vec<_> = self
            .workers
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.step.load(Ordering::Relaxed) != IDLE)
            .map(|(worker, entry)| Reading {
                worker,
                step: entry.step.load(Ordering::Relaxed),
                sample: entry.sample.load(Ordering::Relaxed),
                time: now.saturating_sub(Duration::from_micros(entry.since_us.load(Ordering::Relaxed))),
            })
            .collect();
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
