//! The commands of the program `feedline`, for `python -m feedline`.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::interpreter::detached;

/// Runs a command as the program does: prints its result and returns the exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    detached(py, || feedline_tools::exit_code("feedline", feedline_tools::commands::run(arguments)))
}
