//! Turns errors into Python exceptions. Each kind has a class, the place becomes attributes, and the cause
//! becomes `__cause__`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline::{Error, Stage};
use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::interpreter::Inside;
use crate::room::Longer;

/// An exception that Python code of a data set or a hook has raised.
pub(crate) struct Raised {
    /// The text of the exception and of the line that raised it, so that a worker can print it without the
    /// interpreter.
    text: String,
    /// The exception, until it is raised. Its frames may hold the loader, and the loader holds this error, so
    /// it would form a cycle.
    error: Mutex<Option<PyErr>>,
}

impl Raised {
    pub(crate) fn new(py: Python<'_>, error: PyErr) -> Self {
        let describe = || -> PyResult<String> {
            let errors = py.import(intern!(py, "feedline._errors"))?;
            errors.call_method1(intern!(py, "describe"), (error.value(py), error.traceback(py)))?.extract()
        };
        let text = describe().unwrap_or_else(|_| error.to_string());
        Self { text, error: Mutex::new(Some(error)) }
    }

    /// An exception of another process. `text` includes the line that raised it.
    pub(crate) fn with_text(text: String, error: PyErr) -> Self {
        Self { text, error: Mutex::new(Some(error)) }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// The exception for `error`.
pub(crate) fn raise(error: Error) -> PyErr {
    // Counts this thread, because building an exception runs Python code.
    let _inside = Inside::new();
    Python::attach(|py| exception(py, &error).unwrap_or_else(|failed| failed))
}

/// The exception for a field that a batch does not have.
pub(crate) fn no_field(error: Error) -> PyErr {
    PyKeyError::new_err(error.message().to_owned())
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let errors = py.import(intern!(py, "feedline._errors"))?;
    let class = errors.call_method1(intern!(py, "of_kind"), (format!("{:?}", error.kind()),))?;
    let exception = class.call1((error.to_string(),))?;
    let stage = innermost(error, |error| error.stage().map(|stage: Stage| stage.to_string()));
    exception.setattr(intern!(py, "stage"), stage)?;
    exception.setattr(intern!(py, "batch"), innermost(error, Error::batch))?;
    exception.setattr(intern!(py, "sample"), innermost(error, Error::sample))?;
    exception.setattr(intern!(py, "offset"), innermost(error, Error::offset))?;
    let path = innermost(error, |error| error.path().map(|path| path.display().to_string()));
    exception.setattr(intern!(py, "path"), path)?;
    if let Some(Longer { field, items }) = Longer::within(error) {
        exception.setattr(intern!(py, "_needs"), (field, items))?;
    }
    let exception = PyErr::from_value(exception);
    let cause = raised(error).and_then(|raised| lock(&raised.error).take());
    exception.set_cause(py, cause);
    Ok(exception)
}

/// The place that the error has, or else the place of its cause.
fn innermost<T>(error: &Error, place: impl Fn(&Error) -> Option<T>) -> Option<T> {
    let mut error = Some(error);
    while let Some(at) = error {
        if let Some(found) = place(at) {
            return Some(found);
        }
        error = at.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    }
    None
}

/// The exception of Python code that caused `error`.
fn raised(error: &Error) -> Option<&Raised> {
    let cause = error.get_ref()?;
    cause.downcast_ref::<Raised>().or_else(|| raised(cause.downcast_ref::<Error>()?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
