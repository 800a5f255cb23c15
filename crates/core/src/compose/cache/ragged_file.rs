//! Rows with ragged fields in a file, each with a checksum, read and written by position.
//!
//! Behind the header is an index, with a place for each of the first samples: where the row is, its length,
//! and a checksum of both and of the row, keyed by the set and the id. The rows follow, in the order in which
//! they came. As with rows of one size, a place that does not fit its row is a sample that is not there, so
//! nothing needs to be repaired, and several processes may share a file.
//!
//! Room for rows is taken at the end of the file, under a lock. A process that finds it locked does not wait:
//! it keeps nothing this time.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::disk::{self, HEADER, Kind, read_at, write_at};
use super::ragged::{Encoded, decode};
use crate::{Context, Dataset, Error, Fingerprint, Result, Row};

/// Bytes of a place in the index: checksum, offset and length.
const PLACE: usize = 3 * size_of::<u64>();

/// Bytes that a process takes at once, for the rows that it will write.
const ROOM: u64 = 1 << 20;

/// Rows of the first samples of a set, as many as fit a number of bytes.
pub(super) struct RaggedFile {
    file: File,
    path: PathBuf,
    /// The key of the checksums.
    key: Fingerprint,
    budget: u64,
    /// The most bytes of a row.
    most: u64,
    /// The first byte behind the index.
    rows_at: u64,
    /// The room that this process has taken and not used.
    room: Mutex<(u64, u64)>,
    write_error: OnceLock<Error>,
}

impl RaggedFile {
    /// How many of `len` samples have a place in the index, which takes at most half of `budget`.
    pub(super) fn places(len: u64, budget: u64) -> u64 {
        len.min(budget.saturating_sub(HEADER) / 2 / PLACE as u64)
    }

    /// Opens the cache of the first `kept` samples of `set` at `path`, or makes it anew.
    pub(super) fn open(path: &Path, set: &dyn Dataset, kept: u64, budget: u64) -> Result<Self> {
        // Cannot overflow: the index fits the budget.
        let rows_at = HEADER + kept * PLACE as u64;
        let length = (rows_at, |found| found >= rows_at);
        let (file, key) = disk::open((path, Kind::Ragged), set, kept, length)?;
        let most = (set.spec().sample_bytes() as u64).saturating_add(Encoded::lengths(set.spec()));
        let (path, room, write_error) = (path.to_path_buf(), Mutex::new((0, 0)), OnceLock::new());
        Ok(Self { file, path, key, budget, most, rows_at, room, write_error })
    }

    /// Whether the index names a row of sample `id`, good or not.
    pub(super) fn has(&self, id: u64) -> bool {
        self.place(id).is_some()
    }

    pub(super) fn get(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        let Some((checksum, offset, len)) = self.place(id) else { return false };
        // A damaged length must not lead to an allocation that is larger than the file.
        let end = offset.checked_add(len).filter(|_| len <= self.most && offset >= self.rows_at);
        let Ok(file) = self.file.metadata() else { return false };
        if end.is_none_or(|end| end > file.len()) {
            return false;
        }
        let Encoded(bytes) = context.scratch();
        bytes.resize(len as usize, 0);
        // A file that was cut, or cannot be read, is a row that is not there.
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

    /// Room for `bytes`; `None` where the budget is used up, or another process is taking room.
    fn take_room(&self, bytes: u64) -> io::Result<Option<u64>> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, end) = *room;
        if bytes <= end - first {
            room.0 += bytes;
            return Ok(Some(first));
        }
        // A long row has room of its own, so that what is left of the other is not given up.
        if bytes > ROOM / 4 {
            return Ok(self.grow(bytes, bytes)?.map(|(first, _)| first));
        }
        let Some((first, end)) = self.grow(bytes, ROOM)? else { return Ok(None) };
        *room = (first + bytes, end);
        Ok(Some(first))
    }

    /// Makes the file longer, by `least` to `most` bytes; returns where they are.
    fn grow(&self, least: u64, most: u64) -> io::Result<Option<(u64, u64)>> {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Without locks two processes may take the same room. The checksums of their rows tell.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let grown = self.file.metadata().and_then(|file| {
            let first = file.len().max(self.rows_at);
            let left = self.budget.saturating_sub(first);
            if left < least {
                return Ok(None);
            }
            // A process must not take all that is left for others.
            let bytes = most.min(left / 8).max(least);
            self.file.set_len(first + bytes)?;
            Ok(Some((first, first + bytes)))
        });
        // Fails where there was no lock.
        let _ = self.file.unlock();
        grown
    }

    /// Gives back the room that was not used, if nobody has taken more behind it.
    fn give_back(&self) {
        let (first, end) = *self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if first < end && self.file.try_lock().is_ok() {
            if self.file.metadata().is_ok_and(|file| file.len() == end) {
                // Otherwise the room is lost, no more.
                let _ = self.file.set_len(first);
            }
            let _ = self.file.unlock();
        }
    }

    /// The checksum of a row; never 0, which stands for a row that was not written.
    fn checksum(&self, id: u64, offset: u64, row: &[u8]) -> u64 {
        self.key.number(id).number(offset).bytes(row).value().max(1)
    }
}

impl Drop for RaggedFile {
    fn drop(&mut self) {
        self.give_back();
    }
}
