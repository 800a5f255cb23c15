//! Names of API items in messages: users of Rust and of Python read the same errors, with different names.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_PYTHON: AtomicBool = AtomicBool::new(false);

/// The name of an API item in the user's language: `rust`, or `python` in the Python package. Errors that
/// name an API item must use this function.
pub fn named(rust: &'static str, python: &'static str) -> &'static str {
    if speaks_python() { python } else { rust }
}

/// Makes [`named`] return the names of Python from now on. The Python package is a separate library, so other
/// parts of the process are not affected.
pub fn speak_python() {
    IS_PYTHON.store(true, Ordering::Relaxed);
}

/// Whether the user writes Python.
pub fn speaks_python() -> bool {
    IS_PYTHON.load(Ordering::Relaxed)
}
