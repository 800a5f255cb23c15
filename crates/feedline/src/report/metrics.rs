//! The account as metrics, for any recorder of the `metrics` facade; with the feature `metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use super::account::{Account, Setup};
use super::cause::Cause;

/// The interval between two updates of the recorder.
const EVERY_NS: u64 = 100_000_000;

/// The metrics of a loader, for the recorder that is installed when the loader is built. Their label `loader`
/// counts the loaders of the process from 1.
pub(super) struct Metrics {
    reported: Account,
    told_at: u64,
    batches: Counter,
    rows: Counter,
    bytes: Counter,
    time: [Counter; Cause::ALL.len()],
    workers: Gauge,
    depth: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        static LOADERS: AtomicU64 = AtomicU64::new(0);
        let loader = (LOADERS.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        describe_counter!("feedline_batches_total", "Batches delivered");
        describe_counter!("feedline_rows_total", "Rows delivered");
        describe_counter!("feedline_bytes_total", "Bytes copied to the device");
        describe_counter!("feedline_microseconds_total", "The consumer's time, by what it went to");
        describe_gauge!("feedline_workers", "Workers that may take work");
        describe_gauge!("feedline_depth", "Batches on the device at a time");
        let name = "feedline_microseconds_total";
        let time = |cause: Cause| counter!(name, "loader" => loader.clone(), "cause" => cause.name());
        Self {
            reported: Account::default(),
            told_at: 0,
            batches: counter!("feedline_batches_total", "loader" => loader.clone()),
            rows: counter!("feedline_rows_total", "loader" => loader.clone()),
            bytes: counter!("feedline_bytes_total", "loader" => loader.clone()),
            time: Cause::ALL.map(time),
            workers: gauge!("feedline_workers", "loader" => loader.clone()),
            depth: gauge!("feedline_depth", "loader" => loader.clone()),
        }
    }

    /// Whether it is time to update the recorder again.
    pub(super) fn is_due(&self, at: u64) -> bool {
        at.saturating_sub(self.told_at) >= EVERY_NS
    }

    /// Sends the recorder the growth of the account `run` since the last update.
    pub(super) fn tell(&mut self, at: u64, run: &Account, setup: &Setup) {
        let reported = std::mem::replace(&mut self.reported, *run);
        self.told_at = at;
        self.batches.increment(run.batches - reported.batches);
        self.rows.increment(run.rows - reported.rows);
        self.bytes.increment(run.bytes - reported.bytes);
        for (cause, time) in Cause::ALL.into_iter().zip(&self.time) {
            // Differences of sums, so that nothing is lost by rounding.
            time.increment(run.ns(cause) / 1000 - reported.ns(cause) / 1000);
        }
        self.workers.set(setup.workers as f64);
        self.depth.set(setup.device_slots as f64);
    }
}
