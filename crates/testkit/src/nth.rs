//! The loop over the n-th failing call: every way an error can take through a piece of work is taken once.

use std::time::Duration;

use feedline_core::{Error, Result};
use feedline_device::{Backend, Device, DeviceStats};
use feedline_sim::interceptors::faults::{Fault, FaultPlan, Faults, Mode};
use feedline_sim::interceptors::{Count, count::Snapshot};

use crate::{Census, with_watchdog};

/// What one loop has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Calls that were made to fail, each in a run of its own. A number to pin: when it falls, coverage fell.
    pub calls: u64,
    /// Runs that ended `Ok` all the same: the fault hit a drop, and was reported in the ledger.
    pub survived: u64,
    /// Streams, events and blocks of memory that runs left on the backend on purpose, because nobody could know whether
    /// they were still in use.
    pub leaked: u64,
}

/// Runs `work` on a device of its own for n = 1, 2, 3, ..., the n-th call of its backend failing, until none fires.
///
/// After each run, checked are: it ended within `limit`, `Ok` or with the planned error and no other; a fault is never
/// swallowed, it is the result or in the ledger; the ledger's counts are zero; the streams' threads are gone; what was
/// not given back to the backend has an error that says so. Give `work` streams whose names begin as `threads` says, so
/// that those of other tests are not counted (a host stream's thread is called `fl-stream-` and the stream's name, of
/// which the kernel keeps 15 bytes).
///
/// # Panics
/// When a check fails, with n and the fault. A run that does not end aborts the process.
#[track_caller]
pub fn every_fault<D: Backend>(
    fault: Fault,
    mode: Mode,
    limit: Duration,
    threads: &str,
    backend: impl Fn() -> D,
    work: impl Fn(&Device) -> Result<()>,
) -> Tried {
    let before = Census::of_threads(threads);
    let mut tried = Tried::default();
    for nth in 1.. {
        let run = run(FaultPlan { nth, mode, fault }, limit, backend(), &work);
        if let Err(why) = run.check() {
            panic!(
                "{fault:?} {mode:?}, call {nth}: {why}\nresult: {:?}\nin drops: {:?}",
                run.result, run.dropped
            );
        }
        if let Ok(before) = &before {
            before.assert_same_threads();
        }
        if !run.fired {
            break;
        }
        tried.calls += 1;
        tried.survived += u64::from(run.result.is_ok());
        tried.leaked += run.left();
    }
    tried
}

struct Run {
    fired: bool,
    result: Result<()>,
    /// Errors that drops have reported.
    dropped: Vec<Error>,
    /// What the ledger still counts.
    held: [(&'static str, u64); 4],
    below: Snapshot,
}

fn run<D: Backend>(
    plan: FaultPlan,
    limit: Duration,
    backend: D,
    work: impl Fn(&Device) -> Result<()>,
) -> Run {
    let count = Count::new(backend);
    let below = count.handle();
    let faults = Faults::new(count, plan);
    let switch = faults.handle();
    let device = Device::with_backend(faults);
    let result = with_watchdog(limit, || work(&device));
    let stats = device.stats();
    Run {
        fired: switch.fired(),
        result,
        dropped: stats.take_errors(),
        held: held(stats),
        below: below.snapshot(),
    }
}

fn held(stats: &DeviceStats) -> [(&'static str, u64); 4] {
    [
        ("page-locked bytes", stats.pinned_bytes.now()),
        ("device bytes", stats.device_bytes.now()),
        ("streams", stats.streams.now()),
        ("events", stats.events.now()),
    ]
}

impl Run {
    /// Things made by the backend and not given back.
    fn left(&self) -> u64 {
        self.below.created() - self.below.released()
    }

    fn check(&self) -> Result<(), String> {
        let planned = |error: &Error| error.to_string().contains("planned fault");
        if let Some((what, held)) = self.held.iter().find(|(_, held)| *held > 0) {
            return Err(format!("the ledger still counts {held} {what}"));
        }
        if let Err(error) = &self.result
            && !planned(error)
        {
            return Err("it ended with another error than the planned one".to_owned());
        }
        let seen = self.result.is_err() || self.dropped.iter().any(planned);
        if self.fired && !seen {
            return Err("the fault was swallowed".to_owned());
        }
        if !self.fired && (self.result.is_err() || !self.dropped.is_empty()) {
            return Err("no fault fired, and yet there is an error".to_owned());
        }
        if self.left() > 0 && self.dropped.is_empty() {
            return Err(format!("{} things were left on the backend, and nothing says so", self.left()));
        }
        Ok(())
    }
}
