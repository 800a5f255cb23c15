//! Signals: the first Ctrl-C ends the run between two steps, the second one immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feedline::{Error, ErrorKind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// Whether Ctrl-C was pressed or the process was asked to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// `Unavailable` if the system refuses a handler.
    pub fn watch() -> Result<Self> {
        let pressed = Arc::new(AtomicBool::new(false));
        let watch = || {
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                // In this order: the first signal finds the flag not set, and sets it.
                flag::register_conditional_shutdown(signal, 130, pressed.clone())?;
                flag::register(signal, pressed.clone())?;
            }
            Ok(())
        };
        watch().map_err(refused)?;
        Ok(Self(pressed))
    }

    /// Whether the run should end.
    pub fn pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// From now on, a write beyond the limit on the size of files (`ulimit -f`) is an error. Without a handler
/// its signal would end the process.
///
/// # Errors
/// `Unavailable` if the system refuses a handler.
pub fn survive_file_size_limit() -> Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map_err(refused)?;
    Ok(())
}

fn refused(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the system refuses to handle signals").with_source(error)
}
