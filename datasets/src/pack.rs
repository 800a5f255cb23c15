//! Packs the samples of any data set into Arrow files. These are the fastest to read.
//!
//! If each field of a set has one size, each file has one record batch. Its columns begin at multiples of 64
//! bytes. Held in memory or mapped, they are ready for zero-copy loading. Other sets become batches of about
//! 64 MiB. If Arrow has no type for a field, the metadata holds dtype and shape, so that the field is read
//! back unchanged.

use std::fs;
use std::path::Path;

use feedline_core::compose::Concat;
use feedline_core::{Dataset, Error, ErrorKind, Result};

use crate::TableOptions;
use crate::error::{check_names, data};
use crate::io::indexed_folder::IndexedFolder;

mod classes;
mod columns;
mod fixed;
mod footer;
mod index;
mod journal;
mod partial;
#[cfg(test)]
mod tests;
mod tokens;
mod varying;

use classes::Classes;
use columns::Columns;
use index::{INDEX, Index, Shard};
use journal::{Journal, Whole};
use partial::Partial;
pub use tokens::{PackedTokens, TokenPackOptions, pack_tokens};

/// How to pack.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackOptions {
    /// Writes a folder of shards of about this many bytes each, instead of one file.
    pub shard_bytes: Option<u64>,
}

/// Outcome of [`pack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSummary {
    /// Samples in all files.
    pub samples: u64,
    /// The number of files, without the index.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Files of an earlier run that were reused.
    pub kept: u64,
    /// Samples of an earlier run that were reused.
    pub kept_samples: u64,
}

/// Writes every sample of `set` to the file `to`, or to shards in the folder `to`. Calls `progress` with
/// the number of samples written so far.
///
/// A file is called `NAME.partial` until it is complete and synced to disk. If a run is interrupted, the next
/// run of the same source resumes it. Shards of the same size resume after the last complete shard. A single
/// file resumes at the position in `NAME.progress`, if the checksums of the bytes on disk match. The footer
/// of each file holds the CRC-32C of all bytes before it. The index, `_index.json`, holds it too. The footer
/// also has the names of the classes. In a folder of shards, a list of more than 64 KiB is stored once, in
/// `_classes.json`.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::{PackOptions, open, pack};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-pack-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let (source, target) = (dir.join("lines.txt"), dir.join("lines.arrow"));
/// std::fs::write(&source, "one\ntwo\n")?;
/// let packed = pack(&*open(&source)?, &target, PackOptions::default(), |_| {})?;
/// assert_eq!((packed.samples, packed.files), (2, 1));
/// assert_eq!(open(&target)?.spec().to_string(), "text text [?]");
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Config` for a source without samples, a field of two dimensions that vary, a target that exists, and
/// shards of size zero. `Data` if a sample cannot be read, or a file cannot be written. The error names the
/// file.
pub fn pack(
    set: &dyn Dataset,
    to: impl AsRef<Path>,
    options: PackOptions,
    mut progress: impl FnMut(u64),
) -> Result<PackSummary> {
    let to = to.as_ref();
    let at = |error: Error| if error.path().is_some() { error } else { error.at_path(to) };
    if set.len() == 0 {
        return Err(at(refuse("the source has no samples: give one that has some")));
    }
    if set.spec().fields().is_empty() {
        return Err(at(refuse("the source has no fields: give one that has some")));
    }
    // Check this before anything is written: `open` would refuse the packed file.
    check_names(set.spec()).map_err(at)?;
    let columns = Columns::new(set.spec()).map_err(at)?;
    match options.shard_bytes {
        None => one_file(set, &columns.with_classes(set.about().classes), to, &mut progress),
        Some(0) => Err(refuse("shards of no bytes hold nothing: give a size")),
        Some(bytes) => shards(set, columns, to, bytes, &mut progress),
    }
    .map_err(at)
}

/// Opens a folder of shards by its index.
pub(crate) fn of_folder(folder: &IndexedFolder, options: &TableOptions) -> Result<Concat> {
    let opened = Index::read(folder)?.open(folder, options);
    opened.map_err(|error| if error.path().is_some() { error } else { error.at_path(folder.path(INDEX)) })
}

fn one_file(
    set: &dyn Dataset,
    columns: &Columns,
    to: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<PackSummary> {
    if to.exists() {
        return Err(refuse("this exists already: remove it, or choose another name"));
    }
    let journal = Journal::new(to, set, columns)?;
    let partial = Partial::open(to.to_path_buf())?;
    let (shard, kept_samples) = file(set, columns, (partial, Some(&journal)), (0, u64::MAX), progress)?;
    journal.end()?;
    Ok(PackSummary { samples: shard.samples, files: 1, bytes: shard.bytes, kept: 0, kept_samples })
}

fn shards(
    set: &dyn Dataset,
    columns: Columns,
    to: &Path,
    bytes: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<PackSummary> {
    fs::create_dir_all(to).map_err(|error| cannot("make the folder", error))?;
    let _lock = partial::lock(to)?;
    let mut index = Index::resume_or_new(to, set, bytes)?;
    let classes = Classes::write(set.about().classes, to)?;
    let columns = if classes.is_some() { &columns } else { &columns.with_classes(set.about().classes) };
    index.name_classes(classes);
    let (kept, kept_samples) = (index.shards.len() as u64, index.samples());
    while index.samples() < set.len() {
        let name = format!("{:06}.arrow", index.shards.len());
        let partial = Partial::create(to.join(&name))?;
        let (mut shard, _) = file(set, columns, (partial, None), (index.samples(), bytes), progress)?;
        shard.name = name;
        index.shards.push(shard);
        index.save_progress(to)?;
    }
    index.finish(to)?;
    let bytes = index.shards.iter().map(|shard| shard.bytes).sum();
    Ok(PackSummary { samples: index.samples(), files: index.shards.len() as u64, bytes, kept, kept_samples })
}

/// Writes samples to a file, from `first` on. Stops after about `bytes` bytes.
fn file(
    set: &dyn Dataset,
    columns: &Columns,
    (mut partial, journal): (Partial, Option<&Journal>),
    (first, bytes): (u64, u64),
    progress: &mut dyn FnMut(u64),
) -> Result<(Shard, u64)> {
    let file = (partial.file(), journal);
    let written = match columns.row_bytes() {
        Some(row) => {
            let rows = (bytes / row.max(1)).clamp(1, set.len() - first);
            fixed::write(set, columns, first..first + rows, file, progress)
        }
        None => varying::write(set, columns, (first, bytes), file, progress),
    };
    let Whole { samples, kept, crc32c } = written.map_err(|error| partial.name_in(error))?;
    let bytes = partial.finish()?;
    Ok((Shard { name: String::new(), samples, bytes, crc32c }, kept))
}

fn refuse(why: &str) -> Error {
    Error::new(ErrorKind::Config, why)
}

fn cannot(what: &str, error: std::io::Error) -> Error {
    data(format!("cannot {what}")).with_source(error)
}
