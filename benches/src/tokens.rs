//! Windows of a token stream, shuffled, against copies from pinned memory of the same size.

use feedline::{DType, Dataset, Loader, Result, TransferMode, Workers};
use feedline_datasets::{TokenOptions, Tokens};
use serde_json::json;

use crate::baseline::Bare;
use crate::options::Options;
use crate::records::{Scratch, against, rate};
use crate::row::{Entry, Report, Target};
use crate::setting::{DEPTH, Setting};

/// Tokens of a window.
const WINDOW: usize = 2048;
/// Windows per batch: 4 MiB, half of them targets.
const BATCH: usize = 512;

/// Runs the benchmark in each transfer mode, staged with each number of workers.
///
/// # Errors
/// An error of the file, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let file = Scratch::new(options, "tokens", 2 * WINDOW)?;
    let batch = if options.smoke { 64 } else { BATCH };
    for &mode in &options.transfer_modes {
        let workers = if mode == TransferMode::Staged { &options.workers[..] } else { &[1] };
        for &workers in workers {
            let setting = Setting { batch, workers: Workers::Count(workers), depth: DEPTH };
            one(options, report, &file, setting, mode)?;
        }
    }
    Ok(())
}

fn one(
    options: &Options,
    report: &mut Report,
    file: &Scratch,
    setting: Setting,
    mode: TransferMode,
) -> Result<()> {
    let Setting { batch, depth, .. } = setting;
    let windows = Tokens::open(&[(&file.0, 1.0)], TokenOptions::new(DType::U16, WINDOW))?;
    let bytes = batch * windows.spec().sample_bytes();
    let builder =
        Loader::builder(windows).shuffle().seed(1).last_batch(feedline::LastBatch::Drop).transfer_mode(mode);
    let builder = builder.pinned_budget(options.file_bytes as usize + (256 << 20));
    let mut loader = setting.of(builder).build(&options.device)?;
    let mut wire = Bare::new(&options.device, depth, bytes)?;
    let (sides, steps) = against(options, &mut loader, depth, |steps| wire.copies(steps))?;
    // A few workers cannot gather as fast as a bus copies.
    let is_max = options.workers.iter().max() == setting.workers.threads().ok().as_ref();
    let has_bar = mode != TransferMode::Staged || is_max;
    report.add(
        "tokens",
        Entry {
            parameters: json!({
                "transfer_mode": loader.transfer_mode().to_string(), "window": WINDOW, "batch": batch,
                "workers": setting.workers(),
            }),
            target: if has_bar { Target::RatioAtLeast(0.9) } else { Target::None },
            more: json!({ "file_bytes": options.file_bytes, "steps": steps, "depth": depth }),
            ..Entry::of(&sides, "GB/s", |seconds| rate(bytes, seconds))
        },
    )
}
