//! A file in the form in which the Parquet crate reads it.

use std::io::{self, BufReader, Read};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use feedline_core::Error;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::io::bytes::Content;

/// The content of a file, and the error of a failed read. The error is kept here, because the Parquet crate
/// keeps only its text.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) content: Arc<Content>,
    failed: Arc<OnceLock<Error>>,
}

impl Input {
    pub(super) fn new(content: Arc<Content>) -> Self {
        Self { content, failed: Arc::default() }
    }

    pub(super) fn len(&self) -> u64 {
        self.content.len()
    }

    /// The bytes from `start` to `end` as a stream.
    pub(super) fn part(&self, start: u64, end: u64) -> Part {
        Part { input: self.clone(), at: start, end: end.min(self.len()) }
    }

    /// The error of the first read that failed, or of a file that was changed. If there is none, `damaged`.
    pub(super) fn cause_or(&self, damaged: impl FnOnce() -> Error) -> Error {
        let failed = self.failed.get().cloned();
        failed.or_else(|| self.content.check_unchanged().err()).unwrap_or_else(damaged)
    }

    /// Keeps the error of a read that failed.
    fn noted<T>(&self, read: feedline_core::Result<T>) -> feedline_core::Result<T> {
        read.inspect_err(|error| _ = self.failed.set(error.clone()))
    }
}

/// A range of bytes of a content as a stream.
#[derive(Debug)]
pub(super) struct Part {
    input: Input,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.end.saturating_sub(self.at);
        let len = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let read = self.input.content.read_at(self.at, &mut to[..len]);
        self.input.noted(read).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.content.len()
    }
}

impl ChunkReader for Input {
    type T = BufReader<Part>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(1 << 12, self.part(start, self.content.len())))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.content.len());
        end.ok_or_else(|| ParquetError::EOF(format!("no {length} bytes at byte {start}")))?;
        let bytes = self.noted(self.content.read(start, length));
        Ok(bytes.map_err(|error| ParquetError::External(Box::new(error)))?.into())
    }
}
