//! A shared stop flag that keeps the first cause.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, ErrorKind};

/// A flag that is set once and keeps the first cause; later causes are dropped.
///
/// ```
/// use feedline_core::{Error, ErrorKind, Stop};
/// let stop = Stop::new();
/// assert!(stop.check().is_ok());
/// stop.trip(Error::new(ErrorKind::Sample, "first"));
/// stop.trip(Error::new(ErrorKind::Sample, "second"));
/// assert_eq!(stop.check().unwrap_err().message(), "first");
/// ```
#[derive(Debug, Default)]
pub struct Stop {
    up: AtomicBool,
    cause: OnceLock<Error>,
}

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag with `cause`. Returns whether this was the first cause.
    pub fn trip(&self, cause: Error) -> bool {
        let first = self.cause.set(cause).is_ok();
        // Release pairs with the Acquire in `is_up`: a thread that sees the flag also sees the cause.
        self.up.store(true, Ordering::Release);
        first
    }

    /// Sets the flag on the user's request, with an error of kind `Stopped`. Returns whether this was the
    /// first cause.
    pub fn request(&self) -> bool {
        self.trip(Error::new(ErrorKind::Stopped, "the pipeline was stopped"))
    }

    /// Whether the flag is set.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// The first cause, if the flag is set.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.get()
    }

    /// Fails when the flag is set.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_up() { Err(self.cause.get().cloned().unwrap_or_else(stopped)) } else { Ok(()) }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "the pipeline was stopped")
}
