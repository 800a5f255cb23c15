//! A field of a sample as a seekable stream. Parsers of other crates read it.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

use crate::Result;

/// A field of a sample as a seekable stream. Only the requested parts are read. See
/// [`Storage::stream`](crate::Storage::stream).
pub struct FieldStream<'a> {
    len: u64,
    at: u64,
    read_at: Box<ReadAt<'a>>,
}

/// Fills a buffer with the bytes of the field. The first one is at an offset.
type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + Send + Sync + 'a;

impl<'a> FieldStream<'a> {
    /// A stream of `len` bytes. `read_at(offset, to)` fills `to` with the bytes from `offset` on.
    pub fn new(len: u64, read_at: impl Fn(u64, &mut [u8]) -> Result<()> + Send + Sync + 'a) -> Self {
        Self { len, at: 0, read_at: Box::new(read_at) }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Read for FieldStream<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.len.saturating_sub(self.at);
        let len = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        (self.read_at)(self.at, &mut to[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for FieldStream<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl fmt::Debug for FieldStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldStream(byte {} of {})", self.at, self.len)
    }
}
