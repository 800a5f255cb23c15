//! Jitter of the consumer's steps (99th percentile / median) while decoding keeps every core busy.

use std::time::{Duration, Instant};

use crate::baseline::Empty;
use feedline::{Loader, Result, Stream, Workers};
use serde_json::json;

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::Burning;
use crate::setting::{DEPTH, Setting};

pub(crate) const BASE: Setting = Setting { batch: 128, workers: Workers::PerCore, depth: DEPTH };
/// Time to decode a batch, whatever its size: 20 us per sample in a batch of 128.
const DECODE: Duration = Duration::from_micros(128 * 20);
/// Kernel launches per step, as in a small model.
const LAUNCHES: usize = 16;

/// Runs the benchmark.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    one(options, report, BASE)
}

/// Measures the steps next to a loader with one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
    let (compute, empty) = (options.device.stream()?, Empty::new(&options.device)?);
    let data = Burning::new(784, DECODE / setting.batch as u32)?;
    let mut loader = setting.of(Loader::builder(data)).build(&options.device)?;
    let mut batches = loader.epoch(0)?;
    // Default: 500. Fewer than 200 have no meaningful 99th percentile.
    let steps = (options.repetition.as_micros() as usize / 500).max(if options.smoke { 10 } else { 200 });
    let (mut noisy, mut quiet, mut medians) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    for turn in 0..=options.reps {
        let mut times = Vec::with_capacity(steps);
        for batch in batches.by_ref().take(steps) {
            let batch = batch?;
            let start = Instant::now();
            let ready = batch.wait_on(&compute)?;
            step(&compute, &empty)?;
            drop(ready);
            compute.synchronize()?;
            times.push(us(start));
        }
        // Once its slots are full, the pipeline sleeps and the cores are quiet.
        std::thread::sleep(Duration::from_millis(if options.smoke { 5 } else { 50 }));
        let mut alone = Vec::with_capacity(steps);
        for _ in 0..steps {
            let start = Instant::now();
            step(&compute, &empty)?;
            compute.synchronize()?;
            alone.push(us(start));
        }
        if turn > 0 {
            let (times, alone) = (Figures::new(times), Figures::new(alone));
            noisy.push(times.quantile(0.99) / times.median());
            quiet.push(alone.quantile(0.99) / alone.median());
            medians.0.push(times.median());
            medians.1.push(alone.median());
        }
    }
    let (noisy, quiet) = (Figures::new(noisy), Figures::new(quiet).median());
    report.add(
        "noisy",
        Entry {
            parameters: json!({ "batch": setting.batch, "workers": setting.workers() }),
            ratio: Some(noisy.median() / quiet),
            value: noisy,
            unit: "p99/median",
            baseline: Some(quiet),
            target: Target::AtMost(1.5),
            more: json!({
                "median_us": Figures::new(medians.0).median(),
                "quiet_median_us": Figures::new(medians.1).median(),
                "steps": steps,
            }),
        },
    )
}

fn step(compute: &Stream, empty: &Empty) -> Result<()> {
    (0..LAUNCHES).try_for_each(|_| empty.launch(compute))
}

fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
