//! Tensors on the CPU: one copy.

use candle_core::{Device, Tensor, WithDType};
use feedline::dataset::Element;
use feedline::device::BackendKind;
use feedline::{DType, Ready, Result, View};
use half::{bf16, f16};

use crate::{dtype, failed, no_such_tensor, view};

/// The field `name` of a batch in host memory.
pub(crate) fn tensor(batch: &Ready, name: &str) -> Result<Tensor> {
    let dtype = dtype(batch, name)?;
    match dtype {
        DType::U8 | DType::Bool => copy(batch, view::<u8>(batch, name)?),
        DType::I16 => copy(batch, view::<i16>(batch, name)?),
        DType::U32 => copy(batch, view::<u32>(batch, name)?),
        DType::I32 => copy(batch, view::<i32>(batch, name)?),
        DType::I64 => copy(batch, view::<i64>(batch, name)?),
        DType::F16 => copy(batch, view::<f16>(batch, name)?),
        DType::BF16 => copy(batch, view::<bf16>(batch, name)?),
        DType::F32 => copy(batch, view::<f32>(batch, name)?),
        DType::F64 => copy(batch, view::<f64>(batch, name)?),
        DType::I8 | DType::U16 => Err(no_such_tensor(name, dtype)),
    }
}

/// A copy of a view of the batch.
pub(crate) fn copy<T: Element + WithDType>(
    batch: &Ready,
    (view, shape): (View<'_, T>, Vec<usize>),
) -> Result<Tensor> {
    let values = if batch.stream().device().kind() == BackendKind::Host {
        batch.read_in_place(&view)?.to_vec()
    } else {
        // A simulated device does not say where its memory is.
        batch.wait_until_copied()?;
        view.to_vec()?
    };
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| failed(error, "make a tensor"))
}
