//! Files of this library in a folder that other users may write to. A planted link is never followed.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

use crate::io::system::Inode;

/// Attempts to open a file that other processes may remove.
const ATTEMPTS: u32 = 10;

/// Opens a file to read it.
#[cfg(feature = "object-store")]
pub(crate) fn open(path: &Path) -> io::Result<File> {
    check(path, None)?;
    let file = File::open(path)?;
    check(path, Some(&file))?;
    Ok(file)
}

/// Opens a file to read and write it, without truncating it. Creates the file if there is none.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let existing = || -> io::Result<File> {
        check(path, None)?;
        let file = File::options().read(true).write(true).open(path)?;
        check(path, Some(&file))?;
        Ok(file)
    };
    for _ in 0..ATTEMPTS {
        match File::options().read(true).write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
        match existing() {
            // Another process has just removed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
    }
    Err(io::Error::other("other processes remove the file"))
}

/// Creates a file. Removes any file of that name first.
#[cfg(feature = "object-store")]
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let create = || File::options().read(true).write(true).create_new(true).open(path);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// Refuses a file that is not regular, has several names, or is not the file at `path`.
///
/// Call this before opening, because opening a pipe blocks. Call it again after opening, because a link may
/// have been created meanwhile.
fn check(path: &Path, file: Option<&File>) -> io::Result<()> {
    // This does not follow a link at `path`.
    let there = fs::symlink_metadata(path)?;
    let opened = file.map(File::metadata).transpose()?;
    let inode = Inode::new(&there);
    let is_there = |opened: &Metadata| opened.is_file() && Inode::new(opened).is_same_file(&inode);
    let is_own = !inode.has_other_names() && opened.as_ref().is_none_or(is_there);
    if there.is_file() && is_own {
        return Ok(());
    }
    Err(io::Error::other("this is a link or no regular file, and not written to: remove it"))
}
