//! Decoding on the CPU, on a pool of threads.

use std::sync::{Mutex, OnceLock, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_images::Decoder;
use feedline_kernels::pool;
use rayon_core::ThreadPool;

use super::locked;
use super::picture_queue::{Picture, PictureQueue};

/// The decoders of the CPU, one per thread.
pub(super) struct Decoders {
    /// Reads headers. The other decoders are created with its settings.
    pub(super) headers: Decoder,
    /// Idle decoders.
    pub(super) free: Mutex<Vec<Decoder>>,
    /// Whether the GPU decodes too. The CPU then uses half of its cores.
    pub(super) with_gpu: bool,
}

impl Decoders {
    /// Decodes the pictures that `queue` has for the CPU, on a pool. Meanwhile the calling thread runs `own`.
    ///
    /// # Errors
    /// `Sample` for the first row that cannot be decoded.
    pub(super) fn run<R>(&self, queue: &PictureQueue<'_>, own: impl FnOnce() -> R) -> Result<R> {
        let failed = Mutex::new(None);
        let decode = |Picture { row, bytes, size, pixels, .. }: Picture<'_>| {
            let mut decoder = locked(&self.free).pop().unwrap_or_else(|| self.headers.fresh());
            let decoded = decoder.decode_into(bytes, size, pixels);
            locked(&self.free).push(decoder);
            if let Err(error) = decoded {
                let mut failed = locked(&failed);
                // The error of the first row is kept, so that every run reports the same error.
                if failed.as_ref().is_none_or(|(first, _)| *first > row) {
                    *failed = Some((row, error));
                }
            }
        };
        let next = || queue.take().map(decode).is_some();
        let result = run_while(queue.for_cpu(), self.with_gpu, next, own);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((row, error)) => Err(in_row(row, &error)),
            None => Ok(result),
        }
    }
}

/// The error of a picture, with its row.
pub(super) fn in_row(row: usize, error: &Error) -> Error {
    Error::new(ErrorKind::Sample, format!("picture {row} of the batch: {}", error.message()))
        .with_source(error.clone())
}

/// Calls `next` repeatedly until it returns `false`, on up to `max` threads of a pool. Meanwhile the calling
/// thread runs `own`. Returns once all have ended. `with_gpu` selects the pool for pictures, which serves one
/// caller after another.
///
/// Without a pool, or on a thread of another pool, the calling thread does all the work. It runs `own` first.
fn run_while<R>(max: usize, with_gpu: bool, next: impl Fn() -> bool + Sync, own: impl FnOnce() -> R) -> R {
    let pool = if with_gpu { picture_pool() } else { pool::pool() };
    match pool.as_ref().ok().filter(|_| rayon_core::current_thread_index().is_none()) {
        Some(pool) => pool.in_place_scope(|scope| {
            let next = &next;
            for _ in 0..max.min(pool.current_num_threads()) {
                scope.spawn(move |_| while next() {});
            }
            own()
        }),
        None => {
            let result = own();
            while next() {}
            result
        }
    }
}

/// Starts both pools if needed.
///
/// # Errors
/// `Unavailable` if the system refuses a thread.
pub(super) fn start_pools() -> Result<()> {
    pool::start()?;
    picture_pool().as_ref().map(drop).map_err(Error::clone)
}

/// The pool for decoding while a GPU decodes too, on half of the cores. A picture takes milliseconds. If the
/// pool of the operators decoded too, the GPU would wait equally long for the files of its next batch. The
/// workers that feed the GPU also need cores. With three workers and a pool on 16, 12, 9 and 6 of 16 cores,
/// `Decode::Auto` decoded 20,000, 24,200, 24,300 and 24,000 pictures/s (H200, bench `jpeg-gpu`).
fn picture_pool() -> &'static Result<ThreadPool> {
    static POOL: OnceLock<Result<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| pool::new_pool("picture", pool::threads().div_ceil(2)))
}
