//! A content as a stream of bytes, for crates that parse one.

use std::io::{self, Read, Seek, SeekFrom};

use crate::bytes::Content;

/// Reads a content from its beginning, or from where it was sought to.
pub(crate) struct Cursor<'a> {
    content: &'a Content,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(content: &'a Content) -> Self {
        Self { content, at: 0 }
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.content.len().saturating_sub(self.at);
        let len = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.content.read_at(self.at, &mut to[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.content.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
