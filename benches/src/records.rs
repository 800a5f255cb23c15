//! Shuffled records of a file in memory, in each transfer mode. Staged: against plain threads that copy
//! the same rows into pinned memory and send them. Zero-copy: against copies from pinned memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::baseline::Bare;
use feedline::{
    DType, Dataset, Error, ErrorKind, Loader, LoaderBuilder, Result, Spec, TransferMode, Workers,
};
use feedline_core::random::splitmix64;
use feedline_datasets::{OpenOptions, Records};
use serde_json::json;

use crate::measure::{Sides, each, sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets::scramble;
use crate::setting::{DEPTH, Setting};

/// Blocks per plain thread: one is filled while the other is sent.
const BLOCKS: usize = 2;

/// 3x224x224 u8 images.
pub(crate) const RAW: Case = Case {
    bench: "raw",
    row_bytes: 3 * 224 * 224,
    depth: 3,
    staged: Target::RatioAtLeast(0.95),
    zero_copy: 44.0,
};
/// Short records; staged has no target.
pub(crate) const GATHER: Case =
    Case { bench: "gather", row_bytes: 784, depth: DEPTH, staged: Target::None, zero_copy: 40.0 };

/// Images, batch 256.
///
/// # Errors
/// An error of the file, the device or the pipeline.
pub fn raw(options: &Options, report: &mut Report) -> Result<()> {
    all(options, report, RAW, if options.smoke { 16 } else { 256 })
}

/// Short records, batch 4096.
///
/// # Errors
/// As [`raw`].
pub fn gather(options: &Options, report: &mut Report) -> Result<()> {
    all(options, report, GATHER, 4096)
}

fn all(options: &Options, report: &mut Report, case: Case, batch: usize) -> Result<()> {
    let filed = Filed::new(options, case)?;
    let setting = |workers| Setting { batch, workers: Workers::Count(workers), depth: case.depth };
    for transfer_mode in &options.transfer_modes {
        match transfer_mode {
            TransferMode::ZeroCopy => filed.zero_copy(options, report, setting(1))?,
            _ => {
                options
                    .workers
                    .iter()
                    .try_for_each(|&workers| filed.staged(options, report, setting(workers)))?;
            }
        }
    }
    Ok(())
}

/// Records of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    bench: &'static str,
    row_bytes: usize,
    /// The loader's default for batches of this size.
    pub(crate) depth: usize,
    /// Target of the staged mode, relative to plain threads.
    staged: Target,
    /// Target of the zero-copy mode on a GPU, in GB/s.
    zero_copy: f64,
}

impl Case {
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

/// A file of records.
pub(crate) struct Filed {
    case: Case,
    scratch: Scratch,
}

impl Filed {
    /// Writes the file.
    ///
    /// # Errors
    /// `Config` if the file cannot be written.
    pub(crate) fn new(options: &Options, case: Case) -> Result<Self> {
        Ok(Self { case, scratch: Scratch::new(options, case.bench, case.row_bytes)? })
    }

    /// Opens the records in memory, without a size limit: both sides read them there.
    pub(crate) fn open(&self) -> Result<Records> {
        let spec = Spec::new().field("bytes", DType::U8, [self.case.row_bytes])?;
        Records::open_with(&self.scratch.0, spec, &OpenOptions::with_memory_limit(u64::MAX))
    }

    pub(crate) fn builder(&self, records: Records, setting: Setting) -> LoaderBuilder {
        setting.of(Loader::builder(records).shuffle().seed(1).last_batch(feedline::LastBatch::Drop))
    }
}

/// Steps per epoch.
pub(crate) fn epoch_steps(loader: &Loader) -> Result<usize> {
    match loader.batch_sampler().steps(0, 0) as usize {
        0 => Err(Error::new(ErrorKind::Config, "the file holds no whole batch: raise --file-mib")),
        steps => Ok(steps),
    }
}

/// Measures whole epochs of a loader against its baseline; also returns the steps per turn.
///
/// # Errors
/// An error of the baseline, the device or the pipeline.
pub(crate) fn against(
    options: &Options,
    loader: &mut Loader,
    depth: usize,
    mut baseline: impl FnMut(usize) -> Result<()>,
) -> Result<(Sides, usize)> {
    let compute = options.device.stream()?;
    let epoch_steps = epoch_steps(loader)?;
    let whole = |steps: usize| steps.div_ceil(epoch_steps) * epoch_steps;
    let turn = whole(steps(options, &mut baseline)?);
    let mut epoch = 0;
    let feed = |steps: usize| {
        for _ in 0..steps / epoch_steps {
            for batch in loader.epoch(epoch)? {
                drop(batch?.wait_on(&compute)?);
            }
            epoch += 1;
        }
        compute.synchronize()
    };
    // The lead consumes the batches that were prefetched before the turn.
    Ok((sides(options, (whole(4 * depth), turn), feed, baseline)?, turn))
}

impl Filed {
    /// Measures the staged mode.
    ///
    /// # Errors
    /// An error of the file, the device or the pipeline.
    pub(crate) fn staged(&self, options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
        let (Setting { batch, workers, depth }, row_bytes) = (setting, self.case.row_bytes);
        let records = self.open()?;
        let builder = self.builder(self.open()?, setting).transfer_mode(TransferMode::Staged);
        let mut loader = builder.build(&options.device)?;
        let plain = Plain::new(options, &records, batch, workers.threads()?)?;
        let (sides, whole) = against(options, &mut loader, depth, |steps| plain.run(steps))?;
        let rate = |seconds: f64| rate(batch * row_bytes, seconds);
        let more = json!({
            "samples_per_s": batch as f64 / sides.value.median(),
            "baseline_samples_per_s": batch as f64 / sides.baseline.median(),
            "file_bytes": file_bytes(&records), "steps": whole, "depth": depth,
        });
        report.add(
            self.case.bench,
            Entry {
                parameters: json!({
                    "transfer_mode": "staged", "row_bytes": row_bytes, "batch": batch,
                    "workers": setting.workers(),
                }),
                target: self.case.staged,
                more,
                ..Entry::of(&sides, "GB/s", rate)
            },
        )
    }

    /// Measures the zero-copy mode; the baseline is the link's rate: back-to-back copies from pinned memory.
    ///
    /// # Errors
    /// An error of the file, the device or the pipeline.
    pub(crate) fn zero_copy(&self, options: &Options, report: &mut Report, setting: Setting) -> Result<()> {
        let (Setting { batch, depth, .. }, row_bytes) = (setting, self.case.row_bytes);
        let records = self.open()?;
        let file_bytes = file_bytes(&records);
        // Room for the file and the ids.
        let builder = self
            .builder(records, setting)
            .transfer_mode(TransferMode::ZeroCopy)
            .pinned_budget(file_bytes + (64 << 20));
        let start = std::time::Instant::now();
        let mut loader = builder.build(&options.device)?;
        let build = start.elapsed().as_secs_f64();
        let mut wire = Bare::new(&options.device, depth, batch * row_bytes)?;
        let (sides, whole) = against(options, &mut loader, depth, |steps| wire.copies(steps))?;
        let rate = |seconds: f64| rate(batch * row_bytes, seconds);
        let more = json!({
            "samples_per_s": batch as f64 / sides.value.median(),
            "file_bytes": file_bytes, "steps": whole, "build_s": build, "depth": depth,
        });
        let is_gpu = options.device.kind() == feedline::device::BackendKind::Cuda;
        report.add(
            self.case.bench,
            Entry {
                parameters: json!({ "transfer_mode": "zero-copy", "row_bytes": row_bytes, "batch": batch }),
                target: if is_gpu { Target::AtLeast(self.case.zero_copy) } else { Target::None },
                more,
                ..Entry::of(&sides, "GB/s", rate)
            },
        )
    }
}

fn file_bytes(records: &Records) -> usize {
    records.bytes().map_or(0, <[u8]>::len)
}

/// GB/s, from bytes and seconds per batch.
pub(crate) fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

/// The baseline: each thread takes the next batch, copies its rows and sends it on its own stream.
struct Plain<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    threads: Vec<Mutex<Bare>>,
}

impl<'a> Plain<'a> {
    fn new(options: &Options, records: &'a Records, batch: usize, threads: usize) -> Result<Self> {
        let row_bytes = records.spec().sample_bytes();
        let bare = |_| Ok(Mutex::new(Bare::new(&options.device, BLOCKS, batch * row_bytes)?));
        let in_memory = || Error::new(ErrorKind::Config, "the records are not in memory");
        let bytes = records.bytes().ok_or_else(in_memory)?;
        Ok(Self { bytes, row_bytes, threads: (0..threads).map(bare).collect::<Result<_>>()? })
    }

    fn run(&self, steps: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        each(&self.threads, |bare| self.thread(bare, &next, steps))
    }

    fn thread(&self, bare: &mut Bare, next: &AtomicUsize, steps: usize) -> Result<()> {
        for turn in 0.. {
            let step = next.fetch_add(1, Ordering::Relaxed);
            if step >= steps {
                break;
            }
            let rows = bare.fill(turn)?.chunks_exact_mut(self.row_bytes);
            for (row, out) in rows.enumerate() {
                let id = splitmix64(((step as u64) << 32) + row as u64)
                    % (self.bytes.len() / self.row_bytes) as u64;
                out.copy_from_slice(&self.bytes[id as usize * self.row_bytes..][..self.row_bytes]);
            }
            bare.send(turn)?;
        }
        bare.finish()
    }
}

/// A file of random records, removed on drop.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// Writes a file of `--file-mib`, in whole records.
    ///
    /// # Errors
    /// `Config` if the file cannot be written.
    pub(crate) fn new(options: &Options, bench: &str, row_bytes: usize) -> Result<Self> {
        let scratch = Self(options.scratch.join(format!("feedline-{bench}-{}.records", std::process::id())));
        let bytes = options.file_bytes / row_bytes as u64 * row_bytes as u64;
        scratch.write(bytes).map_err(|error| {
            let why =
                "cannot write the record file: set --scratch to a folder with more room, or lower --file-mib";
            Error::new(ErrorKind::Config, why).at_path(&scratch.0).with_source(error)
        })?;
        Ok(scratch)
    }

    /// Writes random bytes, which do not compress.
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
