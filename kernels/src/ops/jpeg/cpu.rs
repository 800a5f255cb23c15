//! The CPU's pictures of a batch.

use std::sync::{Mutex, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_images::Decoder;

use super::locked;
use super::queue::{Picture, Queue};
use crate::host::parallel;

/// What decodes on the CPU, on a pool of threads.
pub(super) struct Decoders {
    /// For headers; has the settings of all.
    pub(super) headers: Decoder,
    /// Those that no thread uses at the moment.
    pub(super) free: Mutex<Vec<Decoder>>,
    /// The GPU decodes too.
    pub(super) beside_gpu: bool,
}

impl Decoders {
    /// Decodes pictures of `queue` as long as it has some for the CPU, while the calling thread does `own`.
    ///
    /// # Errors
    /// `Sample` for the first row that cannot be decoded.
    pub(super) fn run<R>(&self, queue: &Queue<'_>, own: impl FnOnce() -> R) -> Result<R> {
        let failed = Mutex::new(None);
        let decode = |Picture { row, bytes, size, pixels, .. }: Picture<'_>| {
            let mut decoder = locked(&self.free).pop().unwrap_or_else(|| self.headers.fresh());
            let decoded = decoder.decode_into(bytes, size, pixels);
            locked(&self.free).push(decoder);
            if let Err(error) = decoded {
                let mut failed = locked(&failed);
                // The first row counts, whichever thread was first.
                if failed.as_ref().is_none_or(|(first, _)| *first > row) {
                    *failed = Some((row, error));
                }
            }
        };
        let next = || queue.take().map(decode).is_some();
        let result = parallel::until_none_is_left(queue.len(), self.beside_gpu, next, own);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((row, error)) => Err(in_row(row, &error)),
            None => Ok(result),
        }
    }
}

pub(super) fn in_row(row: usize, error: &Error) -> Error {
    Error::new(ErrorKind::Sample, format!("picture {row} of the batch: {}", error.message()))
        .caused_by(error.clone())
}
