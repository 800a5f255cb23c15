//! A batch, and its fields as objects that speak DLPack.

use std::sync::Arc;

use feedline::dataset::Form;
use feedline::{Error, ErrorKind};
use feedline_dlpack::ffi::{CUDA, DLDevice};
use feedline_dlpack::{Consumer, Exported, Share, device_of, stream_of};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::capsule::capsule;
use crate::error::{no_field, raise};
use crate::interpreter::detached;
use crate::pictures::{PictureBatch, Place};

/// Where the fields of a batch are.
pub(crate) enum Memory {
    /// In a slot of the loader.
    Slot(Share),
    /// Behind the loader, in memory of the stage that decoded it.
    Pictures(Box<PictureBatch>),
}

impl From<PictureBatch> for Memory {
    fn from(batch: PictureBatch) -> Self {
        Self::Pictures(Box::new(batch))
    }
}

/// A batch. Its memory is free for another one once the batch and all tensors of it are dropped.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Batch {
    memory: Arc<Memory>,
    /// The step of the epoch at which the loader was resumed.
    first_step: u64,
}

impl Batch {
    pub(crate) fn new(memory: Memory, first_step: u64) -> Self {
        Self { memory: Arc::new(memory), first_step }
    }
}

#[pymethods]
impl Batch {
    /// The epoch.
    #[getter]
    fn epoch(&self) -> u64 {
        match &*self.memory {
            Memory::Slot(share) => share.batch().epoch(),
            Memory::Pictures(batch) => batch.info.epoch,
        }
    }

    /// The step within the epoch.
    #[getter]
    fn step(&self) -> u64 {
        self.first_step
            + match &*self.memory {
                Memory::Slot(share) => share.batch().step(),
                Memory::Pictures(batch) => batch.info.step,
            }
    }

    /// Rows, with those that pad the last batch.
    #[getter]
    fn rows(&self) -> usize {
        match &*self.memory {
            Memory::Slot(share) => share.batch().len(),
            Memory::Pictures(batch) => batch.info.ids.len(),
        }
    }

    /// Rows without those that pad the last batch.
    #[getter]
    fn valid_rows(&self) -> usize {
        match &*self.memory {
            Memory::Slot(share) => share.batch().valid_rows(),
            Memory::Pictures(batch) => batch.info.valid,
        }
    }

    /// The id of each row's sample: native `u64`.
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let ids = match &*self.memory {
            Memory::Slot(share) => share.batch().ids(),
            Memory::Pictures(batch) => &batch.info.ids,
        };
        PyBytes::new(py, bytemuck::cast_slice(ids))
    }

    /// Rows whose own samples could not be read: the row, and the sample that replaces it.
    fn substituted(&self) -> Vec<(usize, u64)> {
        match &*self.memory {
            Memory::Slot(share) => {
                share.batch().substituted().iter().map(|bad| (bad.row, bad.substitute)).collect()
            }
            Memory::Pictures(batch) => batch.info.substituted.clone(),
        }
    }

    /// The values of the field `name`.
    fn field(&self, name: &str) -> PyResult<Field> {
        match &*self.memory {
            Memory::Slot(share) => drop(share.batch().spec().index_of(name).map_err(no_field)?),
            Memory::Pictures(batch) if batch.has(name) => {}
            Memory::Pictures(_) => return Err(PyKeyError::new_err(format!("no field \"{name}\""))),
        }
        Ok(Field { memory: self.memory.clone(), name: name.to_owned(), part: Part::Values })
    }

    /// The offsets of a ragged field, or the lengths of a padded one.
    fn numbers(&self, name: &str) -> PyResult<Field> {
        let part = match &*self.memory {
            Memory::Slot(share) => {
                let spec = share.batch().spec();
                let field = &spec.fields()[spec.index_of(name).map_err(no_field)?];
                match field.as_ragged().map(|ragged| ragged.form()) {
                    Some(Form::Padded(_)) => Part::Lengths,
                    _ => Part::Offsets,
                }
            }
            // They have no ragged fields.
            Memory::Pictures(_) => return Err(PyKeyError::new_err(format!("no ragged field \"{name}\""))),
        };
        Ok(Field { memory: self.memory.clone(), name: name.to_owned(), part })
    }

    /// Whether a tensor of this batch is alive.
    fn is_in_use(&self) -> bool {
        match &*self.memory {
            Memory::Slot(share) => share.is_in_use(),
            Memory::Pictures(batch) => batch.is_in_use(),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a batch cannot be pickled: it is memory of the loader; pickle copies of its arrays",
        ))
    }
}

/// A part of a field's memory.
#[derive(Clone, Copy)]
enum Part {
    Values,
    Offsets,
    Lengths,
}

/// A field of a batch, for `from_dlpack` of a framework.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Field {
    memory: Arc<Memory>,
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
        let tensor = detached(py, || self.tensor(consumer)).map_err(raise)?;
        capsule(py, tensor, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// NumPy's description of the memory, for elements that it has no name for: they are unsigned numbers.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device().device_type == CUDA {
            return Err(PyAttributeError::new_err("the batch is on a GPU"));
        }
        let tensor = detached(py, || self.tensor(Consumer::Cpu)).map_err(raise)?;
        let described = &tensor.get().dl_tensor;
        let rank = usize::try_from(described.ndim).unwrap_or(0);
        // SAFETY: `ndim` sizes, alive as long as `tensor`.
        let shape = unsafe { std::slice::from_raw_parts(described.shape, rank) };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, shape)?)?;
        interface.set_item("typestr", format!("<u{}", described.dtype.bits / 8))?;
        // Read-only. The array keeps this object, which keeps the slot.
        interface.set_item("data", (described.data as usize, true))?;
        Ok(interface)
    }
}

impl Field {
    fn device(&self) -> DLDevice {
        match &*self.memory {
            Memory::Slot(share) => share.device(),
            Memory::Pictures(batch) => device_of(&batch.device),
        }
    }

    fn tensor(&self, consumer: Consumer) -> Result<Exported, Error> {
        match (&*self.memory, self.part) {
            (Memory::Slot(share), Part::Values) => share.tensor(&self.name, consumer),
            (Memory::Slot(share), Part::Offsets) => share.offsets(&self.name, consumer),
            (Memory::Slot(share), Part::Lengths) => share.lengths(&self.name, consumer),
            (Memory::Pictures(batch), _) => pictures(batch, &self.name, consumer),
        }
    }
}

/// The field `name` of finished pictures as a tensor.
fn pictures(batch: &PictureBatch, name: &str, consumer: Consumer) -> Result<Exported, Error> {
    let is_cuda = device_of(&batch.device).device_type == CUDA;
    let stream = match consumer {
        // The consumer knows no stream of ours.
        Consumer::BatchStream if is_cuda => stream_of(&batch.device, Consumer::DefaultStream)?,
        consumer if is_cuda => stream_of(&batch.device, consumer)?,
        _ => batch.device.clone(),
    };
    let Some(place) = batch.place(name, &stream)? else {
        return Err(Error::new(ErrorKind::Config, format!("no field \"{name}\"")));
    };
    if !is_cuda {
        stream.synchronize()?;
    }
    let Place { owner, dtype, address, shape } = place;
    // SAFETY: `place` returns memory of `owner` in this shape. The stage writes it again once `owner` is
    // dropped, after the work of `stream`, which lives on: frameworks do not destroy theirs.
    Ok(unsafe { Exported::of_memory(owner, device_of(&batch.device), dtype, address, shape) })
}

/// The error of a loader that is closed.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the loader is closed: make another one")
}
