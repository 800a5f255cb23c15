//! A file as the decoder reads it, and the errors of both.

use std::error::Error as StdError;
use std::io::{self, Read, Seek, SeekFrom};

use feedline_core::Error;
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

/// The error of a source that cannot be read; one of this project passes through.
pub(super) fn unreadable(error: io::Error) -> Error {
    own(&error).cloned().unwrap_or_else(|| data("cannot read the file").with_source(error))
}

/// The error of a file that the decoder refuses.
pub(super) fn refused(format: Format, error: Refused) -> Error {
    let name = format.name();
    match error {
        Refused::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof && own(&error).is_none() => {
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

/// The error of this project inside `error`, if any.
fn own(error: &io::Error) -> Option<&Error> {
    let mut cause: &(dyn StdError + 'static) = error.get_ref()?;
    loop {
        if let Some(own) = cause.downcast_ref::<Error>() {
            return Some(own);
        }
        // `source` of an I/O error skips the error that it wraps.
        cause = match cause.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref()?,
            None => cause.source()?,
        };
    }
}
