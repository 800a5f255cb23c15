//! Batches gathered in device memory, from a set that was put there once. `peers/index_select.py` measures
//! the same with `torch.index_select`.

use feedline::device::BackendKind;
use feedline::report::ServiceTimes;
use feedline::{DType, Error, ErrorKind, Loader, Result, Spec, TransferMode};
use feedline_datasets::{OpenOptions, Records};
use serde_json::json;

use crate::measure::{Figures, steps};
use crate::options::Options;
use crate::records::{Scratch, rate};
use crate::row::{Entry, Report, Target, shares};
use crate::setting::DEPTH;

/// Bytes of a record, records of a batch, and the target on an H200 in GB/s of payload.
const CASES: [(usize, usize, f64); 2] = [
    (3 * 224 * 224, 256, 1690.0),
    // 12.7 us per batch.
    (784, 4096, 784.0 * 4096.0 / 12.7e3),
];

/// Runs the benchmark.
///
/// # Errors
/// An error of the file, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    CASES.into_iter().try_for_each(|case| one(options, report, case))
}

fn one(options: &Options, report: &mut Report, (row_bytes, batch, bar): (usize, usize, f64)) -> Result<()> {
    let file = Scratch::new(options, "resident", row_bytes)?;
    let spec = Spec::new().field("bytes", DType::U8, [row_bytes])?;
    let records = Records::open_with(&file.0, spec, &OpenOptions::with_memory_limit(u64::MAX))?;
    let batch = if options.smoke { 16 } else { batch };
    let mut loader = Loader::builder(records)
        .shuffle()
        .seed(1)
        .last_batch(feedline::LastBatch::Drop)
        .batch_size(batch)
        .depth(DEPTH)
        .transfer_mode(TransferMode::Resident)
        .build(&options.device)?;
    let compute = options.device.stream()?;
    let epoch_steps = loader.batch_sampler().steps(0, 0) as usize;
    if epoch_steps == 0 {
        return Err(Error::new(ErrorKind::Config, "the file holds no whole batch: raise --file-mib"));
    }
    let mut epoch = 0;
    let mut feed = |wanted: usize| {
        let mut left = wanted;
        while left > 0 {
            for batch in loader.epoch(epoch)?.take(left) {
                drop(batch?.wait_on(&compute)?);
                left -= 1;
            }
            epoch += 1;
        }
        compute.synchronize()
    };
    // Whole epochs only: a part of one would leave prefetched batches for the next turn.
    let turn = steps(options, &mut feed)?.div_ceil(epoch_steps) * epoch_steps;
    let mut seconds = Vec::new();
    for _ in 0..options.reps {
        let start = std::time::Instant::now();
        feed(turn)?;
        seconds.push(start.elapsed().as_secs_f64() / turn as f64);
    }
    let seconds = Figures::new(seconds);
    let report_of_run = loader.report();
    let ServiceTimes { submit_ns, copy_ns, step_ns, .. } = report_of_run.service;
    let is_gpu = options.device.kind() == BackendKind::Cuda;
    report.add(
        "resident",
        Entry {
            parameters: json!({ "row_bytes": row_bytes, "batch": batch }),
            value: seconds.map(|seconds| rate(batch * row_bytes, seconds)),
            unit: "GB/s",
            baseline: None,
            ratio: None,
            target: if is_gpu { Target::AtLeast(bar.round()) } else { Target::None },
            more: json!({
                "us_per_batch": seconds.median() * 1e6, "file_bytes": options.file_bytes, "steps": turn,
                "depth": DEPTH, "workers": report_of_run.setup.workers, "shares": shares(&report_of_run.run),
                // The gather is timed by events on the device, the others on their threads.
                "gather_us": copy_ns as f64 / 1e3, "queue_us": submit_ns as f64 / 1e3,
                "consume_us": step_ns as f64 / 1e3,
            }),
        },
    )
}
