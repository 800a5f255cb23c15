//! Counters of the server, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency histogram, in microseconds.
const BOUNDS: [u64; 12] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// The counters of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests taken into the queue.
    pub accepted: Counter,
    /// Requests answered with a class.
    pub answered: Counter,
    /// Requests refused because the queue was full.
    pub refused: Counter,
    /// Requests with wrong input.
    pub wrong: Counter,
    /// Requests that failed on the device.
    pub failed: Counter,
    /// Micro-batches.
    pub batches: Counter,
    /// Requests in the queue now.
    pub queued: Counter,
    /// Answers per latency bound, from the queue to the answer.
    latency: [Counter; BOUNDS.len()],
    latency_us: Counter,
}

/// A counter that several threads change.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts an answer, `latency` after its request came into the queue.
    pub(crate) fn answer(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        for (counter, bound) in self.latency.iter().zip(BOUNDS) {
            if us <= bound {
                counter.add(1);
            }
        }
        self.latency_us.add(us);
        self.answered.add(1);
    }

    /// All counters, in the text format of Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, counter: &Counter| {
            let value = counter.get();
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        one("serve_accepted_total", "counter", "Requests taken into the queue.", &self.accepted);
        one("serve_refused_total", "counter", "Requests refused: the queue was full.", &self.refused);
        one("serve_wrong_total", "counter", "Requests with wrong input.", &self.wrong);
        one("serve_failed_total", "counter", "Requests that failed on the device.", &self.failed);
        one("serve_batches_total", "counter", "Micro-batches.", &self.batches);
        one("serve_queued", "gauge", "Requests in the queue.", &self.queued);
        let name = "serve_latency_seconds";
        let _ = write!(text, "# HELP {name} From the queue to the answer.\n# TYPE {name} histogram\n");
        for (counter, bound) in self.latency.iter().zip(BOUNDS) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {}", bound as f64 / 1e6, counter.get());
        }
        let (count, sum) = (self.answered.get(), self.latency_us.get() as f64 / 1e6);
        let _ =
            write!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}\n");
        text
    }
}
