//! Rows in a file, each with a checksum, read and written by position.
//!
//! The header holds fingerprint, length and fields of the set, and its own checksum. It is followed by one
//! entry per cached sample: the checksum of the row, keyed by the set and the id, and the row. The checksum
//! of an entry that is missing, partial or overwritten does not match; its sample is read from the set and
//! written again. So the file needs no closing, locking or repair: a killed run leaves a valid file, and
//! several processes may share one.
//!
//! The file is not mapped: that would be `unsafe`, because another process may cut it
//! (`docs/decisions/files.md`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::disk::{self, HEADER, Kind};
use super::encoded::{Encoded, decode};
use crate::compose::config;
use crate::system::{read_at, write_at};
use crate::{Context, Dataset, Error, Fingerprint, Result, Row, Spec};

/// Bytes of the checksum before each row.
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

impl FileRows {
    /// Bytes of one sample of `spec` in the file.
    pub(super) fn bytes_per_row(spec: &Spec) -> Result<u64> {
        let bytes = (spec.sample_bytes() as u64).checked_add(CHECKSUM as u64);
        bytes.ok_or_else(|| config("a sample is larger than the address space".to_owned()))
    }

    /// Opens or creates the cache of the first `kept` samples of `set` at `path`.
    pub(super) fn open(path: &Path, set: &dyn Dataset, kept: u64) -> Result<Self> {
        let row = Self::bytes_per_row(set.spec())?;
        let len = kept.checked_mul(row).and_then(|bytes| bytes.checked_add(HEADER));
        let len = len.ok_or_else(|| config("a cache file of more than 2^64 bytes".to_owned()))?;
        let (file, key) = disk::open((path, Kind::Fixed), set, kept, (len, |found| found == len))?;
        let row_bytes = set.spec().sample_bytes();
        Ok(Self { file, path: path.to_path_buf(), key, row_bytes, write_error: OnceLock::new() })
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        let Encoded(place) = context.scratch();
        place.resize(CHECKSUM + self.row_bytes, 0);
        // A failed read is a miss.
        if read_at(&self.file, place, self.offset(id)).is_err() {
            return false;
        }
        let (checksum, bytes) = place.split_at(CHECKSUM);
        // An entry of zeros was never written.
        checksum != [0; CHECKSUM] && checksum == self.checksum(id, bytes) && decode(bytes, row)
    }

    pub(super) fn put(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) {
        if self.write_error.get().is_some() {
            return;
        }
        let encoded: &mut Encoded = context.scratch();
        encoded.0.clear();
        encoded.0.resize(CHECKSUM, 0);
        if !encoded.add(row) {
            return;
        }
        let place = &mut encoded.0;
        let checksum = self.checksum(id, &place[CHECKSUM..]);
        place[..CHECKSUM].copy_from_slice(&checksum);
        if let Err(error) = write_at(&self.file, place, self.offset(id)) {
            let error = disk::cannot_keep(error, &self.path);
            let _ = self.write_error.set(error);
        }
    }

    pub(super) fn write_error(&self) -> Option<&Error> {
        self.write_error.get()
    }

    fn offset(&self, id: u64) -> u64 {
        HEADER + id * (CHECKSUM + self.row_bytes) as u64
    }

    /// The checksum of a row; never 0, which marks an unwritten entry.
    fn checksum(&self, id: u64, row: &[u8]) -> [u8; CHECKSUM] {
        self.key.number(id).bytes(row).value().max(1).to_le_bytes()
    }
}
