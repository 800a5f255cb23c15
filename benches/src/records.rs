//! Shuffled records of a file in the page cache, to the device by the CPU road: against plain threads that copy the same
//! rows into page-locked memory and send them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline::{DType, Dataset, Error, ErrorKind, Loader, Result, Spec, Workers};
use feedline_core::random::splitmix64;
use feedline_datasets::Records;
use feedline_device::floor::Bare;
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::scramble;

/// Blocks of each plain thread: one is filled while the other is sent.
const BLOCKS: usize = 2;

/// 3x224x224 u8 images, batch 256.
///
/// # Errors
/// Whatever the file, the device or the pipeline ends with.
pub fn raw(options: &Options, report: &mut Report) -> Result<()> {
    all(options, report, "raw", 3 * 224 * 224, if options.smoke { 16 } else { 256 })
}

/// 784-byte records, batch 4096.
///
/// # Errors
/// As [`raw`].
pub fn gather(options: &Options, report: &mut Report) -> Result<()> {
    all(options, report, "gather", 784, 4096)
}

fn all(
    options: &Options,
    report: &mut Report,
    bench: &'static str,
    row_bytes: usize,
    batch: usize,
) -> Result<()> {
    let scratch = Scratch::new(options, bench, row_bytes)?;
    for &workers in &options.workers {
        one(options, report, bench, (&scratch.0, row_bytes, batch, workers))?;
    }
    Ok(())
}

fn one(
    options: &Options,
    report: &mut Report,
    bench: &'static str,
    (path, row_bytes, batch, workers): (&Path, usize, usize, usize),
) -> Result<()> {
    let device = &options.device;
    let compute = device.stream()?;
    let spec = Spec::new().field("bytes", DType::U8, [row_bytes])?;
    let records = Records::open(path, spec.clone())?;
    let builder = Loader::builder(Records::open(path, spec)?).batch_size(batch).shuffle(1).drop_last(true);
    let mut loader = builder.workers(Workers::Count(workers)).build(device)?;
    let an_epoch = loader.plan().steps(0, 0) as usize;
    if an_epoch == 0 {
        return Err(Error::new(ErrorKind::Config, "the file holds no whole batch: raise --file-mib"));
    }
    let plain = Plain::new(options, &records, batch, workers)?;
    let mut epoch = 0;
    let whole = steps(options, |steps| plain.run(steps))?.div_ceil(an_epoch) * an_epoch;
    let feed = |steps: usize| {
        for _ in 0..steps / an_epoch {
            for batch in loader.epoch(epoch)? {
                drop(batch?.wait_on(&compute)?);
            }
            epoch += 1;
        }
        compute.synchronize()
    };
    let sides = sides(options, (an_epoch, whole), feed, |steps| plain.run(steps))?;
    let rate = |seconds: f64| (batch * row_bytes) as f64 / seconds / 1e9;
    let more = json!({
        "samples_per_s": batch as f64 / sides.value.median(),
        "floor_samples_per_s": batch as f64 / sides.floor.median(),
        "file_bytes": records.bytes().len(), "road": "cpu", "steps": whole,
    });
    report.add(
        bench,
        Entry {
            parameters: json!({ "row_bytes": row_bytes, "batch": batch, "workers": workers }),
            value: sides.value.map(rate),
            unit: "GB/s",
            floor: Some(rate(sides.floor.median())),
            ratio: Some(1.0 / sides.ratio.median()),
            target: Target::RatioAtLeast(0.95),
            more,
        },
    )
}

/// The floor: threads that take the next batch, copy its rows and send it, each on a stream of its own.
struct Plain<'a> {
    records: &'a Records,
    row_bytes: usize,
    threads: Vec<Mutex<Bare>>,
}

impl<'a> Plain<'a> {
    fn new(options: &Options, records: &'a Records, batch: usize, threads: usize) -> Result<Self> {
        let row_bytes = records.spec().sample_bytes();
        let bare = |_| Ok(Mutex::new(Bare::new(&options.device, BLOCKS, batch * row_bytes)?));
        Ok(Self { records, row_bytes, threads: (0..threads).map(bare).collect::<Result<_>>()? })
    }

    fn run(&self, steps: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let next = &next;
            let start = |bare| scope.spawn(move || self.thread(bare, next, steps));
            let threads: Vec<_> = self.threads.iter().map(start).collect();
            let panicked = |_| Err(Error::new(ErrorKind::Panic, "a thread of the floor panicked"));
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
        })
    }

    fn thread(&self, bare: &Mutex<Bare>, next: &AtomicUsize, steps: usize) -> Result<()> {
        let mut bare = bare.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for turn in 0.. {
            let step = next.fetch_add(1, Ordering::Relaxed);
            if step >= steps {
                break;
            }
            let rows = bare.fill(turn)?.chunks_exact_mut(self.row_bytes);
            for (row, out) in rows.enumerate() {
                let id = splitmix64(((step as u64) << 32) + row as u64) % self.records.len();
                out.copy_from_slice(&self.records.bytes()[id as usize * self.row_bytes..][..self.row_bytes]);
            }
            bare.send(turn)?;
        }
        bare.finish()
    }
}

/// A file of random records that is removed when it is done with.
struct Scratch(PathBuf);

impl Scratch {
    fn new(options: &Options, bench: &str, row_bytes: usize) -> Result<Self> {
        let scratch = Self(options.scratch.join(format!("feedline-{bench}-{}.records", std::process::id())));
        let bytes = options.file_bytes / row_bytes as u64 * row_bytes as u64;
        scratch.write(bytes).map_err(|error| {
            let why =
                "cannot write the file of records: give --scratch a folder with room, or lower --file-mib";
            Error::new(ErrorKind::Config, why).at_path(&scratch.0).caused_by(error)
        })?;
        Ok(scratch)
    }

    /// Random bytes: nothing on the way can shrink them. Reading follows at once, from the page cache.
    fn write(&self, bytes: u64) -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&self.0)?);
        let mut block = vec![0; 1 << 16];
        let (mut left, mut number) = (bytes, 0);
        while left > 0 {
            scramble(&mut block, number);
            let part = left.min(block.len() as u64);
            file.write_all(&block[..part as usize])?;
            (left, number) = (left - part, number + 1);
        }
        file.flush()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
