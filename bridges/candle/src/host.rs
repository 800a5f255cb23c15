//! Tensors on the CPU: one copy, on the batch's stream.

use std::sync::mpsc::channel;

use candle_core::{Device, Tensor, WithDType};
use feedline::{DType, Element, Error, ErrorKind, Ready, Result};
use half::{bf16, f16};

use crate::{failed, no_such_tensor, shape};

/// The field `name` of a batch in host memory.
pub(crate) fn tensor(batch: &Ready, name: &str) -> Result<Tensor> {
    let (shape, dtype) = shape(batch, name)?;
    match dtype {
        DType::U8 => copy::<u8>(batch, name, shape),
        DType::I16 => copy::<i16>(batch, name, shape),
        DType::U32 => copy::<u32>(batch, name, shape),
        DType::I32 => copy::<i32>(batch, name, shape),
        DType::I64 => copy::<i64>(batch, name, shape),
        DType::F16 => copy::<f16>(batch, name, shape),
        DType::BF16 => copy::<bf16>(batch, name, shape),
        DType::F32 => copy::<f32>(batch, name, shape),
        DType::F64 => copy::<f64>(batch, name, shape),
        DType::I8 | DType::U16 => Err(no_such_tensor(name, dtype)),
    }
}

fn copy<T: Element + WithDType>(batch: &Ready, name: &str, shape: Vec<usize>) -> Result<Tensor> {
    let view = batch.field::<T>(name)?;
    let (send, copied) = channel();
    let stream = batch.stream();
    stream.run("copy to candle", [view.into()], [], move |memory| {
        // The receiver waits below.
        let _ = send.send(memory.input::<T>(0).to_vec());
    })?;
    stream.synchronize()?;
    let values = copied
        .recv()
        .map_err(|_| Error::new(ErrorKind::Device, "the copy of a batch to candle did not run"))?;
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| failed(error, "make a tensor"))
}
