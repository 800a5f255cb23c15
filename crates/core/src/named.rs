//! Names of the API in texts: an error is read by users of Rust and of Python, and each has other names.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_PYTHON: AtomicBool = AtomicBool::new(false);

/// The name of something in the API of the language that the user writes: `rust`, or `python` in the Python
/// package. An error that names an item of the API takes it from here.
///
/// ```
/// use feedline_core::named;
/// assert_eq!(named("OpenOptions::split", "split="), "OpenOptions::split");
/// ```
#[doc(hidden)] // For the crates of this repository.
pub fn named(rust: &'static str, python: &'static str) -> &'static str {
    if speaks_python() { python } else { rust }
}

/// From now on [`named`] gives the names of Python. The Python package is a library of its own, so no other
/// part of the process changes its words.
#[doc(hidden)] // For the Python package.
pub fn speak_python() {
    IS_PYTHON.store(true, Ordering::Relaxed);
}

/// Whether the user writes Python.
#[doc(hidden)] // For the crates of this repository.
pub fn speaks_python() -> bool {
    IS_PYTHON.load(Ordering::Relaxed)
}

/// An option with a value: `shuffle(7)`, or `shuffle=7` in Python.
#[doc(hidden)] // For the crates of this repository.
pub fn option(name: &str, value: impl fmt::Display) -> String {
    if speaks_python() { format!("{name}={value}") } else { format!("{name}({value})") }
}
