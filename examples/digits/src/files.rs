//! The four IDX files of the set. Each is written completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use feedline_core::{DType, ElementType, Error, ErrorKind, Field, Result, Values};
use feedline_datasets::{IdxFile, OpenOptions, Split, open_with};

use crate::set::{self, count};
use crate::{IMAGE_BYTES, SIDE, draw};

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
    const ALL: [Self; 4] = [
        Self::Images(Split::Train),
        Self::Labels(Split::Train),
        Self::Images(Split::Test),
        Self::Labels(Split::Test),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Images(Split::Train) => "train-images-idx3-ubyte",
            Self::Labels(Split::Train) => "train-labels-idx1-ubyte",
            Self::Images(_) => "t10k-images-idx3-ubyte",
            Self::Labels(_) => "t10k-labels-idx1-ubyte",
        }
    }

    /// The number of images to draw for this file.
    fn images(self) -> u64 {
        match self {
            Self::Images(split) => count(split) as u64,
            Self::Labels(_) => 0,
        }
    }

    /// The paths under which readers of IDX find this file in `dir`.
    fn paths(self, dir: &Path) -> [PathBuf; 4] {
        let (name, dotted) = (self.name(), self.name().replace("-idx", ".idx"));
        [name.into(), dotted.clone(), format!("{name}.gz"), dotted + ".gz"].map(|name| dir.join(name))
    }
}

/// Makes sure that `dir` holds the set as four plain IDX files, which [`Idx::open_train`] and
/// [`Idx::open_test`] read.
///
/// [`Idx::open_train`]: feedline_datasets::Idx::open_train
/// [`Idx::open_test`]: feedline_datasets::Idx::open_test
///
/// Existing files are kept. Missing files are drawn with one thread per processor (about a second on two).
/// This thread calls `progress` with the number of images drawn so far and in total. If nothing is drawn, it
/// is not called. Each file appears complete, by a rename. If a run is interrupted, the next run removes its
/// leftovers.
///
/// If another process writes the same folder, blocks until it has finished, and then uses its files.
///
/// ```no_run
/// use feedline_datasets::Idx;
/// let progress = &mut |done, total| eprint!("\rdrawing {done} of {total}");
/// feedline_digits::ensure("datasets/digits".as_ref(), progress)?;
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
        let paths = part.paths(dir);
        let exists = |path: &&PathBuf| path.symlink_metadata().is_ok();
        let Some(path) = paths.iter().find(exists) else {
            missing.push(part);
            continue;
        };
        let foreign = Error::new(
            ErrorKind::Data,
            "this is not the file of the digits set: give another folder, or delete it to have it drawn",
        );
        if !is_ours(part, path).map_err(|error| foreign.clone().with_source(error))? {
            return Err(foreign.at_path(path));
        }
    }
    Ok(missing)
}

/// Whether the IDX file at `path` is this part of the set. Compares all labels and some images.
fn is_ours(part: Part, path: &Path) -> Result<bool> {
    let (Part::Images(split) | Part::Labels(split)) = part;
    let (labels, count) = (set::labels(split), count(split));
    if let Part::Labels(_) = part {
        let file = IdxFile::open(path)?;
        return Ok(file.dtype() == DType::U8 && file.dims() == [count] && file.data() == Some(&labels));
    }
    // Read image by image, because few are compared.
    let file = open_with(path, &OpenOptions { memory_limit: 0, ..OpenOptions::default() })?;
    let image = Field::fixed("array", ElementType::Number(DType::U8), &[SIDE, SIDE]);
    if file.spec().fields() != [image] || file.len() != count as u64 {
        return Ok(false);
    }
    let (mut drawn, mut found) = ([0; IMAGE_BYTES], Values::default());
    for id in (0..count).step_by(count / SAMPLES) {
        draw(split, id as u64, labels[id], &mut drawn);
        found.read(&*file, id as u64)?;
        if found.fields()[0].bytes != drawn {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes of a file.
fn content(part: Part, threads: usize, drawn: &mut dyn FnMut(usize)) -> Result<[Vec<u8>; 2]> {
    Ok(match part {
        Part::Images(split) => [header(&[count(split), SIDE, SIDE]), set::images(split, threads, drawn)?],
        Part::Labels(split) => [header(&[count(split)]), set::labels(split)],
    })
}

/// The header of an IDX file of bytes: two zeros, the code of `u8`, the number of dimensions, and each.
fn header(dims: &[usize]) -> Vec<u8> {
    let mut header = vec![0, 0, 0x08, dims.len() as u8];
    dims.iter().for_each(|&dim| header.extend((dim as u32).to_be_bytes()));
    header
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
    // The new name is on disk only after the folder has been synced, which Windows cannot.
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn cannot(what: &str, error: io::Error, path: &Path) -> Error {
    Error::new(ErrorKind::Data, what).with_source(error).at_path(path)
}
