//! feedline's batches as candle tensors, on the same device.
//!
//! ```
//! use candle_core::{DType, Device};
//! use feedline::{Context, Dataset, Loader, ReadError, Row, Spec};
//! use feedline_candle::Bridge;
//!
//! struct Squares { spec: Spec }
//!
//! impl Dataset for Squares {
//!     fn len(&self) -> u64 { 1000 }
//!     fn spec(&self) -> &Spec { &self.spec }
//!     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
//!         row.field_mut::<f32>(0)?.fill((id * id) as f32);
//!         Ok(())
//!     }
//! }
//!
//! let candle = Device::cuda_if_available(0)?; // the CPU without the feature `cuda`
//! let bridge = Bridge::new(&candle)?;
//! let data = Squares { spec: Spec::new().field("square", feedline::DType::F32, [2])? };
//! let mut loader = Loader::builder(data).batch_size(50).build(bridge.device())?;
//! for batch in loader.epoch(0)? {
//!     let batch = bridge.open(batch?)?;
//!     let squares = bridge.tensor(&batch, "square")?;
//!     drop(batch); // its slot is free once the copy has run; the tensor may live for ever
//!     assert_eq!((squares.dims(), squares.dtype()), (&[50, 2][..], DType::F32));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Copies
//!
//! A tensor is a copy of its field, made on the device: on a GPU one copy from device memory to device
//! memory, on the CPU one `Vec`. candle's storage owns a `CudaSlice` or a `Vec` and frees it itself, whenever
//! the last clone of the tensor is dropped, so it cannot borrow a slot that the loader writes again. Nothing
//! goes through the host on a GPU, and nothing blocks there. On the CPU, [`tensor`](Bridge::tensor) waits for
//! the batch.
//!
//! # Order on a GPU
//!
//! The copy waits on the device for the batch, candle's work waits for the copy, and the slot waits for the
//! copy too. With [`Device::new_cuda_with_stream`](candle_core::Device::new_cuda_with_stream) all three are
//! on candle's one stream. [`Device::new_cuda`](candle_core::Device::new_cuda) and `cuda_if_available` use
//! the per-thread default stream, a different stream on each thread: then the copy runs on a stream of the
//! bridge, with two events, and the tensor belongs to the calling thread's stream. Call `tensor` on the
//! thread that trains.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "cuda")]
mod gpu;
mod host;

use candle_core::Tensor;
use feedline::dataset::Element;
use feedline::device::BackendKind;
use feedline::{Batch, DType, Device, Error, ErrorKind, Ready, Result, Stream, View};

/// A candle device, and the feedline device and stream on which batches become its tensors.
pub struct Bridge {
    candle: candle_core::Device,
    device: Device,
    stream: Stream,
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::HandOver>,
}

impl Bridge {
    /// A bridge to `candle`, on a new feedline device: candle's own CUDA context, or the host.
    ///
    /// # Errors
    /// `Config` for a Metal device; a device failure.
    pub fn new(candle: &candle_core::Device) -> Result<Self> {
        match candle {
            #[cfg(feature = "cuda")]
            candle_core::Device::Cuda(cuda) => Self::on(candle, &gpu::device(cuda)),
            _ => Self::on(candle, &Device::new_host()),
        }
    }

    /// A bridge from an existing feedline device, which must have candle's CUDA context, or be the host (or a
    /// simulated device) for candle's CPU.
    ///
    /// # Errors
    /// `Config` if the two are not the same device; a device failure.
    pub fn on(candle: &candle_core::Device, device: &Device) -> Result<Self> {
        let is_host = matches!(device.kind(), BackendKind::Host | BackendKind::Sim);
        match candle {
            candle_core::Device::Cpu if is_host => Ok(Self {
                candle: candle.clone(),
                device: device.clone(),
                stream: device.stream()?,
                #[cfg(feature = "cuda")]
                gpu: None,
            }),
            #[cfg(feature = "cuda")]
            candle_core::Device::Cuda(cuda) => {
                let (stream, hand_over) = gpu::HandOver::new(cuda, device)?;
                Ok(Self { candle: candle.clone(), device: device.clone(), stream, gpu: Some(hand_over) })
            }
            other => {
                let why = format!(
                    "candle's device is {:?} and feedline's is {device}: use Bridge::new, which opens the \
                     same device",
                    other.location()
                );
                Err(Error::new(ErrorKind::Config, why))
            }
        }
    }

    /// The device to build loaders on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream that the bridge opens batches to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Opens a batch to the bridge's stream; the host does not block.
    ///
    /// # Errors
    /// As [`Batch::wait_on`].
    pub fn open(&self, batch: Batch) -> Result<Ready> {
        batch.wait_on(&self.stream)
    }

    /// The field `name` of a batch: `[rows, shape...]`, of the field's type, on candle's device. A padded
    /// field is
    /// `[rows, width, item...]`.
    ///
    /// The tensor is a copy: it may outlive the batch, the loader and the bridge. On a GPU the copy is queued
    /// and the host does not block; on the CPU this blocks until the batch has arrived and is copied.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, for a ragged field that is not padded, for `i8` and
    /// `u16`, which candle has no tensors of, and for a batch that is open to another stream; a device
    /// failure, for example if the GPU is out of memory.
    pub fn tensor(&self, batch: &Ready, name: &str) -> Result<Tensor> {
        self.check(batch)?;
        #[cfg(feature = "cuda")]
        if let (Some(hand_over), Ok(cuda)) = (&self.gpu, self.candle.as_cuda_device()) {
            return hand_over.tensor(cuda, batch, name);
        }
        host::tensor(batch, name)
    }

    /// The lengths of the rows of the padded field `name`: u32, `[rows]`.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor), and `Config` for a field that is not padded.
    pub fn lengths(&self, batch: &Ready, name: &str) -> Result<Tensor> {
        self.check(batch)?;
        let (lengths, shape) = (batch.lengths(name)?, vec![batch.len()]);
        #[cfg(feature = "cuda")]
        if let (Some(hand_over), Ok(cuda)) = (&self.gpu, self.candle.as_cuda_device()) {
            return hand_over.copy(cuda, batch, (lengths, shape));
        }
        host::copy(batch, (lengths, shape))
    }

    fn check(&self, batch: &Ready) -> Result<()> {
        if *batch.stream() != self.stream {
            let why = format!(
                "the batch is open to {}, not to the bridge's {}: open it with Bridge::open",
                batch.stream(),
                self.stream
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }
}

/// The type of field `name` of a batch.
fn dtype(batch: &Ready, name: &str) -> Result<DType> {
    Ok(batch.spec().fields()[batch.spec().index_of(name)?].dtype())
}

/// The field `name` of a batch, and its shape.
fn view<'a, T: Element>(batch: &'a Ready, name: &str) -> Result<(View<'a, T>, Vec<usize>)> {
    let field = &batch.spec().fields()[batch.spec().index_of(name)?];
    if field.as_ragged().is_none() {
        return Ok((batch.field(name)?, [&[batch.len()], field.shape()].concat()));
    }
    let padded = batch.padded::<T>(name)?;
    Ok((padded.values, [&[batch.len(), padded.width], field.shape()].concat()))
}

/// The error for a type that candle does not have.
fn no_such_tensor(name: &str, dtype: DType) -> Error {
    let why = format!(
        "field \"{name}\" is {dtype}, and candle has no tensors of that: let the data set write u8, \
         i16, i32 or f32"
    );
    Error::new(ErrorKind::Config, why)
}

/// An error of candle as one of feedline.
fn failed(error: candle_core::Error, what: &str) -> Error {
    Error::new(ErrorKind::Device, format!("candle cannot {what}")).with_source(error)
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bridge({} to candle's {:?})", self.device, self.candle.location())
    }
}
