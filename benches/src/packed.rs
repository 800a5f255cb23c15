//! A packed set of images by the staged mode, against copies from pinned memory (feature `formats`).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use feedline::{Error, ErrorKind, Loader, Result, TransferMode, Workers};
use feedline_datasets::{Bounded, OpenOptions, PackOptions, open_with, pack};
use serde_json::json;

use crate::baseline::Bare;
use crate::options::Options;
use crate::records::{against, rate};
use crate::row::{Entry, Report, Target};
use crate::sets::scramble;
use crate::setting::Setting;

/// 3x224x224 u8 images.
const ROW_BYTES: usize = 3 * 224 * 224;
const BATCH: usize = 256;
/// The loader's default for batches of this size.
const DEPTH: usize = 3;

/// Packs an array and runs the benchmark with each number of workers.
///
/// # Errors
/// An error of the files, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let refuse = |error: std::io::Error| {
        let why = "cannot write files: set --scratch to a folder with more room, or lower --file-mib";
        Error::new(ErrorKind::Config, why).with_source(error)
    };
    let folder = tempfile::Builder::new().prefix("feedline-packed-").tempdir_in(&options.scratch);
    let folder = folder.map_err(refuse)?;
    let (source, packed) = (folder.path().join("images.npy"), folder.path().join("images.arrow"));
    write(&source, options.file_bytes / ROW_BYTES as u64).map_err(refuse)?;
    // Read sample by sample: in memory it would take as much again.
    pack(&*open_with(&source, &OpenOptions::with_memory_limit(0))?, &packed, PackOptions::default(), |_| ())?;
    std::fs::remove_file(&source).map_err(refuse)?;
    options.workers.iter().try_for_each(|&workers| one(options, report, &packed, workers))
}

fn one(options: &Options, report: &mut Report, packed: &Path, workers: usize) -> Result<()> {
    let batch = if options.smoke { 16 } else { BATCH };
    let data = Bounded::new(open_with(packed, &OpenOptions::with_memory_limit(u64::MAX))?)?;
    let setting = Setting { batch, workers: Workers::Count(workers), depth: DEPTH };
    let builder = Loader::builder(data)
        .shuffle()
        .seed(1)
        .last_batch(feedline::LastBatch::Drop)
        .transfer_mode(TransferMode::Staged);
    let mut loader = setting.of(builder).build(&options.device)?;
    let bytes = batch * ROW_BYTES;
    let mut wire = Bare::new(&options.device, DEPTH, bytes)?;
    let (sides, steps) = against(options, &mut loader, DEPTH, |steps| wire.copies(steps))?;
    let is_most = options.workers.iter().max() == Some(&workers);
    report.add(
        "packed",
        Entry {
            parameters: json!({ "row_bytes": ROW_BYTES, "batch": batch, "workers": workers }),
            // A few workers cannot gather as fast as a bus copies.
            target: if is_most { Target::RatioAtLeast(0.95) } else { Target::None },
            more: json!({ "file_bytes": options.file_bytes, "steps": steps, "depth": DEPTH }),
            ..Entry::of(&sides, "GB/s", |seconds| rate(bytes, seconds))
        },
    )
}

/// Writes an array of images of random bytes.
fn write(path: &Path, images: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({images}, 3, 224, 224), }}");
    while (text.len() + 11) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    file.write_all(b"\x93NUMPY\x01\0")?;
    file.write_all(&(text.len() as u16).to_le_bytes())?;
    file.write_all(text.as_bytes())?;
    let mut image = vec![0; ROW_BYTES];
    for id in 0..images {
        scramble(&mut image, id);
        file.write_all(&image)?;
    }
    file.flush()
}
