//! The first cause that ended a pipeline, kept for everyone who asks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, ErrorKind};

/// A flag that goes up once and keeps the first cause; later causes are dropped.
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
    /// A stop that is not up.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes up for `cause`; returns whether it was the first.
    pub fn trip(&self, cause: Error) -> bool {
        let first = self.cause.set(cause).is_ok();
        // Release pairs with the Acquire in `is_up`: who sees the flag also sees the cause.
        self.up.store(true, Ordering::Release);
        first
    }

    /// Goes up because the user asked, with an error of kind `Stopped`.
    pub fn request(&self) -> bool {
        self.trip(Error::new(ErrorKind::Stopped, "the pipeline was stopped"))
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// The first cause, once there is one.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.get()
    }

    /// `Ok` while down, the first cause once up.
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
