//! The files of a run: written whole or not at all, read only where they are regular files.

use std::fs::File;
use std::io::{self, ErrorKind as Io, Write};
use std::path::{Path, PathBuf};

use feedline::{Error, ErrorKind, Result};
use tempfile::NamedTempFile;

/// The beginning of the name of an unfinished file. It lies in the folder of the file that it is to become.
const PART: &str = ".mlp-part-";

/// Attempts to make an unfinished file, each with another name.
const ATTEMPTS: usize = 16;

/// Where a file is to be written.
#[derive(Debug)]
pub struct Output {
    what: &'static str,
    given: PathBuf,
    /// Without symbolic links: a link stays, and the file it leads to is replaced.
    target: PathBuf,
}

impl Output {
    /// Checks that a file can be written at `path`, so that this is known before hours of training, and
    /// removes what an interrupted run has left in that folder.
    ///
    /// # Errors
    /// `Data` for a path that cannot be a regular file: a folder, a device, a name that is too long, a folder
    /// that cannot be written.
    pub fn new(what: &'static str, path: &Path) -> Result<Self> {
        let refuse = |why: io::Error| {
            let message =
                format!("cannot write the {what}, give a path to a file in a folder that can be written");
            Error::new(ErrorKind::Data, message).caused_by(why).at_path(path)
        };
        let target = resolve(path).map_err(refuse)?;
        let folder = folder_of(&target);
        // This file has no name: nothing is left of it, however the process ends.
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

    /// Refuses a path that leads to `other`, which must stay.
    ///
    /// # Errors
    /// `Config` that names the file.
    pub fn spares(&self, path: &Path, other: &str) -> Result<()> {
        if self.target != path && path.canonicalize().map_or(true, |path| path != self.target) {
            return Ok(());
        }
        let why = format!("the {} would replace {other}: give another path", self.what);
        Err(Error::new(ErrorKind::Config, why).at_path(&self.given))
    }

    /// Writes the file: first under another name, to the disk, and then in its place. Other processes may
    /// write the same path meanwhile: the file is always a whole one.
    ///
    /// # Errors
    /// `Data` when it cannot be written; then the old file is there as it was, and nothing else.
    pub fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.try_replace(bytes).map_err(|error| {
            Error::new(ErrorKind::Data, format!("cannot write the {}", self.what))
                .caused_by(error)
                .at_path(&self.given)
        })
    }

    fn try_replace(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = folder_of(&self.target);
        let mut part = new_part(folder)?;
        part.write_all(bytes)?;
        part.as_file().sync_all()?;
        part.persist(&self.target)?;
        // The new name is on the disk only when the folder is.
        File::open(folder)?.sync_all()
    }
}

/// Opens a regular file to read; returns its length too.
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Asked before opening: to open a named pipe would wait for its writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let file = File::open(path)?;
    // Of the file that is open: another process may have replaced it meanwhile.
    let len = file.metadata()?.len();
    Ok((file, len))
}

/// The path of the file that is written, without symbolic links.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.metadata() {
        Ok(there) if there.is_file() => path.canonicalize(),
        Ok(_) => Err(io::Error::other("this is no file")),
        Err(error) if error.kind() != Io::NotFound => Err(error),
        Err(_) if path.is_symlink() => Err(io::Error::other("this is a symbolic link to nothing")),
        Err(_) => {
            let name = path.file_name().ok_or_else(|| io::Error::other("this is no file"))?;
            Ok(folder_of(path).canonicalize()?.join(name))
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An unfinished file, locked for as long as it is open: what is not locked was left by a process that has
/// ended.
fn new_part(folder: &Path) -> io::Result<NamedTempFile> {
    // Not `tempfile`'s own way to create it: the file gets the permissions of any other.
    let create = |path: &Path| File::options().write(true).create_new(true).open(path);
    for _ in 0..ATTEMPTS {
        let part = tempfile::Builder::new().prefix(PART).make_in(folder, create)?;
        match part.as_file().try_lock() {
            Ok(()) => {}
            // Nobody can lock it here, so nobody takes it for a leftover.
            Err(std::fs::TryLockError::Error(_)) => return Ok(part),
            Err(std::fs::TryLockError::WouldBlock) => continue,
        }
        // Another process may have taken it for a leftover before it was locked.
        if part.path().exists() {
            return Ok(part);
        }
    }
    Err(io::Error::other("other processes remove the unfinished file"))
}

/// Removes unfinished files of processes that have ended. One that cannot be removed only takes room.
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
