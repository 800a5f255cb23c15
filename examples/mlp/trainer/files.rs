//! The files of a run: writes are all or nothing, and only regular files are read.

use std::fs::File;
use std::io::{self, ErrorKind as Io, Write};
use std::path::{Path, PathBuf};

use feedline::{Error, ErrorKind, Result};
use tempfile::NamedTempFile;

/// The prefix of an unfinished file's name. The file is in the folder of its target.
const PART: &str = ".mlp-part-";

/// Attempts to create an unfinished file, each with another name.
const ATTEMPTS: usize = 16;

/// A file to be written.
#[derive(Debug)]
pub struct Output {
    what: &'static str,
    given: PathBuf,
    /// The path without symbolic links: a link is kept, and the file that it points to is replaced.
    target: PathBuf,
}

impl Output {
    /// Checks that a file can be written at `path`, before hours of training, and removes the leftovers of
    /// interrupted runs from its folder.
    ///
    /// # Errors
    /// `Data` for a path that cannot be a regular file: a folder, a device, a name that is too long, or
    /// a folder without write permission.
    pub fn new(what: &'static str, path: &Path) -> Result<Self> {
        let refuse = |why: io::Error| {
            let message =
                format!("cannot write the {what}, give a path to a file in a folder that can be written");
            Error::new(ErrorKind::Data, message).with_source(why).at_path(path)
        };
        let target = resolve(path).map_err(refuse)?;
        let folder = folder_of(&target);
        // This file has no name, so nothing is left of it however the process ends.
        tempfile::tempfile_in(folder).map_err(refuse)?;
        remove_leftovers(folder);
        Ok(Self { what, given: path.to_owned(), target })
    }

    /// The path as it was given.
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The file that is written, without symbolic links.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Refuses to replace `path`, which is `other`.
    ///
    /// # Errors
    /// `Config` naming the file.
    pub fn spares(&self, path: &Path, other: &str) -> Result<()> {
        if self.target != path && path.canonicalize().map_or(true, |path| path != self.target) {
            return Ok(());
        }
        let why = format!("the {} would replace {other}: give another path", self.what);
        Err(Error::new(ErrorKind::Config, why).at_path(&self.given))
    }

    /// Writes the file to disk under another name, then renames it. The file is always complete, even
    /// if other processes write the same path.
    ///
    /// # Errors
    /// `Data` if it cannot be written; then the old file is unchanged and nothing else is left.
    pub fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.try_replace(bytes).map_err(|error| {
            Error::new(ErrorKind::Data, format!("cannot write the {}", self.what))
                .with_source(error)
                .at_path(&self.given)
        })
    }

    fn try_replace(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = folder_of(&self.target);
        let mut part = new_part(folder)?;
        part.write_all(bytes)?;
        part.as_file().sync_all()?;
        part.persist(&self.target)?;
        // The new name is on disk only after the folder is.
        File::open(folder)?.sync_all()
    }
}

/// The path without symbolic links.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.metadata() {
        Ok(there) if there.is_file() => path.canonicalize(),
        Ok(_) => Err(io::Error::other("this is not a file")),
        Err(error) if error.kind() != Io::NotFound => Err(error),
        Err(_) if path.is_symlink() => Err(io::Error::other("this is a symbolic link to nothing")),
        Err(_) => {
            let name = path.file_name().ok_or_else(|| io::Error::other("this is not a file"))?;
            Ok(folder_of(path).canonicalize()?.join(name))
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An unfinished file, locked while it is open. A file that is not locked was left by a process that
/// has ended.
fn new_part(folder: &Path) -> io::Result<NamedTempFile> {
    // Not created by `tempfile` itself, so that the file gets the usual permissions.
    let create = |path: &Path| File::options().write(true).create_new(true).open(path);
    for _ in 0..ATTEMPTS {
        let part = tempfile::Builder::new().prefix(PART).make_in(folder, create)?;
        match part.as_file().try_lock() {
            Ok(()) => {}
            // No process can lock it here, so none treats it as a leftover.
            Err(std::fs::TryLockError::Error(_)) => return Ok(part),
            Err(std::fs::TryLockError::WouldBlock) => continue,
        }
        // Another process may have removed it as a leftover before it was locked.
        if part.path().exists() {
            return Ok(part);
        }
    }
    Err(io::Error::other("other processes remove the unfinished file"))
}

/// Removes unfinished files of processes that have ended. One that cannot be removed only takes space.
fn remove_leftovers(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PART)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && let Ok(file) = File::options().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
