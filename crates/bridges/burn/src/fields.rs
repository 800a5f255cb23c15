//! A batch in host memory, and its fields as tensors.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use feedline::dataset::{Element, Field};
use feedline::{DType, Error, ErrorKind, HostBatch, Result};

use crate::slot;

/// Evaluates `$of` with `$T` as the Rust type of `$dtype`.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $of:expr) => {
        with_type!(@ $dtype, $T => $of; U8 u8, Bool u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, I64 i64,
            F16 half::f16, BF16 half::bf16, F32 f32, F64 f64)
    };
    (@ $dtype:expr, $T:ident => $of:expr; $($name:ident $rust:ty),+) => {
        match $dtype {
            $(DType::$name => {
                type $T = $rust;
                $of
            })+
        }
    };
}

/// A batch of a host loader. Its tensors keep it.
pub struct Fields {
    batch: Arc<HostBatch>,
}

impl Fields {
    /// The fields of `batch`.
    pub fn new(batch: HostBatch) -> Self {
        Self { batch: Arc::new(batch) }
    }

    /// The batch: its ids, epoch, step and spec.
    pub fn batch(&self) -> &HostBatch {
        &self.batch
    }

    /// The field `name`, `[rows, shape...]`, of the field's type, `u8` for `Bool`; no copy. A padded field is
    /// `[rows, width, item...]`.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a ragged field that is not padded.
    pub fn data(&self, name: &str) -> Result<TensorData> {
        with_type!(self.field(name)?.dtype(), T => self.values::<T>(name))
    }

    /// The lengths of the rows of the padded field `name`: u32, `[rows]`; no copy.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field that is not padded.
    pub fn lengths(&self, name: &str) -> Result<TensorData> {
        let shape = vec![self.batch.len()];
        with_type!(self.field(name)?.dtype(), T => {
            self.share(shape, |batch| Ok(batch.padded::<T>(name)?.1))
        })
    }

    fn field(&self, name: &str) -> Result<&Field> {
        let spec = self.batch.spec();
        Ok(&spec.fields()[spec.index_of(name)?])
    }

    fn values<T: Element + burn::tensor::Element>(&self, name: &str) -> Result<TensorData> {
        let (rows, field) = (self.batch.len(), self.field(name)?);
        if field.as_ragged().is_none() {
            let shape = [&[rows], field.shape()].concat();
            return self.share(shape, |batch| batch.field::<T>(name));
        }
        let items = size_of_val(self.batch.padded::<T>(name)?.0) / field.item_bytes();
        let width = items.checked_div(rows).unwrap_or(0);
        let shape = [&[rows, width], field.shape()].concat();
        self.share(shape, |batch| Ok(batch.padded::<T>(name)?.0))
    }

    /// The field that `of` picks from this batch, as data.
    fn share<T: Element + burn::tensor::Element>(
        &self,
        shape: Vec<usize>,
        of: impl for<'a> FnOnce(&'a HostBatch) -> Result<&'a [T]>,
    ) -> Result<TensorData> {
        let bytes = slot::bytes(&self.batch, of)?;
        TensorData::try_from_bytes(bytes, shape, <T as burn::tensor::Element>::dtype())
            .map_err(|error| Error::new(ErrorKind::Config, "burn refuses the field").with_source(error))
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
