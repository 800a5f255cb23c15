//! What each worker is reading, so that a read that never returns can be named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const IDLE: u64 = u64::MAX;

/// One entry for each worker.
#[derive(Debug)]
pub struct Activity {
    start: Instant,
    workers: Box<[Entry]>,
}

/// Written by its worker at every piece: on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Entry {
    step: AtomicU64,
    sample: Arc<AtomicU64>,
    since_us: AtomicU64,
}

/// A read that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The worker: its thread is called `fl-decode-N`.
    pub worker: usize,
    /// The batch: its step.
    pub step: u64,
    /// The sample, or the first of those read at once.
    pub sample: u64,
    /// For how long.
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

    /// The calling worker begins to read rows of `step`, the first being `sample`; returns where it tells the id of each.
    pub(crate) fn begin(&self, step: u64, sample: u64) -> Option<Arc<AtomicU64>> {
        let entry = &self.workers[rayon::current_thread_index()?];
        entry.sample.store(sample, Ordering::Relaxed);
        entry.since_us.store(self.start.elapsed().as_micros() as u64, Ordering::Relaxed);
        entry.step.store(step, Ordering::Relaxed);
        Some(entry.sample.clone())
    }

    pub(crate) fn end(&self) {
        if let Some(worker) = rayon::current_thread_index() {
            self.workers[worker].step.store(IDLE, Ordering::Relaxed);
        }
    }

    /// The reads that are going on, the longest first. A snapshot, exact for reads that hang.
    pub fn readings(&self) -> Vec<Reading> {
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
        write!(
            f,
            "worker fl-decode-{worker} reads sample {sample} of batch {step} since {:.1} s",
            time.as_secs_f64()
        )
    }
}
