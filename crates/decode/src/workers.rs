//! The worker threads: how many, their names, and a pool whose panics end in an error.

use feedline_core::{Error, ErrorKind, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// How many threads decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One for each core, less one for the training loop where there are more than two.
    #[default]
    Auto,
    /// This many; at least one.
    Count(usize),
}

impl Workers {
    /// The number of threads on this machine.
    ///
    /// # Errors
    /// `Config` for a count of zero.
    pub fn count(self) -> Result<usize> {
        match self {
            Self::Count(0) => {
                Err(Error::new(ErrorKind::Config, "workers is 0: at least one thread must decode"))
            }
            Self::Count(count) => Ok(count),
            Self::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                Ok(if cores > 2 { cores - 1 } else { cores })
            }
        }
    }

    /// Starts the threads.
    pub(crate) fn start(self) -> Result<ThreadPool> {
        ThreadPoolBuilder::new()
            .num_threads(self.count()?)
            .thread_name(|index| format!("fl-decode-{index}"))
            // A panic that gets past the catch around each read is a defect; it must not abort the user's process.
            .panic_handler(|_| {})
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Config, "cannot start the decode workers").caused_by(error)
            })
    }
}
