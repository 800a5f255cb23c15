//! A batch, and its fields as objects that support DLPack.

use std::sync::Arc;

use feedline::bad_samples::Failure;
use feedline::dataset::Form;
use feedline::{DType, Error, ErrorKind};
use feedline_dlpack::ffi::{CUDA, DLDevice};
use feedline_dlpack::{Consumer, Exported, Share};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::capsule::capsule;
use crate::error::{no_field, raise};
use crate::interpreter::detached;
use crate::own::dtype_named;

/// A batch. Its memory is free for another batch once the batch and all its tensors are dropped.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Batch {
    share: Arc<Share>,
    /// The step at which the loader was resumed in this epoch.
    first_step: u64,
}

impl Batch {
    pub(crate) fn new(share: Share, first_step: u64) -> Self {
        Self { share: Arc::new(share), first_step }
    }
}

#[pymethods]
impl Batch {
    /// The epoch.
    #[getter]
    fn epoch(&self) -> u64 {
        self.share.batch().epoch()
    }

    /// The step within the epoch.
    #[getter]
    fn step(&self) -> u64 {
        self.first_step + self.share.batch().step()
    }

    /// Number of rows. Rows that pad the last batch count.
    #[getter]
    fn rows(&self) -> usize {
        self.share.batch().len()
    }

    /// Number of rows. Rows that pad the last batch do not count.
    #[getter]
    fn valid_rows(&self) -> usize {
        self.share.batch().valid_rows()
    }

    /// The sample id of each row, as native `u64`.
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, bytemuck::cast_slice(self.share.batch().ids()))
    }

    /// Rows whose own samples could not be read. Each has the row and the sample that replaces its own.
    fn substituted(&self) -> Vec<(usize, u64)> {
        self.share.batch().substituted().iter().map(|bad| (bad.row, bad.substitute)).collect()
    }

    /// The failed reads of these rows, each with the row, the sample that could not be read, its file if
    /// known, and the reason: of the row's own sample, then of other substitutes.
    fn failures(&self) -> Vec<(usize, u64, Option<String>, String)> {
        let substituted = self.share.batch().substituted().iter();
        let failed = substituted.flat_map(|bad| bad.failures.iter().map(|failure| (bad.row, failure)));
        let path = |failure: &Failure| failure.path.as_ref().map(|path| path.display().to_string());
        failed.map(|(row, failure)| (row, failure.sample, path(failure), failure.cause.clone())).collect()
    }

    /// The values of the field `name`.
    fn field(&self, name: &str) -> PyResult<Field> {
        self.share.batch().spec().index_of(name).map_err(no_field)?;
        Ok(Field { share: self.share.clone(), name: name.to_owned(), part: Part::Values })
    }

    /// An array that was written as bytes of the field `name`, from `offset` on.
    fn part(&self, name: &str, offset: usize, dtype: &str, shape: Vec<usize>) -> PyResult<Field> {
        self.share.batch().spec().index_of(name).map_err(no_field)?;
        let dtype = dtype_named(dtype).map_err(raise)?;
        Ok(Field {
            share: self.share.clone(),
            name: name.to_owned(),
            part: Part::Array(offset, dtype, shape),
        })
    }

    /// The offsets of a ragged field, or the lengths of a padded one.
    fn numbers(&self, name: &str) -> PyResult<Field> {
        let spec = self.share.batch().spec();
        let field = &spec.fields()[spec.index_of(name).map_err(no_field)?];
        let part = match field.as_ragged().map(|ragged| ragged.form()) {
            Some(Form::Padded(_)) => Part::Lengths,
            _ => Part::Offsets,
        };
        Ok(Field { share: self.share.clone(), name: name.to_owned(), part })
    }

    /// Whether a tensor of this batch is alive.
    fn is_in_use(&self) -> bool {
        self.share.is_in_use()
    }

    /// Items of the longest row of a ragged field. If the numbers are running sums, this is the largest
    /// difference.
    fn longest(&self, name: &str) -> PyResult<usize> {
        self.share.batch().longest(name).map_err(raise)
    }

    /// The bytes of all rows of a field that the host keeps.
    fn kept<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.share.batch().host_rows(name).map_err(raise)?.bytes))
    }

    /// The bytes of each row of a field that the host keeps.
    fn host_rows<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let kept = self.share.batch().host_rows(name).map_err(raise)?;
        Ok(kept.rows().map(|row| PyBytes::new(py, row)).collect())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a batch cannot be pickled: it is memory of the loader; pickle copies of its arrays",
        ))
    }
}

/// A part of a field's memory.
enum Part {
    Values,
    /// Bytes from an offset on, as elements of a type and a shape.
    Array(usize, DType, Vec<usize>),
    Offsets,
    Lengths,
}

/// A field of a batch, for a framework's `from_dlpack`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Field {
    share: Arc<Share>,
    name: String,
    part: Part,
}

#[pymethods]
impl Field {
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.device();
        (device.device_type, device.device_id)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            let why = format!(
                "the batch is on device {:?} of DLPack and is not copied to another",
                self.__dlpack_device__()
            );
            return Err(PyBufferError::new_err(why));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("a batch shares its memory: copy the array after it is made"));
        }
        let is_cuda = self.device().device_type == CUDA;
        // SAFETY: DLPack's contract for the argument: a stream of this device, valid while it is used.
        let consumer = unsafe { Consumer::from_python(stream, is_cuda) }.map_err(raise)?;
        // A batch on the host is ready when it is delivered. If the interpreter's lock were released here, a
        // thread that reads samples would take it for a whole call.
        let tensor = if is_cuda { detached(py, || self.tensor(consumer)) } else { self.tensor(consumer) };
        let tensor = tensor.map_err(raise)?;
        capsule(py, tensor, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// NumPy's description of the memory. If NumPy lacks the type of the elements, they are described as
    /// unsigned integers.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device().device_type == CUDA {
            return Err(PyAttributeError::new_err("the batch is on a GPU"));
        }
        // The same rules apply as in `__dlpack__`.
        let tensor = self.tensor(Consumer::Cpu).map_err(raise)?;
        let described = &tensor.get().dl_tensor;
        let rank = usize::try_from(described.ndim).unwrap_or(0);
        // SAFETY: `ndim` sizes, alive as long as `tensor`.
        let shape = unsafe { std::slice::from_raw_parts(described.shape, rank) };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, shape)?)?;
        interface.set_item("typestr", format!("<u{}", described.dtype.bits / 8))?;
        // The data is read-only. The array keeps this object alive, and this object keeps the slot.
        interface.set_item("data", (described.data as usize, true))?;
        Ok(interface)
    }
}

impl Field {
    fn device(&self) -> DLDevice {
        self.share.device()
    }

    fn tensor(&self, consumer: Consumer) -> Result<Exported, Error> {
        match &self.part {
            Part::Values => self.share.tensor(&self.name, consumer),
            Part::Array(offset, dtype, shape) => {
                self.share.part(&self.name, (*offset, *dtype, shape.clone()), consumer)
            }
            Part::Offsets => self.share.offsets(&self.name, consumer),
            Part::Lengths => self.share.lengths(&self.name, consumer),
        }
    }
}

/// The error for a closed loader.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the loader is closed: make another one")
}
