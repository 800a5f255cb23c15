//! Tensors on the CPU: one copy.

use std::sync::mpsc::channel;

use candle_core::{Device, Tensor, WithDType};
use feedline::dataset::Element;
use feedline::device::BackendKind;
use feedline::{DType, Error, ErrorKind, Ready, Result, View};
use feedline_device::launch_host;
use half::{bf16, f16};

use crate::{dtype, failed, no_such_tensor, view};

/// The field `name` of a batch in host memory.
pub(crate) fn tensor(batch: &Ready, name: &str) -> Result<Tensor> {
    let dtype = dtype(batch, name)?;
    match dtype {
        DType::U8 => copy(batch, view::<u8>(batch, name)?),
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
    let values = if batch.stream().kind() == BackendKind::Host {
        batch.in_place(&view)?.to_vec()
    } else {
        copy_on_stream(batch, view)?
    };
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| failed(error, "make a tensor"))
}

/// The elements of a view, copied by the stream: a simulated device does not say where its memory is.
fn copy_on_stream<T: Element>(batch: &Ready, view: View<'_, T>) -> Result<Vec<T>> {
    let (send, copied) = channel();
    let stream = batch.stream();
    // Counted as a wait for data, unlike the wait for the stream below.
    batch.wait_until_copied()?;
    launch_host(stream, "copy to candle", [view.into()], [], move |memory| {
        // The receiver waits below.
        let _ = send.send(memory.input::<T>(0).to_vec());
    })?;
    stream.synchronize()?;
    copied.recv().map_err(|_| Error::new(ErrorKind::Device, "the copy of a batch to candle did not run"))
}
