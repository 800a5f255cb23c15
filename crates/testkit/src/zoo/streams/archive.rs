//! Records in files, one after the other, each behind its length.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use feedline_core::source::{Next, Shard, Source};
use feedline_core::{Context, ReadError, Result, Row, Spec};

use super::{decode, spec};

/// The length that marks the end of a growing file.
const END: u32 = u32::MAX;

/// A file a shard, of records behind their lengths (`u32`, little-endian): read in sequence only, like a tar stream.
#[derive(Clone, Debug)]
pub struct Archive {
    spec: Spec,
    paths: Vec<PathBuf>,
    growing: bool,
}

impl Archive {
    /// The files `paths`, each a shard.
    ///
    /// # Errors
    /// None in practice: the spec is fixed.
    pub fn new(paths: impl Into<Vec<PathBuf>>) -> Result<Self> {
        Ok(Self { spec: spec()?, paths: paths.into(), growing: false })
    }

    /// The same, of files that others still write: their end is a mark, and at the end of the file a reader waits.
    pub fn growing(self) -> Self {
        Self { growing: true, ..self }
    }
}

/// Appends a record to the file at `path`, which is made when it is not there.
///
/// # Errors
/// What the file system says.
pub fn append(path: &Path, record: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    // In two writes, so that a reader of a growing file meets half a record.
    file.write_all(&(record.len() as u32).to_le_bytes())?;
    file.write_all(record)
}

/// Marks the end of a growing file.
///
/// # Errors
/// What the file system says.
pub fn finish(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(&END.to_le_bytes())
}

struct Open {
    file: BufReader<File>,
    offset: u64,
    growing: bool,
}

impl Source for Archive {
    fn shards(&self) -> u64 {
        self.paths.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, _epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let mut file = BufReader::new(File::open(&self.paths[shard as usize])?);
        file.seek(SeekFrom::Start(offset))?;
        Ok(Box::new(Open { file, offset, growing: self.growing }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        decode(record, row, context)
    }

    fn path(&self, shard: u64) -> Option<&Path> {
        self.paths.get(shard as usize).map(PathBuf::as_path)
    }
}

impl Open {
    /// What is there of the next `len` bytes.
    fn take(&mut self, len: u64, to: &mut Vec<u8>) -> io::Result<usize> {
        self.file.by_ref().take(len).read_to_end(to)
    }

    /// Nothing more is there: the end of a file, or half a record of one that grows.
    fn run_dry(&mut self, got: usize, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        record.clear();
        match (self.growing, got) {
            (true, _) => {
                self.file.seek(SeekFrom::Start(self.offset))?;
                Ok(Next::Later)
            }
            (false, 0) => Ok(Next::End),
            (false, _) => Err("the file is cut short in a record".into()),
        }
    }
}

impl Shard for Open {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        let got = self.take(4, record)?;
        let Some(len) = record.first_chunk().map(|len| u32::from_le_bytes(*len)) else {
            return self.run_dry(got, record);
        };
        record.clear();
        if self.growing && len == END {
            return Ok(Next::End);
        }
        let body = self.take(u64::from(len), record)?;
        if (body as u64) < u64::from(len) {
            return self.run_dry(got + body, record);
        }
        self.offset += 4 + u64::from(len);
        Ok(Next::Record)
    }
}
