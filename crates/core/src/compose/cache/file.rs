//! Rows in a file, each with a checksum, read and written by position.
//!
//! The header names the set (fingerprint, length, fields) and has a checksum of its own. Behind it every kept
//! sample has a place: the checksum of the row, keyed by the set and the id, and the row. A place that
//! was not written yet, or not to its end, or that something else has overwritten, has a checksum that
//! does not fit; its sample is read from the set and written again. So nothing needs to be finished,
//! locked or repaired: a run that was killed leaves a good file, and several processes may share one.
//!
//! The file is not mapped: to map it would be `unsafe`, because another process may cut it
//! (`docs/decisions/files.md`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::compose::config;
use crate::{Context, Dataset, Error, ErrorKind, Fingerprint, Result, Row, Spec};

/// The first bytes of a cache file; the last one is the version.
const MAGIC: &[u8; 16] = b"feedline cache 1";

/// A number of bytes that every row begins with: its checksum.
const CHECKSUM: usize = size_of::<u64>();

/// The rows of the first samples of a set.
pub(super) struct FileRows {
    file: File,
    path: PathBuf,
    /// The key of the checksums: the header, without its own checksum.
    key: Fingerprint,
    row_bytes: usize,
    write_error: OnceLock<Error>,
}

/// A row with its checksum before it, kept by a worker.
#[derive(Default)]
struct Place(Vec<u8>);

impl FileRows {
    /// Bytes of the header.
    pub(super) const HEADER: u64 = 64;

    /// Bytes that a sample of `spec` takes.
    pub(super) fn bytes_per_row(spec: &Spec) -> Result<u64> {
        let bytes = (spec.sample_bytes() as u64).checked_add(CHECKSUM as u64);
        bytes.ok_or_else(|| config("a sample is larger than the address space".to_owned()))
    }

    /// Opens the cache of the first `kept` samples of `set` at `path`, or makes it anew.
    pub(super) fn open(path: &Path, set: &dyn Dataset, kept: u64) -> Result<Self> {
        let row = Self::bytes_per_row(set.spec())?;
        let len = kept.checked_mul(row).and_then(|bytes| bytes.checked_add(Self::HEADER));
        let len = len.ok_or_else(|| config("a cache file of more than 2^64 bytes".to_owned()))?;
        let (header, key) = header(set, kept);
        let cannot = |what: &str, error: io::Error| {
            let why = format!("cannot {what} the cache file: check the path, or give another");
            Error::new(ErrorKind::Data, why).caused_by(error).at_path(path)
        };
        let file = match existing(path, &header, len)? {
            Some(file) => file,
            None => create(path, &header, len).map_err(|error| cannot("write", error))?,
        };
        let row_bytes = set.spec().sample_bytes();
        Ok(Self { file, path: path.to_path_buf(), key, row_bytes, write_error: OnceLock::new() })
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        let Place(place) = context.scratch();
        place.resize(CHECKSUM + self.row_bytes, 0);
        // A file that was cut, or cannot be read, is a row that is not there.
        if read_at(&self.file, place, self.offset(id)).is_err() {
            return false;
        }
        let (checksum, mut rest) = place.split_at(CHECKSUM);
        // Most often a row is not there because it was never written.
        if checksum == [0; CHECKSUM] || checksum != self.checksum(id, rest) {
            return false;
        }
        for field in 0..row.spec().fields().len() {
            let (bytes, after) = rest.split_at(row.spec().fields()[field].row_bytes());
            row.write(field, bytes);
            rest = after;
        }
        true
    }

    pub(super) fn put(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) {
        if self.write_error.get().is_some() {
            return;
        }
        let Place(place) = context.scratch();
        place.clear();
        place.resize(CHECKSUM, 0);
        (0..row.spec().fields().len()).for_each(|field| place.extend_from_slice(row.bytes_mut(field)));
        let checksum = self.checksum(id, &place[CHECKSUM..]);
        place[..CHECKSUM].copy_from_slice(&checksum);
        if let Err(error) = write_at(&self.file, place, self.offset(id)) {
            let why = "cannot write to the cache file, so nothing more is kept: make room, and start again";
            let error = Error::new(ErrorKind::Data, why).caused_by(error).at_path(&self.path);
            let _ = self.write_error.set(error);
        }
    }

    pub(super) fn write_error(&self) -> Option<&Error> {
        self.write_error.get()
    }

    fn offset(&self, id: u64) -> u64 {
        Self::HEADER + id * (CHECKSUM + self.row_bytes) as u64
    }

    /// The checksum of a row; never zeros, which stand for a row that was not written.
    fn checksum(&self, id: u64, row: &[u8]) -> [u8; CHECKSUM] {
        self.key.number(id).bytes(row).value().max(1).to_le_bytes()
    }
}

/// The header of a cache of `set`, and the key of its checksums.
fn header(set: &dyn Dataset, kept: u64) -> (Vec<u8>, Fingerprint) {
    let fields = Fingerprint::new().spec(set.spec()).value();
    let numbers = [set.fingerprint(), fields, set.len(), kept, set.spec().sample_bytes() as u64];
    let mut header = MAGIC.to_vec();
    header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let key = Fingerprint::new().bytes(&header);
    header.extend(key.value().to_le_bytes());
    (header, key)
}

/// The file at `path`, if it has this header and length; `None` if it has to be made.
///
/// A file that is not a cache is refused: it may be somebody's data.
fn existing(path: &Path, header: &[u8], len: u64) -> Result<Option<File>> {
    let refuse = |why: &str| Err(config(why.to_owned()).at_path(path));
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = "cannot open the cache file: check the path, or give another";
            return Err(Error::new(ErrorKind::Data, why).caused_by(error).at_path(path));
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
        Error::new(ErrorKind::Data, why).caused_by(error).at_path(path)
    })?;
    let magic = &MAGIC[..MAGIC.len() - 1];
    if !found.starts_with(&magic[..magic.len().min(found.len())]) {
        return refuse(
            "the file is not a cache of feedline, so it is left alone: delete it, or give another path",
        );
    }
    Ok((found == header && metadata.len() == len).then_some(file))
}

/// Makes a cache without rows. It appears at `path` at once, with its header: a process that uses an older
/// file there keeps that one.
fn create(path: &Path, header: &[u8], len: u64) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let unique = Fingerprint::new()
        .number(std::process::id().into())
        .bytes(format!("{:?}", std::thread::current().id()).as_bytes());
    let new = folder.join(format!(".{}.{:016x}", name.to_string_lossy(), unique.value()));
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&new)?;
    let made = write_at(&open, header, 0)
        .and_then(|()| open.set_len(len))
        .and_then(|()| std::fs::rename(&new, path));
    if let Err(error) = made {
        let _ = std::fs::remove_file(&new);
        return Err(error);
    }
    Ok(open)
}

#[cfg(unix)]
fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

#[cfg(unix)]
fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, from, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, to, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                to = &mut to[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_at(file: &File, mut from: &[u8], mut offset: u64) -> io::Result<()> {
    while !from.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, from, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                from = &from[written..];
                offset += written as u64;
            }
        }
    }
    Ok(())
}
