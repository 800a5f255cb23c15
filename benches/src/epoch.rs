//! The time from the last batch of an epoch to the first of the next, against the steady step.

use std::time::Instant;

use feedline::{Loader, Result, Workers};
use feedline_kernels::ops::Kernels;
use serde_json::json;

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets;
use crate::setting::{DEPTH, Setting};

pub(crate) const BASE: Setting = Setting { batch: 512, workers: Workers::PerCore, depth: DEPTH };
/// Time per step on the device.
const STEP_NS: u64 = 200_000;

/// Runs the benchmark.
///
/// # Errors
/// An error of the data, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    one(options, report, BASE)
}

/// Measures the epoch boundaries with one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
    let compute = options.device.stream()?;
    let kernels = Kernels::new(&compute)?;
    let builder =
        Loader::builder(sets::training(options)?).shuffle().seed(1).last_batch(feedline::LastBatch::Drop);
    let mut loader = setting.of(builder).build(&options.device)?;
    let epochs = if options.smoke { 2 } else { options.reps as u64 + 2 };
    let (mut steady, mut turns, mut last) = (Vec::new(), Vec::new(), None);
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch)? {
            let ready = batch?.wait_on(&compute)?;
            let now = Instant::now();
            let since = last.replace(now).map(|last| (now - last).as_secs_f64() * 1e6);
            let first = ready.step() == 0;
            kernels.spin(STEP_NS)?;
            drop(ready);
            // The first epoch warms up.
            match since {
                Some(us) if first => turns.push(us),
                Some(us) if epoch > 0 => steady.push(us),
                _ => {}
            }
            // Wait for the step, so that the time between batches holds the feed and the step but no
            // queueing.
            compute.synchronize()?;
        }
    }
    let (steady, turns) = (Figures::new(steady), Figures::new(turns));
    report.add(
        "epoch",
        Entry {
            parameters: json!({ "batch": setting.batch, "step_us": STEP_NS / 1000 }),
            ratio: Some(turns.median() / steady.median()),
            value: turns,
            unit: "us",
            baseline: Some(steady.median()),
            target: Target::RatioAtMost(2.0),
            more: json!({ "steady_p99": steady.quantile(0.99), "epochs": epochs }),
        },
    )
}
