//! A file that is read on demand, and that notices when another process changes it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use feedline_core::{Error, Result};

use crate::error::data;
use crate::memory::Memory;

/// An open regular file, with a shared advisory lock if the file system supports locks.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    path: PathBuf,
    len: u64,
    /// The time of the last write; `None` if the file system does not say.
    written: Option<SystemTime>,
}

impl DiskFile {
    /// Opens `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => data("no such file: check the path"),
            _ => data("cannot read the file").caused_by(error),
        };
        // Checked before opening: opening a named pipe would block until it has a writer.
        let metadata = fs::metadata(path).map_err(cannot)?;
        if metadata.is_dir() {
            return Err(data("this is a folder: give the path of a file"));
        }
        if !metadata.is_file() {
            return Err(data("this is not a regular file: copy its content to a file first"));
        }
        let file = File::open(path).map_err(cannot)?;
        match file.try_lock_shared() {
            // Missing locks are not an error: network file systems may not support them.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(data("another process has locked the file to write it: wait until it is done"));
            }
        }
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.len() == 0 {
            return Err(data("the file is empty: fetch it again"));
        }
        Ok(Self { file, path: path.to_path_buf(), len: metadata.len(), written: metadata.modified().ok() })
    }

    /// The length of the file when it was opened, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Fills `to` with the bytes from `offset` on.
    ///
    /// The bytes are valid only if a later [`check_unchanged`](Self::check_unchanged) succeeds.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, to, offset).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::UnexpectedEof => self.cut(),
                _ => data("cannot read the file").caused_by(error),
            };
            error.at_path(&self.path).at_offset(offset)
        })
    }

    /// Checks that the file still has the length and write time that it was opened with.
    ///
    /// A check after a read covers that read, because a write sets the time before it changes a byte.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata();
        let metadata =
            metadata.map_err(|error| data("cannot read the file").caused_by(error).at_path(&self.path))?;
        if metadata.len() < self.len {
            return Err(self.cut().at_path(&self.path).at_offset(metadata.len()));
        }
        if metadata.len() > self.len || metadata.modified().ok() != self.written {
            let why = "the file was written to while it was in use: start again when its writer is done";
            return Err(data(why).at_path(&self.path));
        }
        Ok(())
    }

    /// A reader of the whole file.
    pub(crate) fn reader(&self) -> Result<&File> {
        let mut file = &self.file;
        file.rewind().map_err(|error| data("cannot read the file").caused_by(error).at_path(&self.path))?;
        Ok(file)
    }

    /// The whole file, in memory.
    pub(crate) fn read_all(&self) -> Result<Memory> {
        let mut memory = Memory::new(self.len)?;
        self.read_at(0, memory.bytes_mut())?;
        self.check_unchanged()?;
        Ok(memory)
    }

    fn cut(&self) -> Error {
        let now = self.file.metadata().map_or(0, |metadata| metadata.len());
        data(format!(
            "the file was cut while it was in use: it had {} bytes and has {now}; restore it",
            self.len
        ))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, to, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                to = &mut to[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
