//! CPU time of the pipeline's threads while the device computes; they should sleep.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use feedline::{Error, ErrorKind, Loader, Result, Workers};
use feedline_kernels::ops::Kernels;
use serde_json::json;

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::Nothing;
use crate::setting::{DEPTH, Setting};

pub(crate) const BASE: Setting = Setting { batch: 128, workers: Workers::PerCore, depth: DEPTH };
/// Time per step on the device.
const STEP_NS: u64 = 2_000_000;

/// Runs the benchmark.
///
/// # Errors
/// An error of the device or the pipeline; `Unavailable` if the system does not report CPU times.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    one(options, report, BASE)
}

/// Measures the threads of a loader with one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
    let compute = options.device.stream()?;
    let kernels = Kernels::new(&compute)?;
    let mut loader = setting.of(Loader::builder(Nothing::new(784, 0)?)).build(&options.device)?;
    let mut batches = loader.epoch(0)?;
    // Default: 400.
    let steps = (options.repetition.as_nanos() * 32 / 10 / u128::from(STEP_NS)).max(10) as usize;
    let turns = options.reps.min(5);
    let (mut shares, mut first) = (Vec::new(), Cpu::default());
    for turn in 0..=turns {
        let (start, before) = (Instant::now(), Cpu::now()?);
        if turn == 1 {
            first = before.clone();
        }
        for batch in batches.by_ref().take(steps) {
            let ready = batch?.wait_on(&compute)?;
            kernels.spin(STEP_NS)?;
            drop(ready);
        }
        compute.synchronize()?;
        let used = Cpu::now()?.since(&before).total();
        if turn > 0 {
            shares.push(100.0 * used as f64 / start.elapsed().as_nanos() as f64);
        }
    }
    let used = Cpu::now()?.since(&first);
    report.add(
        "idle",
        Entry {
            parameters: json!({ "batch": setting.batch, "step_us": STEP_NS / 1000 }),
            value: Figures::new(shares),
            unit: "% of one core",
            baseline: None,
            ratio: None,
            target: Target::AtMost(2.0),
            more: json!({ "steps": steps, "us_per_step": used.per_step(turns * steps) }),
        },
    )
}

/// CPU time of the pipeline's threads in nanoseconds, by thread name. Counts threads named `fl-*`, except
/// the host device's streams, which play the role of a GPU.
#[derive(Clone, Default)]
struct Cpu(BTreeMap<String, u64>);

impl Cpu {
    fn now() -> Result<Self> {
        let tasks = fs::read_dir("/proc/self/task").map_err(|error| unsupported().with_source(error))?;
        let mut threads = BTreeMap::new();
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file));
            // A thread that ends in the meantime belongs to another pipeline.
            let Ok(name) = read("comm") else { continue };
            if name.starts_with("fl-") && !name.starts_with("fl-stream") {
                let used = read("schedstat")
                    .ok()
                    .and_then(|text| first_number(&text))
                    .or_else(|| ticks(&read("stat").ok()?))
                    .ok_or_else(unsupported)?;
                *threads.entry(name.trim_end().to_owned()).or_default() += used;
            }
        }
        Ok(Self(threads))
    }

    fn since(&self, before: &Self) -> Self {
        let used = |(name, &now): (&String, &u64)| {
            (name.clone(), now.saturating_sub(before.0.get(name).copied().unwrap_or(0)))
        };
        Self(self.0.iter().map(used).collect())
    }

    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Microseconds per step of each thread that ran at all.
    fn per_step(&self, steps: usize) -> BTreeMap<&str, f64> {
        let awake = self.0.iter().filter(|&(_, &used)| used > 0);
        awake.map(|(name, &used)| (name.as_str(), used as f64 / 1e3 / steps.max(1) as f64)).collect()
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// User and system time from `stat`, for systems without `schedstat`: fields 14 and 15, 100 ticks per
/// second (proc(5)).
fn ticks(stat: &str) -> Option<u64> {
    let mut after_name = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (after_name.next()?.parse().ok()?, after_name.next()?.parse().ok()?);
    Some((user + system) * 10_000_000)
}

fn unsupported() -> Error {
    let why = "no CPU times of threads in /proc/self/task: run idle on Linux with /proc mounted";
    Error::new(ErrorKind::Unavailable, why)
}
