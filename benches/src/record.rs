//! The cost of a record: the fed step with and without it, and the rate of the hash.

use std::time::Duration;

use feedline::record::{RecordOptions, Recorder, field_hash};
use feedline::{Error, ErrorKind, LastBatch, Loader, Result, Stream, Workers};
use feedline_testkit::NullDevice;
use serde_json::json;

use crate::measure::{Figures, busy, sides, steps, timed};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::setting::DEPTH;
use crate::tiny::{Memory, Point, Table};

/// Rows of a batch, bytes of a row, and the step of the loop; without one the workers are the limit.
const POINTS: [(usize, usize, Duration); 4] = [
    (128, 784, Duration::from_micros(200)),
    (256, 150_528, Duration::from_millis(20)),
    (128, 784, Duration::ZERO),
    (256, 150_528, Duration::ZERO),
];

/// Runs the benchmark.
///
/// # Errors
/// An error of the pipeline, or of the folder of the record.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let memory = Memory::new();
    for row_bytes in [16, 784, 150_528] {
        hash(options, report, &memory, row_bytes)?;
    }
    note(options, report, &memory)?;
    for (batch, row_bytes, step) in POINTS {
        for &workers in &options.workers {
            let length = (64 << 20) / row_bytes as u64;
            let point = Point { length, row_bytes, batch, workers, depth: DEPTH, batches: None };
            fed(options, report, &memory, point, step)?;
        }
    }
    Ok(())
}

/// The rate at which one thread hashes rows of `row_bytes` bytes.
fn hash(options: &Options, report: &mut Report, memory: &Memory, row_bytes: usize) -> Result<()> {
    let bytes = memory.bytes();
    let rates = (0..=options.reps).map(|_| {
        let (time, _) = timed(|| {
            Ok(std::hint::black_box(
                bytes.chunks(row_bytes).fold(0_u64, |sum, row| sum.wrapping_add(field_hash(0, row))),
            ))
        })?;
        Ok(bytes.len() as f64 / time.as_secs_f64() / 1e9)
    });
    let rates = rates.skip(1).collect::<Result<Vec<_>>>()?;
    report.add(
        "record",
        Entry {
            parameters: json!({ "what": "hash", "row_bytes": row_bytes }),
            value: Figures::new(rates),
            unit: "GB/s",
            baseline: None,
            ratio: None,
            target: if row_bytes >= 784 { Target::AtLeast(3.0) } else { Target::None },
            more: json!({}),
        },
    )
}

/// The time of a note on the consumer's thread, with its share of writing the file. A step is recorded the
/// same way, by a frame of nearly the same length.
fn note(options: &Options, report: &mut Report, memory: &Memory) -> Result<()> {
    const NOTES: u32 = 100_000;
    let folder = folder()?;
    let recorder = Recorder::new(folder.path(), RecordOptions::default());
    let point = Point { length: 64, row_bytes: 64, batch: 1, workers: 1, depth: DEPTH, batches: None };
    let _loader = Loader::builder(Table::new(memory, point)?).record(&recorder).build_host()?;
    let times = (0..=options.reps).map(|_| {
        let notes = || (0..u64::from(NOTES)).try_for_each(|step| recorder.note_at(step, "loss", 0.5));
        let (time, ()) = timed(notes)?;
        Ok(time.as_secs_f64() * 1e9 / f64::from(NOTES))
    });
    let times = times.skip(1).collect::<Result<Vec<_>>>()?;
    report.add(
        "record",
        Entry {
            parameters: json!({ "what": "note" }),
            value: Figures::new(times),
            unit: "ns",
            baseline: None,
            ratio: None,
            target: Target::AtMost(1000.0),
            more: json!({}),
        },
    )
}

/// A folder for a record.
fn folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| {
        Error::new(ErrorKind::Data, "cannot make a folder for the record").with_source(error)
    })
}

/// The time of a fed step with and without a record.
fn fed(options: &Options, report: &mut Report, memory: &Memory, point: Point, step: Duration) -> Result<()> {
    let device = feedline_device::with_backend(NullDevice::new());
    let compute = device.stream()?;
    let folder = folder()?;
    let builder = || -> Result<_> {
        let builder = Loader::builder(Table::new(memory, point)?).batch_size(point.batch).shuffle().seed(1);
        Ok(builder.last_batch(LastBatch::Drop).depth(point.depth).workers(Workers::Count(point.workers)))
    };
    let recorder = Recorder::new(folder.path(), RecordOptions::default());
    let mut recorded = builder()?.record(&recorder).build(&device)?;
    let mut plain = builder()?.build(&device)?;
    let (mut epoch, mut plain_epoch) = (0, 0);
    let mut note = |steps| feed(&mut recorded, &mut epoch, &compute, step, steps, Some(&recorder));
    let wanted = steps(options, |steps| feed(&mut plain, &mut plain_epoch, &compute, step, steps, None))?;
    let sides = sides(options, (wanted / 8, wanted), &mut note, |steps| {
        feed(&mut plain, &mut plain_epoch, &compute, step, steps, None)
    })?;
    report.add(
        "record",
        Entry {
            parameters: json!({
                "what": "step", "batch": point.batch, "row_bytes": point.row_bytes,
                "workers": point.workers, "step_us": step.as_micros() as u64,
            }),
            ratio: Some(sides.ratio.median()),
            target: if step.is_zero() { Target::None } else { Target::RatioAtMost(1.01) },
            more: json!({ "steps": wanted }),
            ..Entry::of(&sides, "us/batch", |seconds| seconds * 1e6)
        },
    )
}

/// Takes `steps` batches, each for the time of a step, and notes a value of each if they are recorded.
fn feed(
    loader: &mut Loader,
    epoch: &mut u64,
    compute: &Stream,
    step: Duration,
    steps: usize,
    recorder: Option<&Recorder>,
) -> Result<()> {
    let mut left = steps;
    while left > 0 {
        for batch in loader.epoch(*epoch)?.take(left) {
            drop(batch?.wait_on(compute)?);
            busy(step);
            recorder.map_or(Ok(()), |recorder| recorder.note("loss", 0.5))?;
            left -= 1;
        }
        *epoch += 1;
    }
    Ok(())
}
