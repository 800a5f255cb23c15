//! A content as a seekable stream, for parsers of other crates.

use std::io::{self, Read, Seek, SeekFrom};

use feedline_core::Result;

/// A stream over a function that reads bytes at an offset.
pub(crate) struct SeekReader<F> {
    len: u64,
    at: u64,
    read_at: F,
}

impl<F: Fn(u64, &mut [u8]) -> Result<()>> SeekReader<F> {
    /// A stream of `len` bytes; `read_at(offset, to)` fills `to` with the bytes from `offset` on.
    pub(crate) fn new(len: u64, read_at: F) -> Self {
        Self { len, at: 0, read_at }
    }
}

impl<F: Fn(u64, &mut [u8]) -> Result<()>> Read for SeekReader<F> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.len.saturating_sub(self.at);
        let len = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        (self.read_at)(self.at, &mut to[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl<F> Seek for SeekReader<F> {
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
