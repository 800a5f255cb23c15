//! The four IDX files of the set. Each is written completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;

use feedline_core::{DType, Error, ErrorKind, Result};

use super::set::{self, Split};
use super::{IMAGE_BYTES, SIDE, draw};
use crate::formats::idx::{header, names};
use crate::{IdxFile, io::system};

/// The name of the file that a process locks while it writes.
const LOCK: &str = ".digits.lock";
/// The prefix of an unfinished file's name. A rename turns the file into a data file.
const PART: &str = ".digits-part-";
/// The number of images in an existing file that are drawn again, to check that the file belongs to the set.
const SAMPLES: usize = 16;

/// One of the four files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Images(Split),
    Labels(Split),
}

impl Part {
    const ALL: [Self; 4] = {
        let [train, test] = Split::ALL;
        [Self::Images(train), Self::Labels(train), Self::Images(test), Self::Labels(test)]
    };

    fn name(self) -> &'static str {
        match self {
            Self::Images(Split::Train) => names::TRAIN[0],
            Self::Labels(Split::Train) => names::TRAIN[1],
            Self::Images(_) => names::TEST[0],
            Self::Labels(_) => names::TEST[1],
        }
    }

    /// The number of images to draw for this file.
    fn images(self) -> u64 {
        match self {
            Self::Images(split) => split.images() as u64,
            Self::Labels(_) => 0,
        }
    }
}

/// Makes sure that `dir` holds the set as four plain IDX files. [`Idx::open_train`](crate::Idx::open_train)
/// and [`Idx::open_test`](crate::Idx::open_test) read them.
///
/// Existing files are kept. Missing files are drawn with one thread per processor (about a second on two).
/// This thread calls `progress` with the number of images drawn so far and in total. If nothing is drawn, it
/// is not called. Each file appears complete, by a rename. If a run is interrupted, the next run removes its
/// leftovers.
///
/// If another process writes the same folder, blocks until it has finished, and then uses its files.
///
/// ```no_run
/// use feedline_datasets::{Idx, digits};
/// digits::ensure("datasets/digits".as_ref(), &mut |done, total| eprint!("\rdrawing {done} of {total}"))?;
/// let train = Idx::open_train("datasets/digits")?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// # Errors
/// `Data` if the folder cannot be written, or if a file with one of the four names is not of this set. Such a
/// file is never overwritten. `Unavailable` if no thread can be started.
pub fn ensure(dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    // Try without the lock first: a complete folder may be read-only.
    if missing(dir)?.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|error| cannot("cannot make the folder", error, dir))?;
    let _lock = lock(dir)?;
    let parts = missing(dir)?;
    let total = parts.iter().map(|part| part.images()).sum();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut done = 0;
    for &part in &parts {
        let content = content(part, threads, &mut |images| {
            done += images as u64;
            progress(done, total);
        })?;
        write(dir, part.name(), &content)
            .map_err(|error| cannot("cannot write the file", error, &dir.join(part.name())))?;
    }
    Ok(())
}

/// The files missing in `dir`.
fn missing(dir: &Path) -> Result<Vec<Part>> {
    let mut missing = Vec::new();
    for part in Part::ALL {
        let Some(path) = names::find(dir, part.name())? else {
            missing.push(part);
            continue;
        };
        let foreign = Error::new(
            ErrorKind::Data,
            "this is not the file of the digits set: give another folder, or delete it to have it drawn",
        );
        // Only a few images are compared, so the images are not all read.
        match IdxFile::open_limited(&path, 0).and_then(|file| is_ours(part, &file)) {
            Ok(true) => {}
            Ok(false) => return Err(foreign.at_path(path)),
            Err(error) => return Err(foreign.with_source(error)),
        }
    }
    Ok(missing)
}

/// Whether an IDX file is this part of the set. Compares all labels and some images.
fn is_ours(part: Part, file: &IdxFile) -> Result<bool> {
    let (Part::Images(split) | Part::Labels(split)) = part;
    let (labels, count) = (set::labels(split), split.images());
    let has_dims = |dims: &[usize]| file.dtype() == DType::U8 && file.dims() == dims;
    let read = |at: usize, to: &mut [u8]| file.content().read_at(file.data_offset() + at as u64, to);
    if let Part::Labels(_) = part {
        let mut found = vec![0; count];
        return Ok(has_dims(&[count]) && read(0, &mut found).map(|()| found == labels)?);
    }
    if !has_dims(&[count, SIDE, SIDE]) {
        return Ok(false);
    }
    for id in (0..count).step_by(count / SAMPLES) {
        let (mut drawn, mut found) = ([0; IMAGE_BYTES], [0; IMAGE_BYTES]);
        draw(split, id as u64, labels[id], &mut drawn);
        read(id * IMAGE_BYTES, &mut found)?;
        if drawn != found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes of a file.
fn content(part: Part, threads: usize, drawn: &mut dyn FnMut(usize)) -> Result<[Vec<u8>; 2]> {
    Ok(match part {
        Part::Images(split) => [
            header::of_bytes(&[split.images() as u32, SIDE as u32, SIDE as u32]),
            set::images(split, threads, drawn)?,
        ],
        Part::Labels(split) => [header::of_bytes(&[split.images() as u32]), set::labels(split)],
    })
}

/// Waits until no other process writes `dir`. Then removes the leftovers of interrupted processes.
///
/// If the file system has no locks, two processes may both draw. They write the same bytes, and each file is
/// complete.
fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    // Check this before opening: opening a named pipe would block until it has a reader.
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let why =
            "the name of the lock belongs to something that is not a file: delete it, or give another folder";
        return Err(Error::new(ErrorKind::Data, why).at_path(path));
    }
    let file = File::options().create(true).write(true).truncate(false).open(&path);
    let file = file.map_err(|error| cannot("cannot write in the folder", error, dir))?;
    match file.lock() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
        Err(error) => return Err(cannot("cannot lock the file", error, &path)),
    }
    let entries = fs::read_dir(dir).map_err(|error| cannot("cannot list the folder", error, dir))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PART) {
            // If a leftover cannot be removed, it only takes space.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(Some(file))
}

/// Writes a file under another name in the same folder, syncs it to disk, then renames it.
fn write(dir: &Path, name: &str, content: &[Vec<u8>]) -> io::Result<()> {
    let create = |path: &Path| File::options().write(true).create_new(true).open(path);
    let mut part = tempfile::Builder::new().prefix(PART).make_in(dir, create)?;
    for bytes in content {
        part.write_all(bytes)?;
    }
    part.as_file().sync_all()?;
    part.persist(dir.join(name))?;
    // The new name is on disk only after the folder has been synced.
    system::sync_folder(dir)
}

fn cannot(what: &str, error: io::Error, path: &Path) -> Error {
    Error::new(ErrorKind::Data, what).with_source(error).at_path(path)
}
