//! The stages of a pipeline: their times per batch, and the words for them.

use feedline::report::{ServiceTimes, Setup};

use crate::diagnosis::Bound;
use crate::profile::threads;
use crate::ratio;

/// The time of each stage per batch, in nanoseconds, when all its workers run.
pub(crate) struct Stages {
    times: [(Bound, f64); 5],
    bytes: usize,
    rows: usize,
    lanes_read_host: bool,
}

impl Stages {
    pub(crate) fn new(setup: &Setup, service: &ServiceTimes) -> Self {
        let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns } = *service;
        let times = [
            (Bound::Source, read_ns as f64),
            (Bound::Decode, (decode_ns + read_ns) as f64 / threads(setup).max(1) as f64),
            (Bound::Copy, copy_ns.max(submit_ns) as f64),
            (Bound::DeviceMap, map_ns as f64 / setup.map_lanes.max(1) as f64),
            (Bound::Compute, step_ns.max(device_ns) as f64),
        ];
        let (bytes, rows, lanes_read_host) = (setup.batch_bytes, setup.batch_size, setup.lanes_read_host);
        Self { times, bytes, rows, lanes_read_host }
    }

    pub(crate) fn longest(&self) -> (Bound, f64) {
        self.longest_of(|_| true)
    }

    pub(crate) fn without_decode(&self) -> (Bound, f64) {
        self.longest_of(|bound| bound != Bound::Decode)
    }

    fn longest_of(&self, counts: impl Fn(Bound) -> bool) -> (Bound, f64) {
        let stages = self.times.into_iter().filter(|(bound, _)| counts(*bound));
        stages.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Bound::Unknown, 0.0))
    }

    pub(crate) fn time(&self, bound: Bound) -> f64 {
        self.times.iter().find(|(other, _)| *other == bound).map_or(0.0, |(_, time)| *time)
    }

    /// A sentence about the stage and its rate.
    pub(crate) fn describe(&self, bound: Bound) -> String {
        let time = self.time(bound).max(1.0);
        match bound {
            Bound::Copy => format!("the copy at {:.1} GB/s", self.bytes as f64 / time),
            Bound::DeviceMap if self.lanes_read_host => {
                format!("the lanes' decoding at {} per batch", micros(time))
            }
            Bound::DeviceMap => format!("the device map at {} per batch", micros(time)),
            Bound::Source => format!("the source at {:.0} records/s", self.rows as f64 / time * 1e9),
            Bound::Compute => format!("the step of {}", micros(time)),
            Bound::Decode => format!("decoding at {} per batch", micros(time)),
            Bound::Latency | Bound::Unknown => "nothing".to_owned(),
        }
    }

    /// A sentence that says how much faster than `per_batch` the stages before the consumer could be.
    pub(crate) fn headroom(&self, per_batch: f64) -> String {
        let (bound, longest) = self.longest_of(|bound| bound != Bound::Compute);
        if longest < 1000.0 {
            return String::new();
        }
        format!("; {} could feed {:.1} times as much", self.describe(bound), ratio(per_batch, longest))
    }
}

pub(crate) fn micros(ns: f64) -> String {
    if ns < 1e6 { format!("{:.0} us", ns / 1e3) } else { format!("{:.1} ms", ns / 1e6) }
}
