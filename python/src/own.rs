//! Data sets and hooks written in Python, called by the worker threads.

use feedline::batch::FilledBatch;
use feedline::dataset::Rows;
use feedline::{Context, DType, Dataset, Error, ErrorKind, ReadError, Row, Spec};
use feedline_core::Fingerprint;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::error::Raised;
use crate::interpreter::{attach, may_go_on};

/// A field: name, dtype, shape of a row or of an item, and the max items of a ragged field.
pub(crate) type FieldOf = (String, String, Vec<usize>, Option<usize>);

/// The spec of `fields`.
pub(crate) fn spec(fields: &[FieldOf]) -> feedline::Result<Spec> {
    fields.iter().try_fold(Spec::new(), |spec, (name, dtype, shape, max)| {
        let dtype = dtype_named(dtype)?;
        match max {
            Some(max) => spec.ragged(name, dtype, shape.clone(), *max),
            None => spec.field(name, dtype, shape.clone()),
        }
    })
}

/// The fields of a spec.
pub(crate) fn fields_of(spec: &Spec) -> Vec<FieldOf> {
    let of = |field: &feedline::dataset::Field| {
        let max = field.as_ragged().map(|ragged| ragged.max_per_sample());
        (field.name().to_owned(), field.dtype().name().to_owned(), field.shape().to_vec(), max)
    };
    spec.fields().iter().map(of).collect()
}

pub(crate) fn dtype_named(name: &str) -> feedline::Result<DType> {
    let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| Error::new(ErrorKind::Config, format!("batches have no elements of type {name}")))
}

/// A data set written in Python: a `_own.Reader`, which gives the bytes of each field.
pub(crate) struct OwnData {
    reader: Py<PyAny>,
    len: u64,
    spec: Spec,
    fingerprint: Option<u64>,
    /// Whether `read_many` reads several samples in one call.
    is_batched: bool,
    /// Whether samples depend on the epoch and on random numbers.
    varies: bool,
}

impl OwnData {
    pub(crate) fn new(
        reader: Py<PyAny>,
        len: u64,
        fields: &[FieldOf],
        fingerprint: Option<u64>,
        is_batched: bool,
        varies: bool,
    ) -> feedline::Result<Self> {
        Ok(Self { reader, len, spec: spec(fields)?, fingerprint, is_batched, varies })
    }

    /// Writes the bytes of a sample's fields.
    fn write(
        &self,
        py: Python<'_>,
        sample: Bound<'_, PyAny>,
        row: &mut Row<'_, '_>,
    ) -> Result<(), ReadError> {
        let raised = |error| -> ReadError { Raised::new(py, error).into() };
        let fields = sample.cast_into::<PyList>().map_err(|error| raised(error.into()))?;
        for (index, value) in fields.iter().enumerate() {
            let bytes = value.cast_into::<PyBytes>().map_err(|error| raised(error.into()))?;
            let field = &self.spec.fields()[index];
            if field.as_ragged().is_some() {
                row.write_ragged_bytes(index, bytes.as_bytes())?;
            } else if bytes.as_bytes().len() == field.row_bytes() {
                row.write(index, bytes.as_bytes());
            } else {
                let why = format!("field \"{}\" has {} bytes", field.name(), bytes.as_bytes().len());
                return Err(Error::new(ErrorKind::Sample, why).into());
            }
        }
        Ok(())
    }

    /// The epoch and a seed, if samples vary.
    fn random(&self, context: &mut Context) -> Option<(u64, u64)> {
        self.varies.then(|| (context.epoch(), context.random().below(u64::MAX)))
    }

    /// Reads a sample; `random` has the epoch and a seed, if samples vary.
    fn read_attached(
        &self,
        py: Python<'_>,
        id: u64,
        random: Option<(u64, u64)>,
        row: &mut Row<'_, '_>,
    ) -> Result<(), ReadError> {
        let reader = self.reader.bind(py);
        let sample = match random {
            Some((epoch, seed)) => reader.call_method1(intern!(py, "read_at"), (id, epoch, seed)),
            None => reader.call_method1(intern!(py, "read"), (id,)),
        };
        self.write(py, sample.map_err(|error| Raised::new(py, error))?, row)
    }
}

impl Dataset for OwnData {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        may_go_on(context)?;
        let random = self.random(context);
        attach(|py| self.read_attached(py, id, random, row))
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        let mut read = |py: Python<'_>| -> Option<()> {
            let samples =
                self.reader.bind(py).call_method1(intern!(py, "read_many"), (ids.to_vec(),)).ok()?;
            let samples = samples.cast_into::<PyList>().ok().filter(|samples| samples.len() == ids.len())?;
            for (index, sample) in samples.iter().enumerate() {
                self.write(py, sample, &mut rows.row(index)).ok()?;
            }
            Some(())
        };
        if self.is_batched && ids.len() > 1 && attach(|py| Ok(read(py))).ok().flatten().is_some() {
            return Ok(());
        }
        // One by one, also to find the sample that a batch cannot be read for. All in one attachment, which
        // costs more than a small sample.
        let mut at = 0;
        let read = |py: Python<'_>| {
            for (index, &id) in ids.iter().enumerate() {
                at = index;
                may_go_on(context)?;
                context.sample(index, id, |context| {
                    let random = self.random(context);
                    self.read_attached(py, id, random, &mut rows.row(index))
                })?;
            }
            Ok(())
        };
        attach(read).map_err(|error| (at, error))
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().spec(&self.spec).number(self.len);
        self.fingerprint.map_or(state, |own| state.number(own)).value()
    }
}

/// Calls the hook `hook` on a filled batch: a `_own.Hook`, which gets the bytes of each field that is not
/// ragged, and returns those that it changes.
pub(crate) fn call_hook(hook: &Py<PyAny>, batch: &mut FilledBatch<'_>) -> Result<(), ReadError> {
    let fixed: Vec<usize> = {
        let fields = batch.rows().spec().fields().iter().enumerate();
        fields.filter(|(_, field)| field.as_ragged().is_none()).map(|(index, _)| index).collect()
    };
    attach(|py| {
        let raised = |error| -> ReadError { Raised::new(py, error).into() };
        let rows = batch.len();
        let columns: Vec<_> =
            fixed.iter().map(|&index| PyBytes::new(py, batch.rows().column_mut(index))).collect();
        let changed = hook.bind(py).call1((columns, rows)).map_err(raised)?;
        let changed: Vec<Option<Bound<'_, PyBytes>>> = changed.extract().map_err(raised)?;
        for (&index, bytes) in fixed.iter().zip(&changed) {
            let Some(bytes) = bytes else { continue };
            let column = batch.rows().column_mut(index);
            if column.len() != bytes.as_bytes().len() {
                let why = format!("the hook returned {} bytes for {}", bytes.as_bytes().len(), column.len());
                return Err(Error::new(ErrorKind::Sample, why).into());
            }
            column.copy_from_slice(bytes.as_bytes());
        }
        Ok(())
    })
}
