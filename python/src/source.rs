//! Sources written in Python. They are iterables without a length. One worker at a time reads a source, in
//! sequence.
//!
//! A record has the bytes of each field. For a ragged field, the number of bytes comes first. Decoding a
//! record does not need the interpreter.

use std::path::Path;
use std::sync::Arc;

use feedline::dataset::PackedSource;
use feedline::source::{Next, Shard};
use feedline::{Context, Error, ErrorKind, ReadError, Row, Spec};
use feedline_core::Fingerprint;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyIterator;

use crate::error::{Raised, raise};
use crate::interpreter::attach;
use crate::own::{FieldOf, fields_of, spec};
use crate::text::Packing;

/// A source written in Python, or windows of such a source; see `feedline.Source`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Source(pub(crate) AnySource);

/// What a loader reads.
#[derive(Clone)]
pub(crate) enum AnySource {
    Own(OwnSource),
    Packed(Arc<PackedSource>),
}

impl AnySource {
    fn inner(&self) -> &dyn feedline::source::Source {
        match self {
            Self::Own(source) => source,
            Self::Packed(source) => &**source,
        }
    }
}

impl feedline::source::Source for AnySource {
    fn shards(&self) -> u64 {
        self.inner().shards()
    }

    fn spec(&self) -> &Spec {
        self.inner().spec()
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        self.inner().open(epoch, shard, offset)
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.inner().decode(record, row, context)
    }

    fn path(&self, shard: u64) -> Option<&Path> {
        self.inner().path(shard)
    }

    fn fingerprint(&self) -> u64 {
        self.inner().fingerprint()
    }
}

#[pymethods]
impl Source {
    /// Creates a source from a `_shards.Shards`, which opens its shards.
    #[new]
    fn new(shards: Py<PyAny>, count: u64, fields: Vec<FieldOf>, fingerprint: Option<u64>) -> PyResult<Self> {
        let spec = spec(&fields).map_err(raise)?;
        Ok(Self(AnySource::Own(OwnSource(Arc::new(Inner { shards, count, spec, fingerprint })))))
    }

    /// Packs the documents of this source into windows of one size.
    fn packed(&self, packing: Packing) -> PyResult<Self> {
        let packed = packing.of_source(self.0.clone()).map_err(raise)?;
        Ok(Self(AnySource::Packed(Arc::new(packed))))
    }

    /// The summary of the documents so far; `None` if the source is not packed.
    #[getter]
    fn fate(&self) -> Option<String> {
        match &self.0 {
            AnySource::Own(_) => None,
            AnySource::Packed(source) => Some(source.fate().to_string()),
        }
    }

    /// The fields, in the same form as those of a data set.
    fn fields(&self) -> Vec<FieldOf> {
        fields_of(feedline::source::Source::spec(&self.0))
    }

    #[getter]
    fn fingerprint(&self) -> u64 {
        feedline::source::Source::fingerprint(&self.0)
    }
}

/// A source written in Python.
#[derive(Clone)]
pub(crate) struct OwnSource(Arc<Inner>);

struct Inner {
    shards: Py<PyAny>,
    count: u64,
    spec: Spec,
    fingerprint: Option<u64>,
}

impl feedline::source::Source for OwnSource {
    fn shards(&self) -> u64 {
        self.0.count
    }

    fn spec(&self) -> &Spec {
        &self.0.spec
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        attach(|py| {
            let samples = self.0.shards.bind(py).call_method1(intern!(py, "open"), (epoch, shard, offset));
            let samples = samples.and_then(|samples| Ok(samples.cast_into::<PyIterator>()?));
            let samples = samples.map_err(|error| Raised::new(py, error))?.unbind();
            Ok(Box::new(OpenShard { samples: Some(samples), offset }) as Box<dyn Shard>)
        })
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let mut rest = record;
        for (index, field) in self.0.spec.fields().iter().enumerate() {
            let is_ragged = field.as_ragged().is_some();
            let bytes =
                if is_ragged { length(take(&mut rest, size_of::<u64>())?)? } else { field.row_bytes() };
            row.put(index, take(&mut rest, bytes)?)?;
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().spec(&self.0.spec).number(self.0.count);
        self.0.fingerprint.map_or(state, |own| state.number(own)).value()
    }
}

/// The first `count` bytes of a record.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], ReadError> {
    let (taken, left) = rest.split_at_checked(count).ok_or_else(short)?;
    *rest = left;
    Ok(taken)
}

fn length(bytes: &[u8]) -> Result<usize, ReadError> {
    let bytes = bytes.try_into().map_err(|_| short())?;
    usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| short())
}

fn short() -> ReadError {
    Error::new(ErrorKind::Sample, "a record is shorter than its fields").into()
}

/// A field of a sample: its bytes, and its length if it is ragged.
#[derive(FromPyObject)]
enum Value {
    Fixed(PyBackedBytes),
    Ragged(PyBackedBytes, #[expect(dead_code, reason = "the bytes say it")] Vec<usize>),
}

/// An open iterator of `_shards.Shards.open`.
struct OpenShard {
    /// `None` only in `drop`.
    samples: Option<Py<PyIterator>>,
    /// The number of the next sample.
    offset: u64,
}

impl Shard for OpenShard {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        let Some(samples) = &self.samples else { return Ok(Next::End) };
        let next = attach(|py| {
            let raised = |error| -> ReadError { Raised::new(py, error).into() };
            let Some(sample) = samples.bind(py).clone().next() else { return Ok(Next::End) };
            let sample: Option<Vec<Value>> = sample.and_then(|sample| sample.extract()).map_err(raised)?;
            // Of a shard that is read once and has none yet.
            let Some(sample) = sample else { return Ok(Next::Later) };
            for value in &sample {
                let bytes = match value {
                    Value::Fixed(bytes) => bytes,
                    Value::Ragged(bytes, _) => {
                        record.extend((bytes.len() as u64).to_le_bytes());
                        bytes
                    }
                };
                record.extend_from_slice(bytes);
            }
            Ok(Next::Record)
        })?;
        self.offset += u64::from(next == Next::Record);
        Ok(next)
    }
}

impl Drop for OpenShard {
    /// Ends the iterator on this thread, because a generator may have a `finally`.
    fn drop(&mut self) {
        let samples = self.samples.take();
        // This is not possible once the interpreter shuts down.
        let _ = attach(|_| {
            drop(samples);
            Ok(())
        });
    }
}
