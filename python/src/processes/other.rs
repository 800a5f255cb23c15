//! Stand-ins for worker processes, because this system has none. `feedline/_workers/choice.py` refuses them
//! here.

use std::sync::Arc;

use feedline::dataset::{RowError, Rows};
use feedline::{Context, Error, ErrorKind, ReadError};
use pyo3::prelude::*;

use crate::error::raise;

/// Worker processes.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Processes(());

#[pymethods]
impl Processes {
    #[new]
    fn new(_server: Py<PyAny>, _count: usize) -> PyResult<Self> {
        Err(raise(Error::new(ErrorKind::Config, "worker processes need Linux")))
    }

    fn close(&self) {
        let () = self.0;
    }
}

/// A loader that reads a data set.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Reading(());

#[pymethods]
impl Reading {
    fn leave(&self) {
        let () = self.0;
    }

    #[getter]
    fn workers(&self) -> Option<usize> {
        None
    }

    #[getter]
    fn deaths(&self) -> usize {
        0
    }
}

impl Reading {
    pub(crate) fn begin(
        _: Python<'_>,
        _: &Arc<ReadBy>,
        _: usize,
        _: Option<(&Processes, u32)>,
    ) -> PyResult<Self> {
        Ok(Self(()))
    }
}

/// The readers of a data set: here always the threads of this process.
#[derive(Default)]
pub(crate) struct ReadBy;

impl ReadBy {
    pub(crate) fn read(
        &self,
        _: (&[u64], &[u64]),
        _: &mut Rows<'_>,
        _: &mut Context,
        _calls: (bool, bool),
    ) -> Option<Result<(), RowError>> {
        None
    }

    pub(crate) fn map(&self, _key: u64, _: &mut Rows<'_>) -> Option<Result<(), ReadError>> {
        None
    }

    pub(crate) fn has_processes(&self) -> bool {
        false
    }
}

/// Ends the workers of all loaders.
pub(crate) fn close_all(_: Python<'_>) {}
