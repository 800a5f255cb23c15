//! A batch in host memory, and its fields as tensors.

use std::sync::Arc;

use burn::tensor::{DType as BurnType, Device, Int, Tensor, TensorData};
use feedline::{BackendKind, DType, Element, Error, ErrorKind, Ready, Result, View};

use crate::slot;

/// A batch that has arrived in host memory. Its tensors keep it.
pub struct Fields {
    batch: Arc<Ready>,
}

impl Fields {
    /// Waits for the batch; blocks until its copy into the slot has ended.
    ///
    /// # Errors
    /// `Config` for a batch that is not on the host device; a device failure.
    pub fn new(batch: Ready) -> Result<Self> {
        if batch.stream().kind() != BackendKind::Host {
            let why = format!(
                "the batch is on {}, and burn takes host memory, which it copies to its device: build the \
                 loader on Device::host()",
                batch.stream().device()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        batch.stream().synchronize()?;
        Ok(Self { batch: Arc::new(batch) })
    }

    /// The batch: its ids, epoch, step and spec.
    pub fn batch(&self) -> &Ready {
        &self.batch
    }

    /// The field `name`, `[rows, shape...]`, of the field's type; no copy. A padded field is
    /// `[rows, width, item...]`.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a ragged field that is not padded.
    pub fn data(&self, name: &str) -> Result<TensorData> {
        let field = &self.batch.spec().fields()[self.batch.spec().index_of(name)?];
        match field.dtype() {
            DType::U8 => self.of::<u8>(name, BurnType::U8),
            DType::I8 => self.of::<i8>(name, BurnType::I8),
            DType::U16 => self.of::<u16>(name, BurnType::U16),
            DType::I16 => self.of::<i16>(name, BurnType::I16),
            DType::U32 => self.of::<u32>(name, BurnType::U32),
            DType::I32 => self.of::<i32>(name, BurnType::I32),
            DType::I64 => self.of::<i64>(name, BurnType::I64),
            DType::F16 => self.of::<half::f16>(name, BurnType::F16),
            DType::BF16 => self.of::<half::bf16>(name, BurnType::BF16),
            DType::F32 => self.of::<f32>(name, BurnType::F32),
            DType::F64 => self.of::<f64>(name, BurnType::F64),
        }
    }

    /// The lengths of the rows of the padded field `name`: u32, `[rows]`; no copy.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field that is not padded.
    pub fn lengths(&self, name: &str) -> Result<TensorData> {
        self.share(self.batch.lengths(name)?, vec![self.batch.len()], BurnType::U32)
    }

    fn of<T: Element>(&self, name: &str, dtype: BurnType) -> Result<TensorData> {
        let field = &self.batch.spec().fields()[self.batch.spec().index_of(name)?];
        if field.as_ragged().is_none() {
            let shape = [&[self.batch.len()], field.shape()].concat();
            return self.share(self.batch.field::<T>(name)?, shape, dtype);
        }
        let padded = self.batch.padded::<T>(name)?;
        self.share(padded.values, [&[self.batch.len(), padded.width], field.shape()].concat(), dtype)
    }

    /// A view of this batch as data.
    fn share<T: Element>(&self, view: View<'_, T>, shape: Vec<usize>, dtype: BurnType) -> Result<TensorData> {
        let len = view.len() * size_of::<T>();
        // SAFETY: the view's bytes, in host memory, which have arrived (`new`).
        let bytes = unsafe { slot::bytes(view.address().0, len, align_of::<T>(), self.batch.clone()) };
        TensorData::try_from_bytes(bytes, shape, dtype)
            .map_err(|error| Error::new(ErrorKind::Config, "burn refuses the field").caused_by(error))
    }

    /// A float field as a tensor of the field's type on `device`.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a field of integers, or another number of dimensions
    /// than `D`.
    pub fn float<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D>> {
        let data = self.checked::<D>(name)?;
        if !data.dtype().is_float() {
            let why =
                format!("field \"{name}\" holds integers: take it with int(), and convert it with .float()");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let dtype = data.dtype();
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// An integer field as a tensor of the field's type on `device`.
    ///
    /// burn's losses and metrics take the device's own integer type: for those,
    /// `Tensor::from_data(fields.data(name)?, device)` converts.
    ///
    /// # Errors
    /// As [`float`](Self::float), for a field of floats.
    pub fn int<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D, Int>> {
        let data = self.checked::<D>(name)?;
        if data.dtype().is_float() {
            let why = format!("field \"{name}\" holds floats: take it with float()");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let dtype = data.dtype();
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// The data of a field of `D` dimensions.
    fn checked<const D: usize>(&self, name: &str) -> Result<TensorData> {
        let data = self.data(name)?;
        let dimensions = data.shape().num_dims();
        if dimensions != D {
            let why = format!("field \"{name}\" has {dimensions} dimensions with the rows, not {D}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(data)
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fields({:?})", self.batch)
    }
}
