//! Cache files: opened or created, read and written by position.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use crate::compose::config;
use crate::system::write_at;
use crate::{Dataset, Error, ErrorKind, Fingerprint, Result};

/// The first bytes of every cache file. The kind of the file and the version follow.
const MAGIC: &[u8; 14] = b"feedline cache";

/// The form of a cache file.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Rows of one size.
    Fixed,
    /// Rows with ragged fields.
    Ragged,
}

/// Attempts to create a partial file that other processes may remove.
const ATTEMPTS: u32 = 10;

/// Bytes of the header.
pub(super) const HEADER: u64 = 64;

/// Opens the cache file of the first `kept` samples of `set` at `path`. Creates it if it is missing, belongs
/// to another set, or has a length that `is_len` refuses. Returns it with the key of its checksums.
pub(super) fn open(
    (path, kind): (&Path, Kind),
    set: &dyn Dataset,
    kept: u64,
    (len, is_len): (u64, impl Fn(u64) -> bool),
) -> Result<(File, Fingerprint)> {
    let (header, key) = header(kind, set, kept)?;
    let file = match existing(path, &header, is_len)? {
        Some(file) => file,
        None => create(path, &header, len).map_err(|error| {
            let why = "cannot write the cache file: check the path, or give another";
            Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
        })?,
    };
    Ok((file, key))
}

/// The error of a failed write. Nothing more is cached after it.
pub(super) fn cannot_keep(error: io::Error, path: &Path) -> Error {
    let why = "cannot write to the cache file, so nothing more is kept: make room, and start again";
    Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
}

/// The header of a cache of `set`, and the key of its checksums.
fn header(kind: Kind, set: &dyn Dataset, kept: u64) -> Result<(Vec<u8>, Fingerprint)> {
    let fields = Fingerprint::new().spec(set.spec()).value();
    let fingerprint = Fingerprint::checked(|| set.fingerprint())?;
    let numbers = [fingerprint, fields, set.len(), kept, set.spec().sample_bytes() as u64];
    let mut header = MAGIC.to_vec();
    header.extend(match kind {
        Kind::Fixed => b" 1",
        Kind::Ragged => b"r1",
    });
    header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let key = Fingerprint::new().bytes(&header);
    header.extend(key.value().to_le_bytes());
    Ok((header, key))
}

/// The file at `path`, if it has this header and a valid length; `None` if it must be created.
///
/// Refuses a file that is not a cache: it may hold data of the user.
fn existing(path: &Path, header: &[u8], is_len: impl Fn(u64) -> bool) -> Result<Option<File>> {
    let refuse = |why: &str| Err(config(why.to_owned()).at_path(path));
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = "cannot open the cache file: check the path, or give another";
            return Err(Error::new(ErrorKind::Data, why).with_source(error).at_path(path));
        }
    };
    // Checked before opening the file: opening a named pipe blocks until it has a writer.
    if !metadata.is_file() {
        return refuse("the path of the cache file is not a file: give another");
    }
    let open = OpenOptions::new().read(true).write(true).open(path);
    let read = open.and_then(|mut file| {
        let mut found = Vec::with_capacity(header.len());
        file.by_ref().take(header.len() as u64).read_to_end(&mut found)?;
        Ok((file, found))
    });
    let (file, found) = read.map_err(|error| {
        let why = "cannot open the cache file: check its permissions, or give another path";
        Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
    })?;
    if !found.starts_with(&MAGIC[..MAGIC.len().min(found.len())]) {
        return refuse(
            "the file is not a cache of feedline, so it is left alone: delete it, or give another path",
        );
    }
    Ok((found == header && is_len(metadata.len())).then_some(file))
}

/// Creates an empty cache. It gets its name when its header is written; a process that uses an older file of
/// that name keeps it.
fn create(path: &Path, header: &[u8], len: u64) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let prefix = format!(".{}.part-", name.to_string_lossy());
    remove_leftovers(folder, &prefix);
    let part = new_part(folder, &prefix)?;
    write_at(part.as_file(), header, 0)?;
    part.as_file().set_len(len)?;
    let file = part.persist(path)?;
    // Fails if the file system has no locks.
    let _ = file.unlock();
    Ok(file)
}

/// A partial file, locked while it has this name: an unlocked one belongs to a process that has ended.
fn new_part(folder: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    // Not created by `tempfile` itself, so that the file gets the usual permissions.
    let create = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).open(path);
    for _ in 0..ATTEMPTS {
        let part = Builder::new().prefix(prefix).make_in(folder, create)?;
        match part.as_file().try_lock() {
            // Another process may have removed it as a leftover before it was locked.
            Ok(()) if part.path().exists() => return Ok(part),
            // Without locks no process removes it as a leftover.
            Err(TryLockError::Error(_)) => return Ok(part),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(io::Error::other("other processes remove the unfinished file"))
}

/// Removes partial files of ended processes. One that cannot be removed only takes space.
fn remove_leftovers(folder: &Path, prefix: &str) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
