//! Sweeps: every benchmark over workers, batch size and depth, one quantity at a time around the
//! benchmark's own point.
//!
//! Cost should grow with bytes only: not with the number of batches, the workers or the length of the
//! set. Memory should grow with depth and the bytes per batch only.

use std::time::{Duration, Instant};

use feedline::device::BackendKind;
use feedline::{Result, TransferMode, Workers};

use crate::options::Options;
use crate::records::{self, Filed};
use crate::row::Report;
use crate::setting::{DEPTH, Setting};
use crate::tiny::{Memory, Point};
use crate::{epoch, guards, handoff, idle, noisy, start, tiny, train, transfer};

const WORKERS: [usize; 5] = [1, 2, 4, 8, 16];
const BATCHES: [usize; 5] = [32, 128, 512, 2048, 8192];
const DEPTHS: [usize; 5] = [1, 2, 4, 8, 16];
/// Batch sizes for benchmarks that read the whole training set or compute; smaller batches would take too
/// long.
const LONGER: [usize; 4] = [128, 512, 2048, 8192];
/// Images per batch: 2.4 to 38.5 MB; the file holds a few of the largest batches.
const IMAGES: [usize; 5] = [16, 32, 64, 128, 256];
/// Bytes per sample, except images.
const BYTES: usize = 784;
/// Upper bound of a record file's size: every point reads it several times.
const FILE_BYTES: u64 = 256 << 20;

/// The base point of `tiny`.
const TINY: Point =
    Point { length: 10_000_000, row_bytes: BYTES, batch: 512, workers: 1, depth: DEPTH, batches: None };
const ROW_BYTES: [usize; 6] = [16, 64, 256, 1024, 4096, 16_384];
const LENGTHS: [u64; 4] = [100_000, 10_000_000, 10_000_000_000, 1_000_000_000_000];
/// Batches per run.
const RUNS: [usize; 4] = [100, 1000, 10_000, 50_000];

/// Runs the sweeps. After `--limit` no new point starts, and the skipped ones are printed.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut sweeps = Sweeps {
        options,
        report,
        // A smoke run measures the first two points of each sweep.
        points: if options.smoke { 2 } else { usize::MAX },
        start: Instant::now(),
        skipped: Vec::new(),
    };
    let outcome = without_device(&mut sweeps)
        .and_then(|()| synthetic(&mut sweeps))
        .and_then(|()| of_the_training_set(&mut sweeps))
        .and_then(|()| of_files(&mut sweeps));
    if !sweeps.skipped.is_empty() {
        eprintln!("benches: scale: skipped because of --limit: {}", sweeps.skipped.join(", "));
    }
    sweeps.report.sweep(None);
    outcome
}

/// The loader's cost per sample, without a device.
fn without_device(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let memory = Memory::new();
    // The longest points take seconds: two pairs are enough.
    let few = Options { reps: sweeps.options.reps.min(2), ..sweeps.options.clone() };
    let run = |_: &Options, report: &mut Report, batches: u64| {
        tiny::one(&few, report, &memory, Point { batches: Some(batches as usize), batch: 128, ..TINY })
    };
    sweeps.over("tiny", "batches", &RUNS.map(|batches| batches as u64), run)?;
    let one = |options: &Options, report: &mut Report, point| tiny::one(options, report, &memory, point);
    // Sweeps that need more memory come last: the allocator may keep it, which would distort the others.
    sweeps.over("tiny", "length", &LENGTHS, |o, r, length| one(o, r, Point { length, ..TINY }))?;
    let base = Setting { batch: TINY.batch, workers: Workers::Count(TINY.workers), depth: TINY.depth };
    let of = |Setting { batch, workers, depth }: Setting| {
        Ok(Point { batch, workers: workers.threads()?, depth, ..TINY })
    };
    sweeps.all("tiny", base, (&WORKERS, &BATCHES, &DEPTHS), |o, r, setting| one(o, r, of(setting)?))?;
    let sizes = ROW_BYTES.map(|bytes| bytes as u64);
    sweeps.over("tiny", "row_bytes", &sizes, |o, r, bytes| {
        one(o, r, Point { row_bytes: bytes as usize, ..TINY })
    })
}

/// Hand-off, transfer rate and threads, with synthetic samples.
fn synthetic(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let every = (&WORKERS[..], &BATCHES[..], &DEPTHS[..]);
    sweeps.all("handoff", handoff::BASE, every, |o, r, setting| handoff::one(o, r, setting, BYTES, false))?;
    sweeps.all("transfer", transfer::BASE, every, |o, r, setting| transfer::one(o, r, setting, BYTES))?;
    // One thread without a loader, so no workers.
    let base = Setting { batch: 128, workers: Workers::PerCore, depth: guards::DEPTH };
    sweeps.all("guards", base, (&[], every.1, every.2), |o, r, Setting { batch, depth, .. }| {
        guards::one(o, r, batch * BYTES, depth)
    })?;
    sweeps.all("noisy", noisy::BASE, every, noisy::one)?;
    sweeps.all("idle", idle::BASE, every, idle::one)
}

/// Epochs, start, stop and step of a trainer.
fn of_the_training_set(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let every = (&WORKERS[..], &LONGER[..], &DEPTHS[..]);
    sweeps.all("epoch", epoch::BASE, every, epoch::one)?;
    sweeps.all("start", start::BASE, every, start::one)?;
    // On the host a step takes a third of a second, which says nothing about the feed.
    if sweeps.options.device.kind() != BackendKind::Cuda && !sweeps.options.smoke {
        return Ok(());
    }
    sweeps.all("train, staged", train::BASE, every, |o, r, setting| {
        train::one(o, r, setting, TransferMode::Staged)
    })?;
    let zero_copy = (&[][..], every.1, every.2);
    sweeps.all("train, zero-copy", train::BASE, zero_copy, |o, r, setting| {
        train::one(o, r, setting, TransferMode::ZeroCopy)
    })
}

/// Records of a file, in both transfer modes.
fn of_files(sweeps: &mut Sweeps<'_>) -> Result<()> {
    let of_file = Options { file_bytes: sweeps.options.file_bytes.min(FILE_BYTES), ..sweeps.options.clone() };
    // A smoke run's file holds small batches only.
    let images = if sweeps.options.smoke { IMAGES[0] } else { IMAGES[2] };
    for (case, batch, batches, names) in [
        (records::GATHER, 4096, &BATCHES, ["gather, staged", "gather, zero-copy"]),
        (records::RAW, images, &IMAGES, ["raw, staged", "raw, zero-copy"]),
    ] {
        if sweeps.is_late() {
            names.into_iter().for_each(|name| sweeps.skip(name));
            continue;
        }
        let filed = Filed::new(&of_file, case)?;
        let base = Setting { batch, workers: Workers::Count(4), depth: case.depth };
        sweeps
            .all(names[0], base, (&WORKERS, batches, &DEPTHS), |o, r, setting| filed.staged(o, r, setting))?;
        sweeps
            .all(names[1], base, (&[], batches, &DEPTHS), |o, r, setting| filed.zero_copy(o, r, setting))?;
    }
    Ok(())
}

/// State shared by all sweeps.
struct Sweeps<'a> {
    options: &'a Options,
    report: &'a mut Report,
    /// Points per sweep, at most.
    points: usize,
    start: Instant,
    /// The points that `--limit` skipped.
    skipped: Vec<String>,
}

impl Sweeps<'_> {
    /// Measures `bench` over workers, batch size and depth, each around `base`. An empty list skips its
    /// quantity.
    fn all(
        &mut self,
        bench: &str,
        base: Setting,
        (workers, batches, depths): (&[usize], &[usize], &[usize]),
        measure: impl Fn(&Options, &mut Report, Setting) -> Result<()>,
    ) -> Result<()> {
        type Moved = fn(Setting, usize) -> Setting;
        let quantities: [(_, _, Moved); 3] = [
            ("workers", workers, |base, n| Setting { workers: Workers::Count(n), ..base }),
            ("batch", batches, |base, batch| Setting { batch, ..base }),
            ("depth", depths, |base, depth| Setting { depth, ..base }),
        ];
        for (quantity, points, moved) in quantities {
            let points: Vec<_> = points.iter().map(|&point| point as u64).collect();
            self.over(bench, quantity, &points, |options, report, x| {
                measure(options, report, moved(base, x as usize))
            })?;
        }
        Ok(())
    }

    /// Measures `bench` at each of `points` of `quantity`.
    fn over(
        &mut self,
        bench: &str,
        quantity: &'static str,
        points: &[u64],
        measure: impl Fn(&Options, &mut Report, u64) -> Result<()>,
    ) -> Result<()> {
        for (number, &x) in points.iter().take(self.points).enumerate() {
            if self.is_late() {
                self.skip(&format!("{bench} over {quantity} from {x}"));
                break;
            }
            if number == 0 {
                let seconds = self.start.elapsed().as_secs_f64();
                eprintln!("benches: scale: {seconds:.0} s: {bench} over {quantity}");
            }
            self.report.sweep(Some((quantity, x)));
            measure(self.options, self.report, x)?;
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.options.limit.is_some_and(|limit: Duration| self.start.elapsed() >= limit)
    }

    fn skip(&mut self, what: &str) {
        self.skipped.push(what.to_owned());
    }
}
