//! Each reader, sequential and shuffled, against the plainest loop with the same parser (feature `formats`).
//!
//! | part | file |
//! | --- | --- |
//! | the formats, and the measurement | `mod.rs` |
//! | the files | `files.rs` |
//! | plain threads, and the blocks that they fill | `threads.rs` |
//! | plain loops: rows in memory, samples in a row, tables | `memory.rs`, `samples.rs`, `tables.rs` |

mod files;
mod memory;
mod samples;
mod tables;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline::{Error, ErrorKind, Loader, ReadError, Result, Sampler, TransferMode, Workers};
use feedline_core::{Dataset, Values};
use feedline_datasets::{Bounded, ParquetFile, TableOptions, open};
use serde_json::json;

use crate::options::Options;
use crate::records::against;
use crate::row::{Entry, Report, Target, shares};
use crate::setting::{DEPTH, Setting};
use threads::{Plain, Threads, cpu_of_workers};

/// Samples per batch.
pub const BATCH: usize = 256;
/// The most bytes of a format's files.
const MOST_BYTES: u64 = 128 << 20;

pub type Outcome<T> = std::result::Result<T, ReadError>;

/// The order of an epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Shuffled,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Shuffled => "shuffled",
        }
    }
}

/// A format: how its files are written, and how a plain loop reads them.
struct Format {
    name: &'static str,
    /// Bytes of a sample in the files, about.
    sample_bytes: u64,
    /// Writes this number of samples below the folder; returns the path to open.
    write: fn(&Path, u64) -> Outcome<PathBuf>,
    plain: fn(&Path, Order) -> Outcome<Plain>,
}

const IMAGE_ROW: u64 = files::IMAGE as u64 + 8;
const TABLE_ROW: u64 = files::COLUMNS as u64 * 9;
const LINE_ROW: u64 = files::LINE as u64;

const FORMATS: [Format; 14] = [
    Format { name: "idx", sample_bytes: IMAGE_ROW, write: files::idx, plain: memory::idx },
    Format { name: "cifar", sample_bytes: IMAGE_ROW, write: files::cifar, plain: memory::cifar },
    Format { name: "npy", sample_bytes: IMAGE_ROW, write: files::npy, plain: memory::npy },
    Format { name: "npz", sample_bytes: IMAGE_ROW, write: files::npz, plain: memory::npz },
    Format {
        name: "safetensors",
        sample_bytes: IMAGE_ROW,
        write: files::safetensors,
        plain: memory::safetensors,
    },
    Format { name: "arrow", sample_bytes: IMAGE_ROW, write: files::arrow, plain: memory::arrow },
    Format { name: "arrow lz4", sample_bytes: IMAGE_ROW, write: files::arrow_lz4, plain: tables::arrow_lz4 },
    Format { name: "parquet", sample_bytes: IMAGE_ROW, write: files::parquet, plain: tables::parquet },
    Format { name: "webdataset", sample_bytes: IMAGE_ROW, write: files::tar, plain: samples::tar },
    Format { name: "tfrecord", sample_bytes: IMAGE_ROW, write: files::tfrecord, plain: samples::tfrecord },
    Format { name: "mds", sample_bytes: IMAGE_ROW, write: files::mds, plain: samples::mds },
    Format { name: "folder", sample_bytes: 4 * IMAGE_ROW, write: files::folder, plain: samples::folder },
    Format { name: "csv", sample_bytes: TABLE_ROW, write: files::csv, plain: tables::csv },
    Format { name: "jsonl", sample_bytes: TABLE_ROW, write: files::jsonl, plain: tables::jsonl },
];
/// Lines of a text are short: a sample costs little compared with the loader's work for it.
const TEXT: Format =
    Format { name: "text", sample_bytes: LINE_ROW, write: files::text, plain: samples::text };

/// A Parquet file with a cache for a quarter of its row groups.
const PARQUET_BEYOND: Format =
    Format { name: "parquet beyond", sample_bytes: IMAGE_ROW, write: files::parquet, plain: tables::parquet };

/// Writes a Parquet file of about `bytes` bytes below `folder`.
///
/// # Errors
/// An error of the file system.
pub fn parquet(folder: &Path, bytes: u64) -> Outcome<PathBuf> {
    files::parquet(folder, bytes / IMAGE_ROW)
}

/// Runs the benchmark; `--format NAME` runs one format alone.
///
/// # Errors
/// `Config` if a file cannot be written; an error of a reader, the device or the pipeline; and `Data` if a
/// plain loop reads other bytes than the reader.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    for format in FORMATS.iter().chain([&PARQUET_BEYOND, &TEXT]) {
        if options.format.as_ref().is_some_and(|name| name != format.name) {
            continue;
        }
        let folder = tempfile::Builder::new().prefix("feedline-readers-").tempdir_in(&options.scratch);
        let folder = folder.map_err(|error| failed("write files", format, error.into()))?;
        let samples = (options.file_bytes.min(MOST_BYTES) / format.sample_bytes).max(4 * BATCH as u64);
        let path =
            (format.write)(folder.path(), samples).map_err(|why| failed("write files", format, why))?;
        for order in [Order::Sequential, Order::Shuffled] {
            for &workers in &options.workers {
                one(options, report, format, &path, order, workers)?;
            }
        }
    }
    Ok(())
}

fn one(
    options: &Options,
    report: &mut Report,
    format: &Format,
    path: &Path,
    order: Order,
    workers: usize,
) -> Result<()> {
    let reader = opened(format, path, options)?;
    let (together, samples) = (reader.about().groups.map(|groups| groups.largest), reader.len());
    let plain = (format.plain)(path, order).map_err(|why| failed("read", format, why))?;
    let sizes = sizes(&*reader)?;
    let threads = Threads::new(options, plain, order, sizes.clone(), (BATCH, samples), workers)?;
    threads.check(&*reader)?;

    let builder = Loader::builder(dataset(reader)?)
        .last_batch(feedline::LastBatch::Drop)
        .transfer_mode(TransferMode::Staged);
    let builder = match (order, together) {
        (Order::Sequential, _) => builder,
        (Order::Shuffled, None) => builder.shuffle().seed(1),
        // Shuffles like the plain loop: samples that are decoded together stay together.
        (Order::Shuffled, Some(block)) => builder.sampler(Sampler::block(block, block)?).seed(1),
    };
    let setting = Setting { batch: BATCH, workers: Workers::Count(workers), depth: DEPTH };
    let mut loader = setting.of(builder).build(&options.device)?;
    let (sides, steps) = against(options, &mut loader, DEPTH, |steps| threads.run(steps))?;
    let run = loader.report().run;
    // On a machine with other work this is steadier than the rates.
    let cpu = cpu_of_workers() / run.batches.max(1) as f64;
    let plain_cpu = threads.cpu_per_block();
    let rate = |seconds: f64| BATCH as f64 / seconds;
    report.add(
        "readers",
        Entry {
            parameters: json!({ "format": format.name, "order": order.name(), "workers": workers }),
            // A line takes less time than the loader's part of any sample.
            target: if format.name == TEXT.name { Target::None } else { Target::RatioAtLeast(0.9) },
            more: json!({
                "row_bytes": sizes.iter().sum::<usize>(), "batch": BATCH, "samples": samples,
                "cpu_us_per_batch": cpu * 1e6, "baseline_cpu_us_per_batch": plain_cpu * 1e6,
                "cpu_ratio": plain_cpu / cpu, "together": together, "steps": steps, "depth": DEPTH,
                "shares": shares(&run),
            }),
            ..Entry::of(&sides, "samples/s", rate)
        },
    )
}

fn opened(format: &Format, path: &Path, options: &Options) -> Result<Arc<dyn Dataset>> {
    if format.name != PARQUET_BEYOND.name {
        return open(path);
    }
    parquet_beyond(path, options.file_bytes.min(MOST_BYTES))
}

/// Opens a Parquet file of `bytes` bytes with a cache for a quarter of it.
///
/// # Errors
/// As [`ParquetFile::open_with`].
pub fn parquet_beyond(path: &Path, bytes: u64) -> Result<Arc<dyn Dataset>> {
    let options = TableOptions { cache_bytes: bytes / 4, ..Default::default() };
    Ok(Arc::new(ParquetFile::open_with(path, options)?))
}

/// Bytes of each field of a sample: all samples of a file are alike.
fn sizes(reader: &dyn Dataset) -> Result<Vec<usize>> {
    let mut values = Values::new();
    values.read(reader, 0)?;
    Ok(values.fields().iter().map(|value| value.bytes.len()).collect())
}

/// The reader as a data set: with ragged fields where sizes may vary.
fn dataset(reader: Arc<dyn Dataset>) -> Result<Box<dyn Dataset>> {
    let mut values = Values::new();
    values.read(&*reader, 0)?;
    let varying = reader.spec().fields().iter().zip(values.fields());
    let varying = varying.filter(|(field, _)| field.dims().contains(&None));
    let limits: Vec<_> = varying.map(|(field, value)| (field.name().to_owned(), value.shape[0])).collect();
    Ok(Box::new(Bounded::stated(reader, &limits)?))
}

fn failed(what: &str, format: &Format, why: ReadError) -> Error {
    Error::new(ErrorKind::Data, format!("cannot {what} as {}", format.name)).with_source(why)
}
