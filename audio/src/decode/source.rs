//! Adapts a file to the decoder. Maps the errors of the file and of the decoder.

use std::io::{self, Read, Seek, SeekFrom};

use feedline_core::Error;
use feedline_core::internal;
use symphonia::core::errors::Error as Refused;
use symphonia::core::io::MediaSource;

use super::Format;
use crate::data;

/// A seekable stream of a known length.
pub(super) struct Source<R> {
    inner: R,
    len: u64,
}

impl<R> Source<R> {
    pub(super) fn new(inner: R, len: u64) -> Self {
        Self { inner, len }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.inner.read(to)
    }
}

impl<R: Seek> Seek for Source<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

impl<R: Read + Seek + Send + Sync> MediaSource for Source<R> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.len)
    }
}

/// The error for a source that cannot be read. An error of this project passes through.
pub(super) fn unreadable(error: io::Error) -> Error {
    internal::error::within(&error)
        .cloned()
        .unwrap_or_else(|| data("cannot read the file").with_source(error))
}

/// The error for a file that the decoder refuses.
pub(super) fn refused(format: Format, error: Refused) -> Error {
    let name = format.name();
    match error {
        Refused::IoError(error)
            if error.kind() == io::ErrorKind::UnexpectedEof && internal::error::within(&error).is_none() =>
        {
            data(format!("the {name} file ends too early: it was cut, fetch it again"))
        }
        Refused::IoError(error) => unreadable(error),
        Refused::Unsupported(what) => {
            data(format!("this kind of {name} file is not read ({what}): convert it"))
        }
        Refused::DecodeError(what) => data(format!("the {name} file is damaged ({what}): fetch it again")),
        other => data(format!("the {name} file is damaged: fetch it again")).with_source(other.to_string()),
    }
}
