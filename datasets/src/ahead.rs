//! Neighbours in a file are read together: the stretch of a file that a worker has read last.

use std::sync::{Arc, Weak};

use feedline_core::Result;

use crate::bytes::Content;
use crate::disk::DiskFile;
use crate::error::data;

/// The first stretch that is read ahead; it doubles while reads follow each other.
const LEAST: usize = 4 << 10;
/// The longest, unless a sample is longer.
const MOST: usize = 128 << 10;
/// Reads with at most so many bytes between them follow each other: headers and padding lie there.
const GAP: u64 = 4 << 10;

/// A worker's stretch of one file.
///
/// What is read ahead was checked to be of the unchanged file. A single sample is checked when it is read,
/// or, where reads are [grouped](Self::group), once for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    /// Weak, because a worker outlives the sets that it reads.
    file: Weak<DiskFile>,
    /// Where the bytes lie in the file.
    start: u64,
    /// How many of `bytes` are held; it keeps its length, so that nothing is set to zero before a read.
    held: usize,
    bytes: Vec<u8>,
    /// Where the last read ended.
    end: u64,
    /// Length of the last stretch; 0 where the last read followed no other.
    stretch: usize,
    is_grouped: bool,
    /// Whether reads of the group have not been checked.
    is_unchecked: bool,
}

impl Ahead {
    /// `len` bytes of `content` from `offset` on; the caller knows that a sample lies there.
    ///
    /// # Errors
    /// `Data` when they cannot be read, or the file was changed since it was opened.
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

    /// Defers the checks of the reads up to [`end_group`](Self::end_group).
    pub(crate) fn group(&mut self) {
        self.is_grouped = true;
    }

    /// # Errors
    /// `Data` when a file of the group's reads was changed since it was opened: what was read is not valid.
    pub(crate) fn end_group(&mut self) -> Result<()> {
        self.is_grouped = false;
        self.check()
    }

    /// Makes the range be held.
    fn read_file(&mut self, file: &Arc<DiskFile>, offset: u64, len: usize) -> Result<()> {
        let end = offset.saturating_add(len as u64);
        if self.holds(file, offset, len) {
            self.end = end;
            return Ok(());
        }
        let stretch = self.next_stretch(file, offset);
        let rest = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let read = len.max(stretch.min(rest));
        self.begin(file)?;
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

    /// Whether the range is held.
    fn holds(&self, file: &Arc<DiskFile>, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        self.is_of(file) && self.start <= offset && end <= self.start + self.held as u64
    }

    /// How much to read from `offset` on: 0, for the sample alone, where it does not follow the last one.
    fn next_stretch(&self, file: &Arc<DiskFile>, offset: u64) -> usize {
        let follows = self.is_of(file) && offset.checked_sub(self.end).is_some_and(|gap| gap <= GAP);
        if follows { (self.stretch * 2).clamp(LEAST, MOST) } else { 0 }
    }

    /// Before a read of `file`: nothing is held until it has succeeded.
    fn begin(&mut self, file: &Arc<DiskFile>) -> Result<()> {
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

    /// Holds nothing. Reads that are to be checked still are.
    fn forget(&mut self) {
        (self.start, self.held, self.end, self.stretch) = (0, 0, 0, 0);
    }
}

/// The first `len` bytes of a buffer that grows as needed.
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
        let mut ahead = Ahead::default();
        let mut state = 7u64;
        for round in 0..4000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Runs of neighbours, jumps, and another file between them.
            let len = (state >> 33) as usize % 3000;
            let offset = if round % 50 < 40 { ahead.end.max(1) } else { (state >> 20) % 590_000 };
            let offset = offset.min(bytes.len() as u64 - 3000);
            let expected = &bytes[offset as usize..][..len];
            assert_eq!(ahead.read(&file, offset, len).unwrap(), expected, "round {round}");
            if round % 97 == 0 {
                assert_eq!(ahead.read(&second, offset - offset.min(1), len).unwrap().len(), len);
            }
            assert!(ahead.held <= MOST);
        }
    }

    #[test]
    fn neighbours_are_read_once_and_others_alone() {
        let (_folder, file) = content(&[5; 1 << 20]);
        let mut ahead = Ahead::default();
        let mut stretches = Vec::new();
        for sample in 0..1000 {
            ahead.read(&file, sample * 100, 100).unwrap();
            if stretches.last() != Some(&ahead.start) {
                stretches.push(ahead.start);
            }
        }
        // 100 bytes, 4 KiB, 8 KiB, 16 KiB, and so on.
        assert_eq!(stretches.len(), 6, "{stretches:?}");
        ahead.read(&file, 900_000, 100).unwrap();
        assert_eq!((ahead.start, ahead.held), (900_000, 100));
    }

    #[test]
    fn a_group_of_reads_is_checked_at_its_end() {
        let (folder, file) = content(&[5; 100_000]);
        let mut ahead = Ahead::default();
        ahead.group();
        ahead.read(&file, 50_000, 10).unwrap();
        fs::write(folder.path().join("file"), [6; 90_000]).unwrap();
        ahead.read(&file, 20, 10).unwrap();
        let error = ahead.end_group().unwrap_err();
        assert!(error.to_string().contains("was cut while it was in use"), "{error}");
        // Alone, a read is checked at once; and nothing old is handed out.
        assert!(ahead.read(&file, 20, 10).is_err());
        let (_other, good) = content(&[7; 100]);
        assert_eq!(ahead.read(&good, 20, 3).unwrap(), [7; 3]);
    }

    #[test]
    fn reads_of_one_file_are_checked_before_those_of_another() {
        let (folder, one) = content(&[5; 100_000]);
        let (_other, two) = content(&[6; 100]);
        let mut ahead = Ahead::default();
        ahead.group();
        ahead.read(&one, 50_000, 10).unwrap();
        fs::write(folder.path().join("file"), [6; 90_000]).unwrap();
        assert!(ahead.read(&two, 0, 10).is_err());
    }
}
