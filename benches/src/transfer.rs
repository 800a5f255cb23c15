//! The rate to the device without decoding, against raw copies from pinned memory.

use crate::baseline::Bare;
use feedline::{Loader, Result, Workers};
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::{Nothing, scramble};
use crate::setting::{DEPTH, Setting};

/// Rows and bytes per row: batches of 3.2 and 38.5 MB.
const BATCHES: [(usize, usize); 2] = [(4096, 784), (256, 3 * 224 * 224)];
pub(crate) const BASE: Setting = Setting { batch: 4096, workers: Workers::Count(1), depth: DEPTH };

/// Runs the benchmark.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    BATCHES
        .into_iter()
        .try_for_each(|(batch, row_bytes)| one(options, report, Setting { batch, ..BASE }, row_bytes))
}

/// Measures one batch size with one setting.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, setting: Setting, row_bytes: usize) -> Result<()> {
    let Setting { batch: rows, depth, .. } = setting;
    let device = &options.device;
    let compute = device.stream()?;
    let bytes = rows * row_bytes;
    let data = Nothing::new(row_bytes, 4 * depth * rows)?;
    let mut loader = setting.of(Loader::builder(data)).build(device)?;
    let mut bare = Bare::new(device, depth, bytes)?;
    for slot in 0..depth {
        scramble(bare.fill(slot)?, slot as u64);
    }
    let mut batches = loader.epoch(0)?;
    let steps = steps(options, |steps| bare.copies(steps))?;
    let feed = |steps| {
        for batch in batches.by_ref().take(steps) {
            drop(batch?.wait_on(&compute)?);
        }
        compute.synchronize()
    };
    let sides = sides(options, (4 * depth, steps), feed, |steps| bare.copies(steps))?;
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    report.add(
        "transfer",
        Entry {
            parameters: json!({ "bytes": bytes, "rows": rows }),
            target: Target::RatioAtLeast(0.97),
            more: json!({ "steps": steps, "depth": depth }),
            ..Entry::of(&sides, "GB/s", rate)
        },
    )
}
