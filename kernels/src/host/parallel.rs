//! The threads that large work is spread over, and when it is worth more than one.

use std::error::Error as _;

use feedline_core::{Error, ErrorKind, Result};
use rayon::ThreadPoolBuilder;

/// Elements a thread takes at a time; work of fewer stays on the calling thread. A parallel call costs some ten
/// microseconds, about what the simplest of these loops needs for as many elements.
pub(super) const CHUNK: usize = 64 * 1024;

/// Starts the threads, if they do not run yet. Otherwise they would start within a stream's work, which could
/// only panic where the system gives no thread.
pub(crate) fn start_threads() -> Result<()> {
    match ThreadPoolBuilder::new().build_global() {
        // Without a cause the pool is there already.
        Err(error) if error.source().is_some() => {
            let why = "cannot start the threads that compute: raise the limit of processes (ulimit -u), or \
                       set RAYON_NUM_THREADS to fewer";
            Err(Error::new(ErrorKind::Unavailable, why).caused_by(error))
        }
        _ => Ok(()),
    }
}
