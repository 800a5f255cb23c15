//! Makes the n-th backend call fail, for every n, so that a test takes every error path of some work once.

use std::time::Duration;

use feedline_core::{Error, Result};
use feedline_device::{Backend, Device, DeviceStats};
use feedline_sim::interceptors::faults::{Fault, FaultPlan, Faults, Mode};
use feedline_sim::interceptors::{Count, count::Snapshot};

use crate::{AT_ONCE, Census, at_once, with_watchdog};

/// The results of [`every_fault`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Number of calls that were made to fail, one per run. Tests should assert it, because a smaller number
    /// means less coverage.
    pub calls: u64,
    /// Number of runs that ended `Ok`. In these runs the fault occurred in a drop, and the device stats have
    /// it.
    pub survived: u64,
    /// Number of streams, events and blocks of memory that runs leaked on purpose, because they could still
    /// be in use.
    pub leaked: u64,
}

/// Runs `work` on a new device for n = 1, 2, 3, ..., until no call is left. In each run, the n-th call of the
/// device's backend fails.
///
/// Checks four things after each run. The run ended within `limit`, `Ok` or with the injected error. The
/// fault is the result, or is in the device stats. The stats count no live resource. An error reports every
/// leaked resource. Several runs go on [`at_once`]. Once they have ended, checks that the threads of their
/// streams have ended too. The names of the streams of `work` must begin as `threads` says, so that threads
/// of other tests are not counted. (The thread of a host stream is named `fl-stream-` and the stream's name;
/// the kernel keeps 15 bytes.)
///
/// # Panics
/// If a check fails, with n and the fault. A run that does not end aborts the process.
#[track_caller]
pub fn every_fault<D: Backend>(
    fault: Fault,
    mode: Mode,
    limit: Duration,
    threads: &str,
    backend: impl Fn() -> D + Sync,
    work: impl Fn(&Device) -> Result<()> + Sync,
) -> Tried {
    let before = Census::of_threads(threads);
    let mut tried = Tried::default();
    for first in (1..).step_by(AT_ONCE) {
        let calls: Vec<u64> = (first..).take(AT_ONCE).collect();
        let runs = at_once(&calls, |&nth| run(FaultPlan { nth, mode, fault }, limit, backend(), &work));
        if let Ok(before) = &before {
            before.assert_no_new_threads();
        }
        for (nth, run) in calls.into_iter().zip(runs) {
            if let Err(why) = run.check() {
                panic!(
                    "{fault:?} {mode:?}, call {nth}: {why}\nresult: {:?}\nin drops: {:?}",
                    run.result, run.dropped
                );
            }
            if !run.fired {
                return tried;
            }
            tried.calls += 1;
            tried.survived += u64::from(run.result.is_ok());
            tried.leaked += run.leaked();
        }
    }
    unreachable!("a run makes a finite number of calls")
}

struct Run {
    fired: bool,
    result: Result<()>,
    /// Errors reported by drops.
    dropped: Vec<Error>,
    /// Resources that the device stats still count.
    live: [(&'static str, u64); 4],
    calls: Snapshot,
}

fn run<D: Backend>(
    plan: FaultPlan,
    limit: Duration,
    backend: D,
    work: impl Fn(&Device) -> Result<()>,
) -> Run {
    let count = Count::new(backend);
    let calls = count.handle();
    let faults = Faults::new(count, plan);
    let switch = faults.handle();
    let device = feedline_device::with_backend(faults);
    let result = with_watchdog(limit, || work(&device));
    let stats = device.stats();
    Run {
        fired: switch.fired(),
        result,
        dropped: stats.take_errors(),
        live: live(stats),
        calls: calls.snapshot(),
    }
}

fn live(stats: &DeviceStats) -> [(&'static str, u64); 4] {
    [
        ("pinned bytes", stats.pinned_bytes.get()),
        ("device bytes", stats.device_bytes.get()),
        ("streams", stats.streams.get()),
        ("events", stats.events.get()),
    ]
}

impl Run {
    /// Number of resources created by the backend and not released.
    fn leaked(&self) -> u64 {
        self.calls.created() - self.calls.released()
    }

    fn check(&self) -> Result<(), String> {
        let is_injected = |error: &Error| error.to_string().contains("planned fault");
        if let Some((what, count)) = self.live.iter().find(|(_, count)| *count > 0) {
            return Err(format!("the device stats still count {count} {what}"));
        }
        if let Err(error) = &self.result
            && !is_injected(error)
        {
            return Err("the run ended with an error other than the injected one".to_owned());
        }
        let is_reported = self.result.is_err() || self.dropped.iter().any(is_injected);
        if self.fired && !is_reported {
            return Err("the fault was not reported".to_owned());
        }
        if !self.fired && (self.result.is_err() || !self.dropped.is_empty()) {
            return Err("there is an error although no fault was injected".to_owned());
        }
        if self.leaked() > 0 && self.dropped.is_empty() {
            return Err(format!("{} resources were leaked and no error reports it", self.leaked()));
        }
        Ok(())
    }
}
