//! What the CPU does for a batch of pictures: it reads all headers, and decodes those that the GPU does not.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_images::{Decoder, Format, Size};

use super::locked;
use crate::host::parallel;
use crate::nvjpeg::Asked;

/// A picture and its place in the memory for pixels.
pub(super) struct Place<'a> {
    pub(super) row: usize,
    pub(super) bytes: &'a [u8],
    pub(super) size: Size,
    pub(super) may_be_on_gpu: bool,
    pub(super) range: Range<usize>,
}

impl<'a> Place<'a> {
    /// What nvJPEG is asked about it.
    pub(super) fn asked(&self) -> Option<Asked<'a>> {
        let Size { height, width } = self.size;
        self.may_be_on_gpu.then_some((self.bytes, (height, width), self.range.start))
    }
}

/// What the header of a picture says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) size: Size,
    /// It is a JPEG that need not be turned.
    pub(super) may_be_on_gpu: bool,
}

/// What decodes on the CPU, on the pool.
pub(super) struct Decoders {
    /// For headers; has the settings of all.
    pub(super) headers: Decoder,
    /// Those that no thread uses at the moment.
    pub(super) free: Mutex<Vec<Decoder>>,
}

/// Headers that one thread reads at a time: some ten microseconds of work.
const HEADERS: usize = 32;

impl Decoders {
    /// What the headers say, by row.
    pub(super) fn heads(&self, encoded: &[&[u8]]) -> Vec<Result<Head>> {
        let mut heads: Vec<_> = encoded.iter().map(|_| Ok(Head::default())).collect();
        let parts = heads.chunks_mut(HEADERS).zip(encoded.chunks(HEADERS)).collect();
        let read = |(heads, encoded): (&mut [_], &[&[u8]])| {
            for (head, bytes) in heads.iter_mut().zip(encoded) {
                *head = self.headers.size(bytes).map(|size| {
                    let is_jpeg = Format::of(bytes) == Some(Format::Jpeg);
                    Head { size, may_be_on_gpu: is_jpeg && self.headers.is_upright(bytes) }
                });
            }
        };
        parallel::beside(parts, read, || ());
        heads
    }

    /// Decodes `places` into `memory`, while the calling thread does `own`. Returns also how long the decoding
    /// took.
    pub(super) fn run<R>(
        &self,
        memory: &mut [u8],
        places: &[Place<'_>],
        own: impl FnOnce() -> R,
    ) -> Result<(R, Duration)> {
        let mut parts = Vec::new();
        let (mut rest, mut at) = (memory, 0);
        for place in places {
            let (_, behind) = rest.split_at_mut(place.range.start - at);
            let (pixels, behind) = behind.split_at_mut(place.range.len());
            parts.push((place, pixels));
            (rest, at) = (behind, place.range.end);
        }
        let failed = Mutex::new(None);
        let (start, took) = (Instant::now(), Mutex::new(Duration::ZERO));
        let decode = |(place, pixels): (&Place<'_>, &mut [u8])| {
            let mut decoder = locked(&self.free).pop().unwrap_or_else(|| self.headers.fresh());
            let decoded = decoder.decode_into(place.bytes, place.size, pixels);
            locked(&self.free).push(decoder);
            *locked(&took) = start.elapsed();
            if let Err(error) = decoded {
                let mut failed = locked(&failed);
                // The first row counts, whichever thread was first.
                if failed.as_ref().is_none_or(|(row, _)| *row > place.row) {
                    *failed = Some((place.row, error));
                }
            }
        };
        let result = parallel::beside(parts, decode, own);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((row, error)) => Err(in_row(row, &error)),
            None => Ok((result, took.into_inner().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

pub(super) fn in_row(row: usize, error: &Error) -> Error {
    Error::new(ErrorKind::Sample, format!("picture {row} of the batch: {}", error.message()))
        .caused_by(error.clone())
}
