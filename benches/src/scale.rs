//! What cost and memory grow with: sweeps of one quantity at a time around one point, by the other benchmarks' measuring.
//!
//! Cost is to grow with bytes, and not with the number of batches, the workers or the length of the set; memory is to grow
//! with depth and the bytes of a batch alone.

use std::time::{Duration, Instant};

use feedline::{Kind, Result, Road};

use crate::options::Options;
use crate::row::Report;
use crate::tiny::{Memory, Point};
use crate::{handoff, records, tiny, train, transfer};

/// The point of `tiny` that its sweeps go through.
const BASE: Point =
    Point { length: 10_000_000, row_bytes: 784, batch: 512, workers: 1, depth: 3, batches: None };
const WORKERS: [usize; 5] = [1, 2, 4, 8, 16];
const DEPTHS: [usize; 6] = [1, 2, 3, 4, 8, 16];
const BATCHES: [usize; 5] = [32, 128, 512, 2048, 8192];
const ROW_BYTES: [usize; 6] = [16, 64, 256, 1024, 4096, 16_384];
const LENGTHS: [u64; 4] = [100_000, 10_000_000, 10_000_000_000, 1_000_000_000_000];
/// Batches of a whole run.
const RUNS: [usize; 4] = [100, 1000, 10_000, 50_000];
/// Rows of 1 KiB in a batch that is handed over: 1 KiB to 32 MiB.
const ROWS: [usize; 6] = [1, 16, 128, 1024, 8192, 32_768];
/// Rows and bytes a row of the batches that are handed over, and sent, at each depth.
const SMALL: (usize, usize) = (128, 784);
const LARGE: (usize, usize) = (4096, 784);
/// The file of `raw` and `gather`, at most: it is written before every sweep.
const FILE_BYTES: u64 = 1 << 30;

/// Runs the sweeps; after `--limit`, no further point is begun, and those that were left out are named.
///
/// # Errors
/// Whatever the device or the pipeline ends with.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut sweeps = Sweeps {
        options,
        report,
        // A smoke run takes the first points of each sweep.
        points: if options.smoke { 2 } else { usize::MAX },
        until: options.limit.map(|limit: Duration| Instant::now() + limit),
        left_out: Vec::new(),
    };
    let outcome = without_device(&mut sweeps).and_then(|()| on_device(&mut sweeps));
    if !sweeps.left_out.is_empty() {
        eprintln!("benches: scale: left out for the time: {}", sweeps.left_out.join(", "));
    }
    sweeps.report.sweep(None);
    outcome
}

/// What the loader costs a sample, on a device that is not there.
fn without_device(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let memory = Memory::new();
    // The longest of these takes seconds: two pairs are enough.
    let few = Options { reps: sweeps.options.reps.min(2), ..sweeps.options.clone() };
    let runs = RUNS.map(|batches| Point { batches: Some(batches), batch: 128, ..BASE });
    sweeps.over("batches", "tiny", &runs, |_, report, &point| tiny::one(&few, report, &memory, point))?;
    let mut tiny = |name, points: Vec<Point>| {
        sweeps
            .over(name, "tiny", &points, |options, report, &point| tiny::one(options, report, &memory, point))
    };
    // Those that need more memory come last: what an allocator keeps of it would be counted in the others.
    tiny("length", LENGTHS.map(|length| Point { length, ..BASE }).to_vec())?;
    tiny("workers", WORKERS.map(|workers| Point { workers, ..BASE }).to_vec())?;
    tiny("depth", DEPTHS.map(|depth| Point { depth, ..BASE }).to_vec())?;
    tiny("batch", BATCHES.map(|batch| Point { batch, ..BASE }).to_vec())?;
    tiny("row_bytes", ROW_BYTES.map(|row_bytes| Point { row_bytes, ..BASE }).to_vec())
}

/// The hand-off, the wire and the file, on the device.
fn on_device(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let sizes = ROWS.map(|rows| (rows, 1024, BASE.depth));
    sweeps
        .over("bytes", "handoff", &sizes, |options, report, &at| handoff::one(options, report, at, false))?;
    let depths = DEPTHS.map(|depth| (SMALL.0, SMALL.1, depth));
    sweeps
        .over("depth", "handoff", &depths, |options, report, &at| handoff::one(options, report, at, false))?;
    let depths = DEPTHS.map(|depth| (LARGE.0, LARGE.1, depth));
    sweeps.over("depth", "transfer", &depths, |options, report, &at| transfer::one(options, report, at))?;
    // One call measures all workers: its file is written once.
    let workers = WORKERS.into_iter().take(sweeps.points).collect();
    let file_bytes = sweeps.options.file_bytes.min(FILE_BYTES);
    // One road: a sweep has one row a point, and workers are of the workers' road.
    let roads = vec![Road::Workers];
    let of_file = Options { workers, file_bytes, roads, ..sweeps.options.clone() };
    sweeps.over("workers", "gather", &[()], |_, report, ()| records::gather(&of_file, report))?;
    sweeps.over("workers", "raw", &[()], |_, report, ()| records::raw(&of_file, report))?;
    // The host computes a step in a third of a second: batches of other sizes would say nothing about feeding.
    if sweeps.options.device.kind() == Kind::Cuda || sweeps.options.smoke {
        sweeps.over("batch", "train", &[()], |_, report, ()| train::run(&of_file, report))?;
    }
    Ok(())
}

/// What all sweeps go by.
struct Sweeps<'a> {
    options: &'a Options,
    report: &'a mut Report,
    points: usize,
    until: Option<Instant>,
    left_out: Vec<String>,
}

impl Sweeps<'_> {
    /// Measures `bench` at each of `points`, which differ in `quantity`.
    fn over<T>(
        &mut self,
        quantity: &'static str,
        bench: &str,
        points: &[T],
        measure: impl Fn(&Options, &mut Report, &T) -> Result<()>,
    ) -> Result<()> {
        self.report.sweep(Some(quantity));
        for (number, point) in points.iter().take(self.points).enumerate() {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                self.left_out.push(format!("{bench} over {quantity} from point {}", number + 1));
                break;
            }
            measure(self.options, self.report, point)?;
        }
        Ok(())
    }
}
