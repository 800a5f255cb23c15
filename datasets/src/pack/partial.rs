//! Files that get their final name when they are complete and synced to disk.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use feedline_core::{Error, Result};

use super::{cannot, data};
use crate::io::own_file;

/// The name of the file that a run locks while it packs into a folder.
const LOCK: &str = "_lock";

/// A file that is called `NAME.partial` until it is finished.
#[derive(Debug)]
pub(super) struct Partial {
    file: File,
    to: PathBuf,
    temporary: PathBuf,
}

impl Partial {
    /// Creates an empty file.
    pub(super) fn create(to: PathBuf) -> Result<Self> {
        let partial = Self::open(to)?;
        // An earlier run may have left bytes in the file.
        let emptied = partial.file.set_len(0);
        emptied.map_err(|error| cannot("write the file", error).at_path(&partial.temporary))?;
        Ok(partial)
    }

    /// Opens the file. Keeps the bytes of an earlier run.
    pub(super) fn open(to: PathBuf) -> Result<Self> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let temporary = to.with_file_name(name);
        let file = locked(&temporary)?;
        Ok(Self { file, to, temporary })
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Adds the file's path to an error.
    pub(super) fn name_in(&self, error: Error) -> Error {
        if error.path().is_some() { error } else { error.at_path(&self.temporary) }
    }

    /// Removes the file.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.temporary)
            .map_err(|error| cannot("remove the file", error).at_path(&self.temporary))
    }

    /// Gives the file its final name. Returns its length in bytes.
    pub(super) fn finish(self) -> Result<u64> {
        let io = |error| cannot("write the file", error).at_path(&self.to);
        self.file.sync_all().map_err(io)?;
        let bytes = self.file.metadata().map_err(io)?.len();
        fs::rename(&self.temporary, &self.to).map_err(io)?;
        // The name is an entry of the folder. So the folder must be synced too. Windows has no call for it.
        if let Some(folder) = self.to.parent().filter(|_| cfg!(unix)) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        }
        Ok(bytes)
    }
}

/// Keeps other runs out of a folder.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

pub(super) fn lock(folder: &Path) -> Result<Lock> {
    let path = folder.join(LOCK);
    let file = locked(&path)?;
    Ok(Lock { path, _file: file })
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A failure is harmless: the lock ends when the file is closed.
        let _ = fs::remove_file(&self.path);
    }
}

fn locked(path: &Path) -> Result<File> {
    let file = own_file::open_or_create(path);
    let file = file.map_err(|error| cannot("write the file", error).at_path(path))?;
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(data("another process is packing to this: wait until it is done").at_path(path))
        }
    }
}
