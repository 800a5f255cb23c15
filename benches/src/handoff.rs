//! The cost per batch without decoding, against a bare loop of driver calls.

use std::time::{Duration, Instant};

use crate::baseline::{Bare, Empty};
use feedline::{Epoch, Loader, Result, Stream, Workers};
use serde_json::json;

use crate::measure::{Figures, busy, sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::{Nothing, scramble};
use crate::setting::{DEPTH, Setting};

/// Rows and bytes per row: batches of 1 KB and 100 KB.
const BATCHES: [(usize, usize); 2] = [(1, 1024), (128, 784)];
pub(crate) const BASE: Setting = Setting { batch: 128, workers: Workers::Count(1), depth: DEPTH };
/// Pause between batches while the consumer's calls are timed, so that the next batch is ready.
const PAUSE: Duration = Duration::from_micros(50);

/// Runs the benchmark.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    BATCHES
        .into_iter()
        .try_for_each(|(batch, row_bytes)| one(options, report, Setting { batch, ..BASE }, row_bytes, true))
}

/// Measures one batch size with one setting; with `host`, also the consumer's calls.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(
    options: &Options,
    report: &mut Report,
    setting: Setting,
    row_bytes: usize,
    host: bool,
) -> Result<()> {
    let Setting { batch: rows, depth, .. } = setting;
    let device = &options.device;
    let (compute, empty) = (device.stream()?, Empty::new(device)?);
    let data = Nothing::new(row_bytes, 4 * depth * rows)?;
    let mut loader = setting.of(Loader::builder(data)).build(device)?;
    let memory = loader.memory_use();
    let mut bare = Bare::new(device, depth, rows * row_bytes)?;
    for slot in 0..depth {
        scramble(bare.fill(slot)?, slot as u64);
    }
    let mut batches = loader.epoch(0)?;
    let steps = steps(options, |steps| bare.hand_over(steps))?;
    let sides = sides(
        options,
        (4 * depth, steps),
        |steps| hand_over(&mut batches, &compute, &empty, steps),
        |steps| bare.hand_over(steps),
    )?;
    let more = json!({
        "steps": steps, "depth": depth,
        "pinned_bytes": memory.pinned_bytes, "device_bytes": memory.device_bytes,
    });
    report.add(
        "handoff",
        Entry {
            parameters: json!({ "what": "batch", "bytes": rows * row_bytes, "rows": rows }),
            ratio: Some(sides.ratio.median()),
            target: Target::RatioAtMost(1.5),
            more,
            ..Entry::of(&sides, "us/batch", |seconds| seconds * 1e6)
        },
    )?;
    if host {
        host_time(options, report, &mut batches, &mut bare, (&compute, &empty), rows * row_bytes)?;
    }
    Ok(())
}

fn hand_over(batches: &mut Epoch<'_>, compute: &Stream, empty: &Empty, steps: usize) -> Result<()> {
    for batch in batches.take(steps) {
        let ready = batch?.wait_on(compute)?;
        empty.launch(compute)?;
        drop(ready);
    }
    compute.synchronize()
}

/// Measures the consumer's calls when the next batch is ready.
fn host_time(
    options: &Options,
    report: &mut Report,
    batches: &mut Epoch<'_>,
    bare: &mut Bare,
    (compute, empty): (&Stream, &Empty),
    bytes: usize,
) -> Result<()> {
    let steps = if options.smoke { 20 } else { 2000 };
    let mut times = Vec::with_capacity(steps);
    for batch in (0..steps).map_while(|_| {
        busy(PAUSE);
        let start = Instant::now();
        batches.next().map(|batch| (start, batch))
    }) {
        let (start, batch) = batch;
        let ready = batch?.wait_on(compute)?;
        let before = start.elapsed();
        empty.launch(compute)?;
        let start = Instant::now();
        drop(ready);
        times.push((before + start.elapsed()).as_secs_f64() * 1e6);
    }
    compute.synchronize()?;
    let (mut total, turns) = (Duration::ZERO, steps / 8 + 1);
    for _ in 0..turns {
        busy(PAUSE);
        let start = Instant::now();
        bare.consumer_calls(8)?;
        total += start.elapsed();
    }
    bare.finish()?;
    let (times, baseline) = (Figures::new(times), total.as_secs_f64() * 1e6 / (8 * turns) as f64);
    let more =
        json!({ "p99": times.quantile(0.99), "calls": "next + wait_on + drop; baseline: wait + record" });
    report.add(
        "handoff",
        Entry {
            parameters: json!({ "what": "host time", "bytes": bytes }),
            ratio: Some(times.median() / baseline),
            value: times,
            unit: "us/batch",
            baseline: Some(baseline),
            target: Target::AtMost(5.0),
            more,
        },
    )
}
