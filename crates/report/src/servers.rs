//! Decode servers in a run: their counters, whether they limit the run, and their lanes in the model.

use std::time::Duration;

use feedline::filler::FillerReport;
use feedline::report::Report;
use feedline_device::device_slots::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::model::WhatIf;
use crate::profile::MAX_NS;
use crate::ratio;
use crate::stages::micros;

/// The counters of decode servers in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The counters.
    pub filler: FillerReport,
    /// Batches of the run, of servers and workers.
    pub batches: u64,
    /// The duration of the run, in nanoseconds.
    pub wall_ns: u64,
}

impl Served {
    /// The servers of a run, if it has any.
    pub fn new(report: &Report) -> Option<Self> {
        let wall_ns = u64::try_from(report.run.wall().as_nanos()).unwrap_or(u64::MAX);
        let filler = report.filler.filter(|filler| filler.batches > 0)?;
        Some(Self { filler, batches: report.run.batches, wall_ns })
    }

    /// The share of the batches that servers filled, from 0 to 1.
    pub fn share(&self) -> f64 {
        // Batches that are filled but not delivered yet do not belong to the run.
        ratio(self.filler.batches as f64, self.batches as f64).min(1.0)
    }

    /// The mean time of a fill, and the network part of it, in nanoseconds.
    fn means(&self) -> [f64; 2] {
        let FillerReport { batches, service_ns, network_ns, .. } = self.filler;
        [service_ns, network_ns].map(|time| ratio(time as f64, batches as f64))
    }

    /// The mean number of batches that servers fill at a time.
    pub fn in_flight(&self) -> f64 {
        ratio(self.filler.service_ns as f64, self.wall_ns as f64)
    }

    /// Describes the servers, and says whether they or their network limit a run that waits for data. `gain`
    /// is the predicted speed-up with twice as many servers.
    pub(crate) fn limit(&self, gain: f64) -> String {
        let filler = &self.filler;
        let [service, network] = self.means();
        let (count, s) = (filler.servers, if filler.servers == 1 { "" } else { "s" });
        let mut text = format!(
            "; {count} server{s} filled {:.0} % of the batches in {} each, {} of it on the way: ",
            100.0 * self.share(),
            micros(service),
            micros(network)
        );
        text += &if network > service / 2.0 {
            "the link limits, not the servers: send fewer bytes, or put the servers nearer".to_owned()
        } else {
            format!("the servers limit, not the link: {count} more give {:+.0} %", 100.0 * (gain - 1.0))
        };
        let failed = filler.retries + filler.returned + filler.rejected;
        if failed * 50 > filler.batches {
            text += &format!("; {failed} requests failed, which the servers' status names");
        }
        text
    }
}

/// The lanes of decode servers. Each lane fills one batch at a time, beside the workers.
pub(crate) struct Lanes {
    /// Number of lanes: now, and when the profile was measured.
    pub(crate) count: usize,
    pub(crate) measured: usize,
    /// The time of a fill.
    pub(crate) fill_ns: u64,
    /// The server's own time for a fill.
    server_ns: u64,
    /// The share of the batches that workers decoded.
    workers: f64,
}

impl Lanes {
    pub(crate) fn new(what: &WhatIf, served: &Served) -> Self {
        let mean = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(MAX_NS);
        let lanes = |count: f64| (count.round() as usize).clamp(1, MAX_SLOTS);
        let measured = lanes(served.in_flight());
        let per_server = served.in_flight() / served.filler.servers.max(1) as f64;
        let count = match what.servers {
            None => measured,
            Some(0) => 0,
            Some(servers) => lanes(servers as f64 * per_server),
        };
        let [service_ns, network_ns] = served.means().map(|time| (time as u64).min(MAX_NS));
        let server_ns = service_ns.saturating_sub(network_ns).max(1);
        let fill_ns = server_ns + what.network.map_or(network_ns, mean);
        Self { count, measured, fill_ns, server_ns, workers: 1.0 - served.share() }
    }

    /// A worker's time for a batch. `mean_ns` is the mean over all batches, including the servers' batches.
    pub(crate) fn decode_ns(&self, mean_ns: u64) -> u64 {
        let of_workers = mean_ns as f64 / self.workers;
        // If workers decoded very few batches, their time is not reliable.
        if self.workers > 0.02 { of_workers as u64 } else { self.server_ns }
    }
}
