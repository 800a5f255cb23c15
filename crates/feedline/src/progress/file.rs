//! Checkpoints in files. Whenever the machine stops, the file is the old or the new one, never a mixture.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use feedline_core::{Cursor, Error, ErrorKind, Fingerprint, Result};

use super::Checkpoint;

/// The first bytes of the file.
const MAGIC: &[u8] = b"feedline checkpoint 1\n";
/// Bytes of the checksum at the end of the file.
const CHECKSUM: usize = 8;

/// Attempts to find an unused name for the temporary file.
const ATTEMPTS: u32 = 64;

impl Checkpoint {
    /// Saves the checkpoint in the file at `path`; replaces an existing file.
    ///
    /// The new file is complete on the disk before it gets its name, so whenever the process or the machine
    /// stops, `path` is the old file or the new one. Each rank saves its own file. Blocks until the file is
    /// on the disk.
    ///
    /// ```
    /// use feedline::{Checkpoint, InMemory, Loader};
    /// # let path = std::env::temp_dir().join(format!("feedline-doc-checkpoint-{}", std::process::id()));
    /// let numbers = || InMemory::new().field("x", [], (0..100_u8).collect::<Vec<_>>());
    /// let mut loader = Loader::builder(numbers()?).batch_size(8).shuffle().seed(7).build_host()?;
    /// loader.epoch(0)?.next().transpose()?;
    /// loader.checkpoint()?.save(&path)?;
    ///
    /// let saved = Checkpoint::load(&path)?;
    /// let mut loader = Loader::builder(numbers()?).batch_size(8).shuffle().seed(7).build_host()?;
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
        let (file, temporary) = temporary(folder, name, random).map_err(cannot)?;
        write(&self.to_bytes(), file, &temporary, path).map_err(|error| {
            // This call created the file. If it cannot be removed, it does no harm.
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
        let bad_sample_report = feedline_core::BadSampleReport::read_from(report).ok_or_else(damaged)?;
        Ok(Self { cursor, bad_sample_report })
    }
}

/// Creates a new file in `folder`, called by `name` and a number from `random`. Never uses an existing file:
/// another process may be writing it, or a kill may have left it.
fn temporary(folder: &Path, name: &OsStr, mut random: impl FnMut() -> u64) -> io::Result<(File, PathBuf)> {
    let mut attempts = 0..ATTEMPTS;
    loop {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{:016x}.tmp", random()));
        let path = folder.join(temporary);
        match File::options().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts.next().is_some() => {}
            made => return made.map(|file| (file, path)),
        }
    }
}

/// A random number. Process ids would not do: in containers every process has the same one.
fn random() -> u64 {
    // `RandomState` has random keys, different for each call.
    RandomState::new().hash_one(std::process::id())
}

/// Writes `bytes` to the disk, and then gives the file its name.
fn write(bytes: &[u8], mut file: File, temporary: &Path, path: &Path) -> io::Result<()> {
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
    // Checked first: opening a pipe blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_is_never_one_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = || [7, 7, 9, 9, 9, 11].into_iter();
        let (mut first, mut second) = (numbers(), numbers());
        let (file, path) = temporary(folder.path(), OsStr::new("a"), || first.next().unwrap()).unwrap();
        assert_eq!(path.file_name().unwrap(), ".a.0000000000000007.tmp");
        write(b"of another process", file, &path, &path).unwrap();
        let (_, other) = temporary(folder.path(), OsStr::new("a"), || second.next().unwrap()).unwrap();
        assert_eq!(other.file_name().unwrap(), ".a.0000000000000009.tmp");
        assert_eq!(fs::read(&path).unwrap(), b"of another process");
        // It is an error if all names are taken; the existing files stay.
        let error = temporary(folder.path(), OsStr::new("a"), || 7).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"of another process");
        assert_ne!(random(), random());
    }
}
