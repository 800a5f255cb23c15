//! A step fed from a Parquet file beyond its cache, as a share of the step alone (feature `formats`).
//!
//! Row groups are decoded whole, and the cache holds a quarter of them. The step takes somewhat longer than
//! the workers take for a batch on average, so it waits only if row groups are decoded too late.

use std::time::{Duration, Instant};

use feedline::{Error, ErrorKind, Loader, Result, Sampler, TransferMode, Workers};
use feedline_datasets::Bounded;
use serde_json::json;

use crate::measure::Figures;
use crate::options::Options;
use crate::readers::{BATCH, parquet, parquet_beyond};
use crate::row::{Entry, Report, Target};
use crate::setting::{DEPTH, Setting};

/// The time of a step, as a multiple of the mean time between batches without one.
const STEP: f64 = 1.25;

/// Runs the benchmark.
///
/// # Errors
/// `Config` if the file cannot be written; an error of the reader, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let bytes = options.file_bytes.min(256 << 20);
    let folder = tempfile::Builder::new().prefix("feedline-groups-").tempdir_in(&options.scratch);
    let failed = |why| Error::new(ErrorKind::Config, "cannot write a Parquet file").with_source(why);
    let folder = folder.map_err(|error| failed(error.into()))?;
    let path = parquet(folder.path(), bytes).map_err(failed)?;
    for order in ["sequential", "shuffled"] {
        for &workers in &options.workers {
            let file = parquet_beyond(&path, bytes)?;
            let (block, window) = file.about().block_shuffle.unwrap_or((1, 1));
            let sampler = Sampler::block(block, window)?;
            let builder = Loader::builder(Bounded::new(file)?)
                .last_batch(feedline::LastBatch::Drop)
                .transfer_mode(TransferMode::Staged);
            let builder = if order == "shuffled" { builder.sampler(sampler).seed(1) } else { builder };
            let setting = Setting { batch: BATCH, workers: Workers::Count(workers), depth: DEPTH };
            let mut loader = setting.of(builder).build(&options.device)?;
            one(options, report, &mut loader, (order, workers))?;
        }
    }
    Ok(())
}

fn one(
    options: &Options,
    report: &mut Report,
    loader: &mut Loader,
    (order, workers): (&str, usize),
) -> Result<()> {
    let alone = epoch(options, loader, 0, Duration::ZERO)?;
    let step = Duration::from_secs_f64(alone * STEP);
    let start = Instant::now();
    (0..100).for_each(|_| std::thread::sleep(step));
    let baseline = start.elapsed().as_secs_f64() / 100.0;
    let epochs = 1..=if options.smoke { 1 } else { options.reps as u64 };
    let fed = epochs.map(|number| epoch(options, loader, number, step)).collect::<Result<Vec<_>>>()?;
    let value = Figures::new(fed).map(|seconds| seconds * 1e6);
    report.add(
        "groups",
        Entry {
            parameters: json!({ "order": order, "workers": workers }),
            ratio: Some(baseline * 1e6 / value.median()),
            value,
            unit: "us",
            baseline: Some(baseline * 1e6),
            target: Target::RatioAtLeast(0.97),
            more: json!({ "without_step_us": alone * 1e6, "batch": BATCH, "depth": DEPTH }),
        },
    )
}

/// Seconds per batch of an epoch whose steps take `step`.
fn epoch(options: &Options, loader: &mut Loader, number: u64, step: Duration) -> Result<f64> {
    let compute = options.device.stream()?;
    let (mut batches, mut first) = (0, None);
    for batch in loader.epoch(number)? {
        let ready = batch?.wait_on(&compute)?;
        first.get_or_insert_with(Instant::now);
        if !step.is_zero() {
            std::thread::sleep(step);
        }
        drop(ready);
        batches += 1;
    }
    Ok(first.map_or(0.0, |first| first.elapsed().as_secs_f64()) / f64::from(batches.max(1)))
}
