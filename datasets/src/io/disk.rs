//! A file that is read on demand. Detects changes by other processes.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use feedline_core::{Error, Result, deadline};

use crate::error::data;
use crate::io::memory::{Memory, no_memory};
use crate::io::system::{Inode, read_exact_at, read_vec_at};

/// An open regular file, with a shared advisory lock if the file system supports locks.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    path: PathBuf,
    version: Version,
}

/// The properties that tell versions of a file apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    len: u64,
    /// The time of the last write. `None` if the file system does not state it. Any program can set it.
    written: Option<SystemTime>,
    inode: Inode,
}

impl Version {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), written: metadata.modified().ok(), inode: Inode::new(metadata) }
    }

    /// Checks that `now` is the same version of the same file.
    pub(crate) fn check(&self, now: &Self) -> Result<()> {
        if !self.inode.is_same_file(&now.inode) {
            return Err(data("another file has taken its place since it was opened: start again"));
        }
        if now.len < self.len {
            let why = format!(
                "the file was cut while it was in use: it had {} bytes and has {}; restore it",
                self.len, now.len
            );
            return Err(data(why).at_offset(now.len));
        }
        if now.len > self.len || now.written != self.written {
            let why = "the file was written to while it was in use: start again when its writer is done";
            return Err(data(why));
        }
        if self.inode.is_changed(&now.inode) {
            return Err(data(
                "the file was overwritten while it was in use and its write time put back, or its name or \
                 permissions were changed: leave it alone, and start again",
            ));
        }
        Ok(())
    }
}

/// A file that stays locked for this long counts as locked. A child that the writer has just forked holds the
/// writer's locks until it executes its program.
const LOCKED: Duration = Duration::from_secs(1);

impl DiskFile {
    /// Opens `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => data("no such file: check the path"),
            _ => data("cannot read the file").with_source(error),
        };
        // Check this before opening: opening a named pipe would block until it has a writer.
        let metadata = fs::metadata(path).map_err(cannot)?;
        if metadata.is_dir() {
            return Err(data("this is a folder: give the path of a file"));
        }
        if !metadata.is_file() {
            return Err(data("this is not a regular file: copy its content to a file first"));
        }
        let file = File::open(path).map_err(cannot)?;
        let until = deadline(LOCKED);
        // A file system without locks is no error. Some network file systems have no locks.
        while let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            if Instant::now() >= until {
                return Err(data("another process has locked the file to write it: wait until it is done"));
            }
            std::thread::sleep(LOCKED / 100);
        }
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.len() == 0 {
            return Err(data("the file is empty: fetch it again"));
        }
        Ok(Self { file, path: path.to_path_buf(), version: Version::new(&metadata) })
    }

    /// The length of the file when it was opened, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.version.len
    }

    /// The version of the file when it was opened.
    #[cfg(feature = "mds")]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Fills `to` with the bytes from `offset` on.
    ///
    /// The bytes are valid only if a later call of [`check_unchanged`](Self::check_unchanged) succeeds.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, to, offset).map_err(|error| self.unread(offset, error))
    }

    /// Reads `length` bytes from `offset` on, as [`read_at`](Self::read_at) does.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        read_vec_at(&self.file, offset, length).map_err(|error| self.unread(offset, error))
    }

    fn unread(&self, offset: u64, error: io::Error) -> Error {
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut(error),
            _ => data("cannot read the file").with_source(error),
        };
        error.at_path(&self.path).at_offset(offset)
    }

    /// Checks that the file has the same length, write time and change time as when it was opened.
    ///
    /// A check after a read covers that read, because a write sets the times before it changes a byte. File
    /// systems round the times to a few milliseconds. So a write this soon after the opening is not detected.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let now = self.file.metadata().map_err(|error| data("cannot read the file").with_source(error));
        now.and_then(|now| self.version.check(&Version::new(&now))).map_err(|error| error.at_path(&self.path))
    }

    /// A data set of the whole file.
    pub(crate) fn reader(&self) -> Result<&File> {
        let mut file = &self.file;
        file.rewind().map_err(|error| data("cannot read the file").with_source(error).at_path(&self.path))?;
        Ok(file)
    }

    /// The whole file, in memory.
    pub(crate) fn read_all(&self) -> Result<Memory> {
        let mut memory = Memory::new(self.len())?;
        self.read_at(0, memory.bytes_mut())?;
        self.check_unchanged()?;
        Ok(memory)
    }

    /// The error of a read that reached the end of the file too early.
    fn cut(&self, error: io::Error) -> Error {
        match self.check_unchanged() {
            Err(changed) => changed,
            Ok(()) => data("cannot read the file").with_source(error),
        }
    }
}

/// Reads the whole file at `path` into `to`. Returns the file's version. Fails if the file is changed
/// meanwhile.
pub(crate) fn read_whole(path: &Path, to: &mut Vec<u8>) -> Result<Version> {
    let cannot = |error| data("cannot read the file").with_source(error);
    let mut read = || {
        let mut file = File::open(path).map_err(cannot)?;
        let version = |file: &File| Ok(Version::new(&file.metadata().map_err(cannot)?));
        let before = version(&file)?;
        to.resize(usize::try_from(before.len).map_err(|_| no_memory(before.len))?, 0);
        let read = file.read_exact(to);
        before.check(&version(&file)?)?;
        read.map(|()| before).map_err(cannot)
    };
    read().map_err(|error| error.at_path(path))
}
