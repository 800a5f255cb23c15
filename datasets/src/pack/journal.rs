//! The journal of a file. It lists the bytes that are written and synced, so that the next run resumes after
//! them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use feedline_core::{Dataset, Fingerprint, Result};
use serde::{Deserialize, Serialize};

use super::columns::Columns;
use super::partial::Partial;
use super::{cannot, footer};
use crate::error::one_line;

/// Approximate bytes between two entries of a journal. Also the approximate bytes of a batch in memory.
pub(super) const EVERY: u64 = if cfg!(test) { 300 } else { 64 << 20 };
/// Max bytes of a journal.
const MAX_BYTES: u64 = 64 << 20;

/// The written part of a file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Written {
    pub(super) samples: u64,
    /// The parts of the file, in order.
    pub(super) parts: Vec<Part>,
    /// The offset, the head length and the body length of each batch.
    pub(super) blocks: Vec<[u64; 3]>,
}

/// The result of writing a file.
pub(super) struct Whole {
    pub(super) samples: u64,
    /// The number of samples that an earlier run wrote.
    pub(super) kept: u64,
    /// The checksum of all bytes before the footer.
    pub(super) crc32c: u32,
}

/// A range of written bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Part {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

/// The journal of one file: `NAME.progress`, beside `NAME.partial`.
pub(super) struct Journal {
    path: PathBuf,
    /// Hashes of the source and of the layout of the file.
    source: [u64; 3],
}

/// The content of a journal.
#[derive(Debug, Deserialize, Serialize)]
struct Entry {
    source: [u64; 3],
    written: Written,
}

impl Journal {
    pub(super) fn new(to: &Path, set: &dyn Dataset, columns: &Columns) -> Result<Self> {
        let form = crc32c::crc32c(&footer::start(&columns.described));
        let fingerprint = Fingerprint::checked(|| set.fingerprint())?;
        Ok(Self::of_source(to, [fingerprint, set.len(), form.into()]))
    }

    /// The journal of the file `to`. The file has this source and layout.
    pub(super) fn of_source(to: &Path, source: [u64; 3]) -> Self {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".progress");
        Self { path: to.with_file_name(name), source }
    }

    /// Syncs `file` to disk, then records `written`.
    pub(super) fn save(&self, file: &File, written: &Written) -> Result<()> {
        self.save_of(&[file], written)
    }

    /// As [`save`](Self::save), for several files.
    pub(super) fn save_of(&self, files: &[&File], written: &Written) -> Result<()> {
        let io = |error| cannot("write the file", error).at_path(&self.path);
        files.iter().try_for_each(|file| file.sync_data()).map_err(io)?;
        let entry = Entry { source: self.source, written: written.clone() };
        let text = serde_json::to_string(&entry);
        let text =
            text.map_err(|error| super::data("the journal cannot be written").with_source(one_line(error)))?;
        let mut partial = Partial::create(self.path.clone())?;
        let text = format!("{:08x}\n{text}\n", crc32c::crc32c(text.as_bytes()));
        partial.file().write_all(text.as_bytes()).map_err(io)?;
        partial.finish().map(drop)
    }

    /// The part of `file` that the journal lists. Empty if a checksum differs.
    pub(super) fn find(&self, file: &mut File) -> Written {
        self.read().filter(|written| written.parts.iter().all(|part| part.is_in(file))).unwrap_or_default()
    }

    /// The parts that the journal lists, one in each of `files`. Empty if a checksum differs.
    pub(super) fn find_in(&self, files: &mut [&mut File]) -> Written {
        let has_all = |written: &Written| {
            let parts = written.parts.iter();
            parts.len() == files.len() && parts.zip(files).all(|(part, file)| part.is_in(file))
        };
        self.read().filter(has_all).unwrap_or_default()
    }

    fn read(&self) -> Option<Written> {
        let file = File::open(&self.path).ok()?;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let (checksum, text) = text.split_once('\n')?;
        let text = text.trim_end();
        if checksum != format!("{:08x}", crc32c::crc32c(text.as_bytes())) {
            return None;
        }
        let Entry { source, written } = serde_json::from_str(text).ok()?;
        (source == self.source).then_some(written)
    }

    /// Removes the journal. Call this when the file is complete.
    pub(super) fn end(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(cannot("remove the file", error).at_path(&self.path))
            }
            _ => Ok(()),
        }
    }
}

impl Part {
    /// Whether `file` holds the bytes of this part.
    fn is_in(&self, file: &mut File) -> bool {
        let (mut crc, mut left) = (0, self.bytes);
        let mut buffer = vec![0; (1 << 20).min(self.bytes) as usize];
        if file.seek(SeekFrom::Start(self.at)).is_err() {
            return false;
        }
        while left > 0 {
            let bytes = &mut buffer[..left.min(1 << 20) as usize];
            if file.read_exact(bytes).is_err() {
                return false;
            }
            crc = crc32c::crc32c_append(crc, bytes);
            left -= bytes.len() as u64;
        }
        crc == self.crc32c
    }
}
