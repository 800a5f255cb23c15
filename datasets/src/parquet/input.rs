//! A file as the Parquet crate reads it.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::bytes::Content;

/// The content of a file, shared with what is decoded of it.
#[derive(Clone, Debug)]
pub(super) struct Input(pub(super) Arc<Content>);

impl Input {
    pub(super) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The bytes from `start` to `end`, as a stream.
    pub(super) fn part(&self, start: u64, end: u64) -> Part {
        Part { content: self.0.clone(), at: start, end: end.min(self.len()) }
    }
}

/// Some bytes of a content, as a stream.
#[derive(Debug)]
pub(super) struct Part {
    content: Arc<Content>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.end.saturating_sub(self.at);
        let len = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.content.read_at(self.at, &mut to[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Input {
    type T = BufReader<Part>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(1 << 12, self.part(start, self.0.len())))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.0.len());
        end.ok_or_else(|| ParquetError::EOF(format!("no {length} bytes at byte {start}")))?;
        let mut bytes = vec![0; length];
        self.0.read_at(start, &mut bytes).map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(bytes.into())
    }
}
