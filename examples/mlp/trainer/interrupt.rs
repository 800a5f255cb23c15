//! Ctrl-C: the first one ends the run between two steps, the second one immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feedline::{Error, ErrorKind, Result};

/// Whether Ctrl-C was pressed or the process was asked to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts a thread that waits for Ctrl-C.
    ///
    /// # Errors
    /// `Unavailable` if the thread cannot be started.
    pub fn watch() -> Result<Self> {
        let pressed = Arc::new(AtomicBool::new(false));
        let again = pressed.clone();
        let handler = move || {
            if again.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        };
        ctrlc::set_handler(handler).map_err(|error| {
            let why =
                "cannot start the thread that waits for Ctrl-C: raise the limit of processes (ulimit -u)";
            let cause: Box<dyn std::error::Error + Send + Sync> = match error {
                ctrlc::Error::System(error) => error.into(),
                other => other.into(),
            };
            Error::new(ErrorKind::Unavailable, why).caused_by(cause)
        })?;
        Ok(Self(pressed))
    }

    /// Whether the run should end.
    pub fn pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
