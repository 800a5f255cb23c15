//! Tables in memory, as `_tables.py` passes them on: Arrow's C stream, in a capsule.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, RecordBatch, RecordBatchOptions};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use feedline::{Error, ErrorKind};
use feedline_datasets::ArrowTable;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::dataset::detached;

/// A table in memory.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// The table of all record batches of a stream.
    fn of_reader(
        schema: SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    ) -> feedline::Result<Self> {
        Ok(Self { schema, batches: batches.collect::<Result<_, _>>().map_err(failed)? })
    }

    /// What functions of Rust open. It shares the memory.
    pub(crate) fn opened(&self) -> feedline::Result<ArrowTable> {
        ArrowTable::new(self.schema.clone(), self.batches.clone())
    }
}

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
        detached(py, || read(stream))
    }

    /// The table of the bytes that a pickle has: a stream of Arrow's interprocess format.
    #[staticmethod]
    fn of_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        detached(py, || {
            let reader = StreamReader::try_new(bytes, None).map_err(failed)?;
            Self::of_reader(reader.schema(), reader)
        })
    }

    /// The bytes for a pickle.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let write = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.schema)?;
            self.batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.into_inner()
        };
        Ok(PyBytes::new(py, &detached(py, || write().map_err(failed))?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr(intern!(py, "of_bytes"))?, (self.to_bytes(py)?,)))
    }
}

fn failed(error: ArrowError) -> Error {
    Error::new(ErrorKind::Data, "cannot read the table in memory").with_source(error)
}

/// The table of a stream of another library.
fn read(stream: FFI_ArrowArrayStream) -> feedline::Result<Table> {
    let mut reader = ArrayStreamReader::try_new(stream).map_err(failed)?;
    let DataType::Struct(fields) = reader.field().data_type().clone() else {
        let why = format!("this is a column of {}, and not a table", reader.field().data_type());
        return Err(Error::new(ErrorKind::Config, why + ": give the table, or make one of the column"));
    };
    let schema = Arc::new(Schema::new(fields).with_metadata(reader.field().metadata().clone()));
    let mut rows = 0;
    let batches = reader.by_ref().map(|array| {
        let array = array?;
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(row) = nulls.and_then(|nulls| (0..nulls.len()).find(|&row| nulls.is_null(row))) {
            let why = format!("row {} of the table is null: leave it out", rows + row);
            return Err(ArrowError::InvalidArgumentError(why));
        }
        rows += array.len();
        let columns = array.as_struct().columns().to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
    });
    Table::of_reader(schema.clone(), batches)
}
