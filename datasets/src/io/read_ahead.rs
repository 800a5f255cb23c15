//! A worker's read-ahead buffer. Neighbours in a file are read together.

use std::sync::{Arc, Weak};

use feedline_core::Result;

use crate::error::data;
use crate::io::bytes::Content;
use crate::io::disk::DiskFile;

/// Bytes of the first read-ahead. They double while reads are sequential.
const MIN: usize = 4 << 10;
/// Max bytes of a read-ahead, unless a sample is longer.
const MAX: usize = 128 << 10;
/// Max bytes between two sequential reads: headers and padding.
const MAX_GAP: u64 = 4 << 10;

/// A worker's read-ahead buffer. It holds bytes of one file.
///
/// Each read checks that the file is unchanged. Reads in a [group](Self::group) are checked once, at the end
/// of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadAhead {
    /// The reference is weak, because a worker outlives the data sets that it reads.
    file: Weak<DiskFile>,
    /// Offset of the bytes in the file.
    start: u64,
    /// The number of valid bytes in `bytes`. The length of `bytes` never shrinks, so that a read need not
    /// zero it.
    held: usize,
    bytes: Vec<u8>,
    /// End of the last read.
    end: u64,
    /// Bytes of the last read-ahead. 0 if the last read was not sequential.
    stretch: usize,
    is_grouped: bool,
    /// Whether a read of the group has not been checked yet.
    is_unchecked: bool,
}

impl ReadAhead {
    /// Reads `len` bytes of `content` from `offset` on. The caller has checked that the file has these bytes.
    ///
    /// # Errors
    /// `Data` if the bytes cannot be read, or the file was changed since it was opened.
    pub(crate) fn read<'a>(&'a mut self, content: &'a Content, offset: u64, len: usize) -> Result<&'a [u8]> {
        if let Content::OnDisk(file) = content {
            self.read_file(file, offset, len)?;
            return Ok(&self.bytes[(offset - self.start) as usize..][..len]);
        }
        if let Some(bytes) = content.bytes() {
            let part =
                usize::try_from(offset).ok().and_then(|start| bytes.get(start..start.checked_add(len)?));
            return part.ok_or_else(|| data("these bytes are beyond the end of the file").at_offset(offset));
        }
        self.forget();
        let to = room(&mut self.bytes, len);
        content.read_at(offset, to)?;
        content.check_unchanged()?;
        Ok(to)
    }

    /// Begins a group. The reads are checked at [`end_group`](Self::end_group).
    pub(crate) fn group(&mut self) {
        self.is_grouped = true;
    }

    /// # Errors
    /// `Data` if a file of the group was changed since it was opened. The bytes that were read are then
    /// invalid.
    pub(crate) fn end_group(&mut self) -> Result<()> {
        self.is_grouped = false;
        self.check()
    }

    /// Reads the range into the buffer, unless the buffer holds it.
    fn read_file(&mut self, file: &Arc<DiskFile>, offset: u64, len: usize) -> Result<()> {
        let end = offset.saturating_add(len as u64);
        if self.holds(file, offset, len) {
            self.end = end;
            return Ok(());
        }
        let stretch = self.next_stretch(file, offset);
        let rest = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let read = len.max(stretch.min(rest));
        self.empty_for(file)?;
        file.read_at(offset, room(&mut self.bytes, read))?;
        if !self.is_of(file) {
            self.file = Arc::downgrade(file);
        }
        (self.start, self.held, self.end, self.stretch) = (offset, read, end, stretch);
        self.is_unchecked = true;
        if self.is_grouped && read == len { Ok(()) } else { self.check() }
    }

    fn is_of(&self, file: &Arc<DiskFile>) -> bool {
        self.file.as_ptr() == Arc::as_ptr(file)
    }

    /// Whether the buffer holds the range.
    fn holds(&self, file: &Arc<DiskFile>, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        self.is_of(file) && self.start <= offset && end <= self.start + self.held as u64
    }

    /// The number of bytes to read ahead from `offset` on. 0 if the read is not sequential.
    fn next_stretch(&self, file: &Arc<DiskFile>, offset: u64) -> usize {
        let follows = self.is_of(file) && offset.checked_sub(self.end).is_some_and(|gap| gap <= MAX_GAP);
        if follows { (self.stretch * 2).clamp(MIN, MAX) } else { 0 }
    }

    /// Empties the buffer before a read of `file`. If the grouped reads were of another file, checks them.
    fn empty_for(&mut self, file: &Arc<DiskFile>) -> Result<()> {
        if !self.is_of(file) {
            self.check()?;
        }
        self.forget();
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_unchecked) {
            return Ok(());
        }
        let checked = self.file.upgrade().map_or(Ok(()), |file| file.check_unchanged());
        if checked.is_err() {
            self.forget();
        }
        checked
    }

    /// Empties the buffer. Reads that are not checked yet stay unchecked.
    fn forget(&mut self) {
        (self.start, self.held, self.end, self.stretch) = (0, 0, 0, 0);
    }
}

/// The first `len` bytes of a buffer. The buffer grows if necessary.
fn room(bytes: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
    &mut bytes[..len]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn content(bytes: &[u8]) -> (tempfile::TempDir, Content) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        (folder, Content::open_unclaimed(&path).unwrap())
    }

    #[test]
    fn every_read_has_the_bytes_of_its_place_in_any_order() {
        let bytes: Vec<u8> = (0..600_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let (_folder, file) = content(&bytes);
        let (_other, second) = content(&bytes[1..]);
        let mut ahead = ReadAhead::default();
        let mut state = 7u64;
        for round in 0..4000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // There are sequential runs, jumps, and reads of another file between them.
            let len = (state >> 33) as usize % 3000;
            let offset = if round % 50 < 40 { ahead.end.max(1) } else { (state >> 20) % 590_000 };
            let offset = offset.min(bytes.len() as u64 - 3000);
            let expected = &bytes[offset as usize..][..len];
            assert_eq!(ahead.read(&file, offset, len).unwrap(), expected, "round {round}");
            if round % 97 == 0 {
                assert_eq!(ahead.read(&second, offset - offset.min(1), len).unwrap().len(), len);
            }
            assert!(ahead.held <= MAX);
        }
    }

    #[test]
    fn neighbours_are_read_once_and_others_alone() {
        let (_folder, file) = content(&[5; 1 << 20]);
        let mut ahead = ReadAhead::default();
        let mut stretches = Vec::new();
        for sample in 0..1000 {
            ahead.read(&file, sample * 100, 100).unwrap();
            if stretches.last() != Some(&ahead.start) {
                stretches.push(ahead.start);
            }
        }
        // The lengths are 100 bytes, 4 KiB, 8 KiB, 16 KiB and so on.
        assert_eq!(stretches.len(), 6, "{stretches:?}");
        ahead.read(&file, 900_000, 100).unwrap();
        assert_eq!((ahead.start, ahead.held), (900_000, 100));
    }

    #[test]
    fn a_group_of_reads_is_checked_at_its_end() {
        let (folder, file) = content(&[5; 100_000]);
        let mut ahead = ReadAhead::default();
        ahead.group();
        ahead.read(&file, 50_000, 10).unwrap();
        fs::write(folder.path().join("file"), [6; 90_000]).unwrap();
        ahead.read(&file, 20, 10).unwrap();
        let error = ahead.end_group().unwrap_err();
        assert!(error.to_string().contains("was cut while it was in use"), "{error}");
        // A single read is checked at once. Stale bytes are never returned.
        assert!(ahead.read(&file, 20, 10).is_err());
        let (_other, good) = content(&[7; 100]);
        assert_eq!(ahead.read(&good, 20, 3).unwrap(), [7; 3]);
    }

    #[test]
    fn reads_of_one_file_are_checked_before_those_of_another() {
        let (folder, one) = content(&[5; 100_000]);
        let (_other, two) = content(&[6; 100]);
        let mut ahead = ReadAhead::default();
        ahead.group();
        ahead.read(&one, 50_000, 10).unwrap();
        fs::write(folder.path().join("file"), [6; 90_000]).unwrap();
        assert!(ahead.read(&two, 0, 10).is_err());
    }
}
