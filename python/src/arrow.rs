//! Tables in memory, as `_tables.py` passes them on: Arrow's C stream, in a capsule.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Schema};
use feedline::{Error, ErrorKind};
use feedline_datasets::ArrowTable;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::dataset::detached;

/// A table in memory.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Table(pub(crate) ArrowTable);

#[pymethods]
impl Table {
    /// The table that a capsule from `__arrow_c_stream__` has. It keeps the memory of its columns, and copies
    /// none of them.
    #[staticmethod]
    fn of_capsule(py: Python<'_>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: by Arrow's PyCapsule interface, a capsule of this name has a stream, which its consumer
        // moves out. The capsule is borrowed, and `_tables.arrow` shows it to no other thread.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) };
        // A stream may run code of any kind.
        detached(py, || read(stream)).map(Self)
    }

    /// The table of the bytes that a pickle has.
    #[staticmethod]
    fn of_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        detached(py, || ArrowTable::of_stream(bytes)).map(Self)
    }

    /// The bytes for a pickle.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &detached(py, || self.0.to_stream())?))
    }
}

/// The table of all record batches of a stream.
fn read(stream: FFI_ArrowArrayStream) -> feedline::Result<ArrowTable> {
    let failed =
        |error: ArrowError| Error::new(ErrorKind::Data, "cannot read the table in memory").with_source(error);
    let mut reader = ArrayStreamReader::try_new(stream).map_err(failed)?;
    let DataType::Struct(fields) = reader.field().data_type().clone() else {
        let why = format!("this is a column of {}, and not a table", reader.field().data_type());
        return Err(Error::new(ErrorKind::Config, why + ": give the table, or make one of the column"));
    };
    let schema = Arc::new(Schema::new(fields).with_metadata(reader.field().metadata().clone()));
    let (mut batches, mut rows) = (Vec::new(), 0);
    for array in reader.by_ref() {
        let array = array.map_err(failed)?;
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(row) = nulls.and_then(|nulls| (0..nulls.len()).find(|&row| nulls.is_null(row))) {
            let why = format!("row {} of the table is null: leave it out", rows + row);
            return Err(Error::new(ErrorKind::Data, why));
        }
        rows += array.len();
        let columns = array.as_struct().columns().to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
        batches.push(RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(failed)?);
    }
    ArrowTable::new(schema, batches)
}
