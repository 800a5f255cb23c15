//! A checkpoint in a file, which is either the old one or the new one whenever the machine stops.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{BadSampleReport, Cursor, Error, ErrorKind, Fingerprint, Result};

use super::Checkpoint;

/// The first bytes of the file.
const MAGIC: &[u8] = b"feedline checkpoint 1\n";
/// Bytes of the checksum at the end of the file.
const CHECKSUM: usize = 8;

/// Distinguishes the temporary files of one process.
static SAVED: AtomicU64 = AtomicU64::new(0);

impl Checkpoint {
    /// Saves the checkpoint in the file at `path`, in place of a file that is there.
    ///
    /// The new file is complete on the disk before it gets its name, so whenever the process or the machine
    /// stops, `path` is the old file or the new one. Each rank saves a file of its own. Blocks until the disk
    /// has the file.
    ///
    /// ```
    /// use feedline::{Checkpoint, InMemory, Loader};
    /// # let path = std::env::temp_dir().join(format!("feedline-doc-checkpoint-{}", std::process::id()));
    /// let numbers = || InMemory::new().field("x", [], (0..100_u8).collect::<Vec<_>>());
    /// let mut loader = Loader::builder(numbers()?).batch_size(8).shuffle(7).build_host()?;
    /// loader.epoch(0)?.next().transpose()?;
    /// loader.checkpoint()?.save(&path)?;
    ///
    /// let saved = Checkpoint::load(&path)?;
    /// let mut loader = Loader::builder(numbers()?).batch_size(8).shuffle(7).build_host()?;
    /// assert_eq!(loader.resume(saved.cursor)?.count(), 12);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Data` if the file cannot be written; the old file stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let cannot = |error| data("cannot save the checkpoint").with_source(error).at_path(path);
        let Some(name) = path.file_name() else {
            return Err(data("this is not the name of a file: give the path of the checkpoint").at_path(path));
        };
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let number = SAVED.fetch_add(1, Ordering::Relaxed);
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        let temporary = folder.join(temporary);
        write(&self.to_bytes(), &temporary, path).map_err(|error| {
            // If it is left behind, it is not a checkpoint.
            let _ = fs::remove_file(&temporary);
            cannot(error)
        })?;
        sync_folder(folder).map_err(cannot)
    }

    /// Loads the checkpoint that [`save`](Self::save) wrote. Blocks on the file.
    ///
    /// # Errors
    /// `Data` if there is no file, it is not a checkpoint, or it is damaged; `Cursor` for a cursor of a
    /// version that this feedline does not read. Names the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        read(path).and_then(|bytes| Self::from_bytes(&bytes)).map_err(|error| error.at_path(path))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [MAGIC, &self.cursor.to_bytes()].concat();
        self.bad_sample_report.write_to(&mut bytes);
        let checksum = Fingerprint::new().bytes(&bytes).value();
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || data("the checkpoint is damaged: its checksum does not match; load an older one");
        let cut = || data(format!("the checkpoint is damaged: it ends after {} bytes", bytes.len()));
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or_else(cut)?;
        let rest = content.get(MAGIC.len()..).ok_or_else(cut)?;
        let (cursor, report) = rest.split_at_checked(Cursor::BYTES).ok_or_else(cut)?;
        if Fingerprint::new().bytes(content).value() != u64::from_le_bytes(*checksum) {
            return Err(damaged());
        }
        let cursor = Cursor::from_bytes(cursor)?;
        let bad_sample_report = BadSampleReport::read_from(report).ok_or_else(damaged)?;
        Ok(Self { cursor, bad_sample_report })
    }
}

/// Writes `bytes` to the disk, and then gives the file its name.
fn write(bytes: &[u8], temporary: &Path, path: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)
}

/// Writes the names of a folder to the disk. Some systems have no such call for folders.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => data("there is no checkpoint: check the path"),
        _ => data("cannot read the checkpoint").with_source(error),
    };
    // Before opening it: to open a pipe blocks.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(data("this is not a file: give the path of a checkpoint"));
    }
    let mut file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut bytes).map_err(cannot)?;
    if !MAGIC.starts_with(&bytes) {
        return Err(data("this file is not a checkpoint that Checkpoint::save wrote"));
    }
    file.read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

fn data(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, why)
}
