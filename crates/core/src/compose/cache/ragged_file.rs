//! Rows with ragged fields in a file, each with a checksum, read and written by position.
//!
//! The header is followed by an index, with an entry for each of the first samples: offset and length of the
//! row, and a checksum of both and of the row, keyed by the set and the id. The rows follow in the order in
//! which they were written. As with rows of one size, an entry that does not match its row is a miss, so the
//! file needs no repair, and several processes may share one.
//!
//! A process reserves space for rows at the end of the file, under a lock. If the file is locked, it does not
//! wait, and does not cache the row.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::disk::{self, HEADER, Kind};
use super::encoded::{Encoded, decode};
use crate::system::{read_at, write_at};
use crate::{Context, Dataset, Error, Fingerprint, Result, Row};

/// Bytes of an entry of the index: checksum, offset and length.
const PLACE: usize = 3 * size_of::<u64>();

/// Bytes that a process reserves at a time, for several rows.
const ROOM: u64 = 1 << 20;

/// Rows of the first samples of a set, up to a number of bytes.
pub(super) struct RaggedFile {
    file: File,
    path: PathBuf,
    /// The key of the checksums.
    key: Fingerprint,
    budget: u64,
    /// Max bytes of a row.
    max_row: u64,
    /// End of the index.
    rows_at: u64,
    /// Start and end of the reserved space that is not used yet.
    room: Mutex<(u64, u64)>,
    write_error: OnceLock<Error>,
}

impl RaggedFile {
    /// Number of entries in the index of `len` samples. The index takes up to half of `budget`.
    pub(super) fn places(len: u64, budget: u64) -> u64 {
        len.min(budget.saturating_sub(HEADER) / 2 / PLACE as u64)
    }

    /// Opens or creates the cache of the first `kept` samples of `set` at `path`.
    pub(super) fn open(path: &Path, set: &dyn Dataset, kept: u64, budget: u64) -> Result<Self> {
        // No overflow: the index fits the budget.
        let rows_at = HEADER + kept * PLACE as u64;
        let length = (rows_at, |found| found >= rows_at);
        let (file, key) = disk::open((path, Kind::Ragged), set, kept, length)?;
        let max_row = (set.spec().sample_bytes() as u64).saturating_add(Encoded::lengths(set.spec()));
        let (path, room, write_error) = (path.to_path_buf(), Mutex::new((0, 0)), OnceLock::new());
        Ok(Self { file, path, key, budget, max_row, rows_at, room, write_error })
    }

    /// Whether the index has an entry of sample `id`, valid or not.
    pub(super) fn has(&self, id: u64) -> bool {
        self.place(id).is_some()
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        let Some((checksum, offset, len)) = self.place(id) else { return false };
        // A damaged length must not cause an allocation larger than the file.
        let end = offset.checked_add(len).filter(|_| len <= self.max_row && offset >= self.rows_at);
        let Ok(file) = self.file.metadata() else { return false };
        if end.is_none_or(|end| end > file.len()) {
            return false;
        }
        let Encoded(bytes) = context.scratch();
        bytes.resize(len as usize, 0);
        // A failed read is a miss.
        if read_at(&self.file, bytes, offset).is_err() {
            return false;
        }
        checksum == self.checksum(id, offset, bytes) && decode(bytes, row)
    }

    pub(super) fn put(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) {
        let encoded: &mut Encoded = context.scratch();
        encoded.0.clear();
        if self.write_error.get().is_some() || !encoded.add(row) {
            return;
        }
        let bytes = &encoded.0;
        let written = self.take_room(bytes.len() as u64).and_then(|offset| {
            let Some(offset) = offset else { return Ok(()) };
            write_at(&self.file, bytes, offset)?;
            let place = [self.checksum(id, offset, bytes), offset, bytes.len() as u64].map(u64::to_le_bytes);
            write_at(&self.file, place.as_flattened(), self.index_at(id))
        });
        if let Err(error) = written {
            let _ = self.write_error.set(disk::cannot_keep(error, &self.path));
        }
    }

    pub(super) fn write_error(&self) -> Option<&Error> {
        self.write_error.get()
    }

    /// The checksum, the offset and the length of sample `id` in the index, if it was written.
    fn place(&self, id: u64) -> Option<(u64, u64, u64)> {
        let mut place = [[0; size_of::<u64>()]; 3];
        read_at(&self.file, place.as_flattened_mut(), self.index_at(id)).ok()?;
        let [checksum, offset, len] = place.map(u64::from_le_bytes);
        (checksum != 0).then_some((checksum, offset, len))
    }

    fn index_at(&self, id: u64) -> u64 {
        HEADER + id * PLACE as u64
    }

    /// Reserves `bytes`; `None` if the budget is used up or the file is locked.
    fn take_room(&self, bytes: u64) -> io::Result<Option<u64>> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, end) = *room;
        if bytes <= end - first {
            room.0 += bytes;
            return Ok(Some(first));
        }
        // A long row gets its own space, so that the rest of the reserved space is not lost.
        if bytes > ROOM / 4 {
            return Ok(self.grow(bytes, bytes)?.map(|(first, _)| first));
        }
        let Some((first, end)) = self.grow(bytes, ROOM)? else { return Ok(None) };
        *room = (first + bytes, end);
        Ok(Some(first))
    }

    /// Extends the file by `min` to `max` bytes; returns their start and end.
    fn grow(&self, min: u64, max: u64) -> io::Result<Option<(u64, u64)>> {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Without locks two processes may reserve the same space; the checksums detect that.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let grown = self.file.metadata().and_then(|file| {
            let first = file.len().max(self.rows_at);
            let left = self.budget.saturating_sub(first);
            if left < min {
                return Ok(None);
            }
            // Leaves space for other processes.
            let bytes = max.min(left / 8).max(min);
            self.file.set_len(first + bytes)?;
            Ok(Some((first, first + bytes)))
        });
        // Fails if there was no lock.
        let _ = self.file.unlock();
        grown
    }

    /// Returns the unused space, if no process has reserved more after it.
    fn give_back(&self) {
        let (first, end) = *self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if first < end && self.file.try_lock().is_ok() {
            if self.file.metadata().is_ok_and(|file| file.len() == end) {
                // If this fails, the space is lost.
                let _ = self.file.set_len(first);
            }
            let _ = self.file.unlock();
        }
    }

    /// The checksum of a row; never 0, which marks an unwritten entry.
    fn checksum(&self, id: u64, offset: u64, row: &[u8]) -> u64 {
        self.key.number(id).number(offset).bytes(row).value().max(1)
    }
}

impl Drop for RaggedFile {
    fn drop(&mut self) {
        self.give_back();
    }
}
