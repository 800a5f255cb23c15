//! DLPack: feedline's batches for every framework that speaks it, and tensors of theirs for feedline.
//!
//! A [`Share`] offers the fields of a batch as DLPack tensors, without a copy. A tensor keeps the batch: its
//! slot is written again only after the consumer has called the tensor's deleter, and after the work that the
//! consumer queued before on the stream that it named.
//!
//! ```
//! use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
//! use feedline_dlpack::{Consumer, Imported, Share};
//!
//! struct Squares { spec: Spec }
//!
//! impl Dataset for Squares {
//!     fn len(&self) -> u64 { 8 }
//!     fn spec(&self) -> &Spec { &self.spec }
//!     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
//!         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
//!         Ok(())
//!     }
//! }
//!
//! let data = Squares { spec: Spec::new().field("square", DType::I64, [])? };
//! let device = Device::new_host();
//! let stream = device.stream()?;
//! let mut loader = Loader::builder(data).batch_size(4).build(&device)?;
//! for batch in loader.epoch(0)? {
//!     let share = Share::new(batch?.wait_on(&stream)?);
//!     let tensor = share.tensor("square", Consumer::Cpu)?;
//!     let raw = tensor.into_raw(); // for another library, for example in a PyCapsule
//!     // SAFETY: `raw` is a tensor that nothing else has taken.
//!     let taken = unsafe { Imported::from_raw(raw) }?;
//!     assert_eq!((taken.shape(), taken.to_vec::<i64>()?.len()), (&[4][..], 4));
//! }
//! # Ok::<(), feedline::Error>(())
//! ```
//!
//! # Python
//!
//! A `PyCapsule` named `dltensor_versioned` around [`Exported::into_raw`] is what `__dlpack__` returns;
//! [`Share::device`] is what `__dlpack_device__` returns, and [`Consumer::from_python`] reads the argument
//! `stream`. `tests/batches.py` is a complete class over `ctypes`.
#![deny(unsafe_op_in_unsafe_fn)]

mod consumer;
mod export;
pub mod ffi;
mod import;

pub use consumer::{Consumer, StreamHandle};
pub use export::{Exported, Share};
pub use import::Imported;
