//! Adapts a file to the decoder. Maps the errors of the file and of the decoder.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use feedline_core::Error;
use symphonia::core::errors::Error as Refused;
use symphonia::core::io::MediaSource;

use super::{Format, format};
use crate::data;

/// So many bytes before the end of a file, its tags are looked for. Only a tag with large pictures is longer.
const NEAR_END: u64 = 1 << 20;

/// What the decoder reads of a file.
pub(super) struct Body {
    /// Bytes that it reads first. They are not in the file.
    pub(super) head: Vec<u8>,
    /// The bytes of the file that follow.
    pub(super) range: Range<u64>,
    /// The number of frames, if it is known.
    pub(super) frames: Option<u64>,
}

/// A seekable stream of a body.
pub(super) struct Source<R> {
    inner: R,
    head: Vec<u8>,
    range: Range<u64>,
    at: u64,
    /// Whether the file may end with tags. They are looked for near its end, so that a part of a file in a
    /// store does not need its end.
    may_have_tags: bool,
}

impl<R: Read + Seek> Source<R> {
    pub(super) fn new(inner: R, format: Format, Body { head, range, .. }: Body) -> Self {
        // In other formats, the header or the last page states the end.
        let may_have_tags = matches!(format, Format::Flac | Format::Mp3 | Format::Aac);
        Self { inner, head, range, at: 0, may_have_tags }
    }

    fn len(&self) -> u64 {
        self.head.len() as u64 + self.range.end - self.range.start
    }

    /// Seeks the file to the place of the stream, which is behind the head.
    fn seek_inner(&mut self) -> io::Result<u64> {
        let place = self.range.start + self.at.saturating_sub(self.head.len() as u64);
        self.inner.seek(SeekFrom::Start(place))
    }
}

impl<R: Read + Seek> Read for Source<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(head) = usize::try_from(self.at).ok().and_then(|at| self.head.get(at..))
            && !head.is_empty()
        {
            let read = head.len().min(to.len());
            to[..read].copy_from_slice(&head[..read]);
            self.at += read as u64;
            if self.at == self.head.len() as u64 {
                self.seek_inner()?;
            }
            return Ok(read);
        }
        if self.may_have_tags && self.at + to.len() as u64 + NEAR_END > self.len() {
            self.may_have_tags = false;
            self.range.end = format::end(&mut self.inner, self.range.clone())?;
            self.seek_inner()?;
        }
        let left = self.len().saturating_sub(self.at).min(to.len() as u64) as usize;
        let read = self.inner.read(&mut to[..left])?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: Read + Seek> Seek for Source<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        self.seek_inner()?;
        Ok(self.at)
    }
}

impl<R: Read + Seek + Send + Sync> MediaSource for Source<R> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.len())
    }
}

/// The error for a source that cannot be read. An error of this project passes through.
pub(super) fn unreadable(error: io::Error) -> Error {
    Error::within(&error).cloned().unwrap_or_else(|| data("cannot read the file").with_source(error))
}

/// The error for a file that the decoder refuses.
pub(super) fn refused(format: Format, error: Refused) -> Error {
    let name = format.name();
    match error {
        Refused::IoError(error)
            if error.kind() == io::ErrorKind::UnexpectedEof && Error::within(&error).is_none() =>
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
