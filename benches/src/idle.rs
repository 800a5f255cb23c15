//! What the pipeline's threads cost while the device computes: they should sleep.

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

pub(crate) const BASE: Setting = Setting { batch: 128, workers: Workers::Auto, depth: DEPTH };
/// What a step takes on the device.
const STEP_NS: u64 = 2_000_000;

/// Runs the benchmark.
///
/// # Errors
/// Whatever the device or the pipeline ends with; `Unavailable` where the system does not tell CPU times.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    one(options, report, BASE)
}

/// The threads of a loader of one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
    let compute = options.device.stream()?;
    let kernels = Kernels::new(&compute)?;
    let mut loader = setting.of(Loader::builder(Nothing::new(784, 0)?)).build(&options.device)?;
    let mut batches = loader.epoch(0)?;
    // 400 by default.
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
            floor: None,
            ratio: None,
            target: Target::AtMost(2.0),
            more: json!({ "steps": steps, "us_a_step": used.a_step(turns * steps) }),
        },
    )
}

/// Nanoseconds of CPU time that the pipeline's threads have used, by their names: all called `fl-`, but for the host device's
/// streams, which stand in for a GPU.
#[derive(Clone, Default)]
struct Cpu(BTreeMap<String, u64>);

impl Cpu {
    fn now() -> Result<Self> {
        let tasks = fs::read_dir("/proc/self/task").map_err(|error| untold().caused_by(error))?;
        let mut threads = BTreeMap::new();
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file));
            // A thread that ends meanwhile is of another pipeline.
            let Ok(name) = read("comm") else { continue };
            if name.starts_with("fl-") && !name.starts_with("fl-stream") {
                let used = read("schedstat")
                    .ok()
                    .and_then(|text| first_number(&text))
                    .or_else(|| ticks(&read("stat").ok()?))
                    .ok_or_else(untold)?;
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

    /// Microseconds a step of each thread that was awake at all.
    fn a_step(&self, steps: usize) -> BTreeMap<&str, f64> {
        let awake = self.0.iter().filter(|&(_, &used)| used > 0);
        awake.map(|(name, &used)| (name.as_str(), used as f64 / 1e3 / steps.max(1) as f64)).collect()
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// User and system time from `stat`, where `schedstat` is missing; fields 14 and 15, 100 ticks a second (proc(5)).
fn ticks(stat: &str) -> Option<u64> {
    let mut after_name = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (after_name.next()?.parse().ok()?, after_name.next()?.parse().ok()?);
    Some((user + system) * 10_000_000)
}

fn untold() -> Error {
    Error::new(ErrorKind::Unavailable, "this system does not tell threads' CPU times in /proc/self/task")
}
