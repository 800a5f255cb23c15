//! Tensors on a GPU: one copy from the slot to memory of candle's, on the device.

use std::sync::{Mutex, PoisonError};

use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaStorage};
use candle_core::op::BackpropOp;
use candle_core::{Storage, Tensor};
use feedline::dataset::Element;
use feedline::device::cuda::cudarc::driver::{CudaEvent, DeviceRepr, DriverError};
use feedline::{DType, Device, Error, ErrorKind, Ready, Result, Stream, View};
use half::{bf16, f16};

use crate::{dtype, failed, no_such_tensor, view};

/// The handle of the per-thread default stream.
const PER_THREAD: usize = 2;

/// How the copy is ordered with candle's work.
pub(crate) enum HandOver {
    /// The copy runs on candle's stream.
    OneStream,
    /// candle uses the per-thread default stream; the copy runs on a stream of its own.
    TwoStreams(Mutex<Events>),
}

/// Recorded again for every copy: a wait is for the recording that the event holds at the call.
pub(crate) struct Events {
    /// candle's memory is allocated.
    allocated: CudaEvent,
    /// The copy has run.
    copied: CudaEvent,
}

/// The feedline device of candle's context.
pub(crate) fn device(candle: &CudaDevice) -> Device {
    Device::from_context(candle.cuda_stream().context().clone())
}

impl HandOver {
    /// The stream that batches are opened to, and how its work is ordered with candle's.
    pub(crate) fn new(candle: &CudaDevice, device: &Device) -> Result<(Stream, Self)> {
        let theirs = candle.cuda_stream();
        if theirs.cu_stream() as usize != PER_THREAD {
            return Ok((device.wrap_stream(theirs)?, Self::OneStream));
        }
        let context = theirs.context();
        if device.cuda_backend().is_none_or(|cuda| cuda.context().cu_ctx() != context.cu_ctx()) {
            let why = format!("candle's device is another CUDA context than {device}: use Bridge::new");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let event = || context.new_event(None).map_err(driver);
        let events = Events { allocated: event()?, copied: event()? };
        Ok((device.named_stream("to candle", Default::default())?, Self::TwoStreams(Mutex::new(events))))
    }

    /// The field `name` of a batch as a tensor on the GPU.
    pub(crate) fn tensor(&self, candle: &CudaDevice, batch: &Ready, name: &str) -> Result<Tensor> {
        let dtype = dtype(batch, name)?;
        match dtype {
            DType::U8 | DType::Bool => self.copy(candle, batch, view::<u8>(batch, name)?),
            DType::I16 => self.copy(candle, batch, view::<i16>(batch, name)?),
            DType::U32 => self.copy(candle, batch, view::<u32>(batch, name)?),
            DType::I32 => self.copy(candle, batch, view::<i32>(batch, name)?),
            DType::I64 => self.copy(candle, batch, view::<i64>(batch, name)?),
            DType::F16 => self.copy(candle, batch, view::<f16>(batch, name)?),
            DType::BF16 => self.copy(candle, batch, view::<bf16>(batch, name)?),
            DType::F32 => self.copy(candle, batch, view::<f32>(batch, name)?),
            DType::F64 => self.copy(candle, batch, view::<f64>(batch, name)?),
            DType::I8 | DType::U16 => Err(no_such_tensor(name, dtype)),
        }
    }

    /// A copy of a view of the batch.
    pub(crate) fn copy<T: Element + CudaDType + DeviceRepr>(
        &self,
        candle: &CudaDevice,
        batch: &Ready,
        (view, shape): (View<'_, T>, Vec<usize>),
    ) -> Result<Tensor> {
        let not_cuda = || Error::new(ErrorKind::Config, "the batch is not on a CUDA device");
        let ours = batch.stream().cuda_stream().ok_or_else(not_cuda)?;
        // A panic between two of the calls below leaves the events valid.
        let events = match self {
            Self::OneStream => None,
            Self::TwoStreams(events) => Some(events.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        // SAFETY: the copy below writes every element before candle's work can read one.
        let slice = unsafe { candle.alloc::<T>(view.len()) };
        let mut slice = slice.map_err(|error| failed(error, "allocate a tensor"))?;
        let theirs = candle.cuda_stream();
        if let Some(events) = &events {
            events.allocated.record(&theirs).and_then(|()| ours.wait(&events.allocated)).map_err(driver)?;
        }
        ours.memcpy_dtod(&view, &mut slice).map_err(driver)?;
        if let Some(events) = &events {
            events.copied.record(ours).and_then(|()| theirs.wait(&events.copied)).map_err(driver)?;
        }
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, candle.clone()));
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }
}

fn driver(error: DriverError) -> Error {
    Error::new(ErrorKind::Device, "cannot hand a batch to candle").with_source(error)
}
