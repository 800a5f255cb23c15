//! The time from `build()` to the first batch, the time of `stop()`, and the trainer's first step.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::baseline::Bare;
use feedline::{Error, ErrorKind, Loader, Result, Workers};
use feedline_core::{Context, Dataset, Layout};
use serde_json::{Value, json};

use crate::measure::{Figures, timed};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets;
use crate::setting::{DEPTH, Setting};

pub(crate) const BASE: Setting = Setting { batch: 4096, workers: Workers::PerCore, depth: DEPTH };
const STOP: Duration = Duration::from_secs(10);

/// Runs the benchmark.
///
/// # Errors
/// An error of the data, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    one(options, report, BASE)?;
    match &options.mlp {
        Some(mlp) => first_steps(options, report, mlp),
        None => Ok(()),
    }
}

/// Measures start and stop of a loader with one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
    let (mut first, mut baselines, mut ratios, mut stops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for turn in 0..=options.reps {
        let (value, stop) = begin_and_stop(options, setting)?;
        let baseline = baseline(options, setting)?;
        if turn > 0 {
            first.push(value);
            baselines.push(baseline);
            ratios.push(value / baseline);
            stops.push(stop);
        }
    }
    let parameters = |what: &str| json!({ "what": what, "batch": setting.batch });
    report.add(
        "start",
        Entry {
            parameters: parameters("build to first batch"),
            value: Figures::new(first),
            unit: "ms",
            baseline: Some(Figures::new(baselines).median()),
            ratio: Some(Figures::new(ratios).median()),
            target: Target::None,
            more: json!({ "baseline": "the ring's allocation and one batch's decode on one thread" }),
        },
    )?;
    report.add(
        "start",
        Entry {
            parameters: parameters("stop"),
            value: Figures::new(stops),
            unit: "ms",
            baseline: None,
            ratio: None,
            target: Target::AtMost(50.0),
            more: Value::Null,
        },
    )
}

/// Milliseconds from `build` to the first batch on the stream, and of a stop in the middle of an epoch.
fn begin_and_stop(options: &Options, setting: Setting) -> Result<(f64, f64)> {
    let compute = options.device.stream()?;
    let data = sets::training(options)?;
    let (begun, mut loader) = timed(|| {
        let builder = Loader::builder(data).shuffle().seed(1).last_batch(feedline::LastBatch::Drop);
        let mut loader = setting.of(builder).build(&options.device)?;
        if let Some(batch) = loader.epoch(0)?.next() {
            drop(batch?.wait_on(&compute)?);
        }
        Ok(loader)
    })?;
    let (stopped, ()) = timed(|| loader.stop(STOP))?;
    Ok((ms(begun), ms(stopped)))
}

/// Milliseconds to allocate the loader's memory and decode one batch.
fn baseline(options: &Options, Setting { batch, depth, .. }: Setting) -> Result<f64> {
    let data = sets::training(options)?;
    let layout = Layout::new(data.spec(), batch)?;
    let ids: Vec<u64> = (0..batch as u64).map(|row| row * 7919 % data.len()).collect();
    let (time, _) = timed(|| {
        let mut bare = Bare::new(&options.device, depth + 1, layout.bytes())?;
        let mut rows = feedline_core::Rows::new(&layout, bare.fill(0)?, batch);
        let read = data.read_many(&ids, &mut rows, &mut Context::new(0, 0));
        read.map_err(|(_, cause)| Error::new(ErrorKind::Sample, "cannot read a sample").with_source(cause))?;
        drop(rows);
        bare.send(0)?;
        bare.finish()?;
        Ok(bare)
    })?;
    Ok(ms(time))
}

/// Runs the trainer as a process: time to the end of its first step, without and with compiled kernels on
/// disk.
fn first_steps(options: &Options, report: &mut Report, mlp: &Path) -> Result<()> {
    let folder = options.scratch.join(format!("feedline-first-step-{}", std::process::id()));
    let run = |cache: &Path| -> Result<f64> {
        let json = folder.join("report.json");
        let mut command = Command::new(mlp);
        command.args(["--steps", "1", "--quiet", "--json"]).arg(&json).env("FEEDLINE_CACHE", cache);
        if let Some(data) = &options.data {
            command.arg("--data").arg(data);
        }
        let status =
            command.stdout(Stdio::null()).status().map_err(|error| failed(mlp).with_source(error))?;
        if !status.success() {
            return Err(failed(mlp));
        }
        let text = std::fs::read(&json).map_err(|error| failed(mlp).with_source(error))?;
        let report: Value = serde_json::from_slice(&text).map_err(|error| failed(mlp).with_source(error))?;
        report["first_step_seconds"].as_f64().ok_or_else(|| failed(mlp))
    };
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for turn in 0..options.reps.min(3) {
        let cache = folder.join(format!("cache-{turn}"));
        std::fs::create_dir_all(&cache).map_err(|error| failed(mlp).with_source(error))?;
        cold.push(run(&cache)?);
        warm.push(run(&cache)?);
    }
    let _ = std::fs::remove_dir_all(&folder);
    for (what, figures, bar) in [("first step, cold", cold, 3.0), ("first step, warm", warm, 1.0)] {
        let entry = Entry {
            parameters: json!({ "what": what, "batch": 128 }),
            value: Figures::new(figures),
            unit: "s",
            baseline: None,
            ratio: None,
            target: Target::AtMost(bar),
            more: json!({ "kernels": "cold: no compiled kernels on disk" }),
        };
        report.add("start", entry)?;
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn failed(mlp: &Path) -> Error {
    Error::new(ErrorKind::Config, "--mlp wrote no report: give the path of the built mlp example")
        .at_path(mlp)
}
