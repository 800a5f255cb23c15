//! feedline's batches as burn tensors, and a loader for burn's `Learner`.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use feedline::{Context, DType, Dataset, Loader, ReadError, Row, Spec};
//! use feedline_burn::Fields;
//!
//! struct Squares { spec: Spec }
//!
//! impl Dataset for Squares {
//!     fn len(&self) -> u64 { 1000 }
//!     fn spec(&self) -> &Spec { &self.spec }
//!     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
//!         row.field_mut::<f32>(0)?.fill((id * id) as f32);
//!         row.field_mut::<u8>(1)?[0] = (id % 10) as u8;
//!         Ok(())
//!     }
//! }
//!
//! let spec = Spec::new().field("square", DType::F32, [2])?.field("digit", DType::U8, [])?;
//! let mut loader = Loader::builder(Squares { spec }).batch_size(50).build_host()?;
//! let device = Device::flex();
//! for batch in loader.epoch(0)? {
//!     let fields = Fields::new(batch?);
//!     let squares: Tensor<2> = fields.float("square", &device)?;
//!     let digits: Tensor<1, Int> = fields.int("digit", &device)?;
//!     assert_eq!((squares.dims(), digits.dims()), ([50, 2], [50]));
//! }
//! # Ok::<(), feedline::Error>(())
//! ```
//!
//! [`BurnLoader`] implements burn's `DataLoader`, so `SupervisedTraining` takes a host loader of feedline.
//!
//! # Copies
//!
//! On the CPU (`flex`) none: a tensor's memory is the batch's slot, which is written again only after the
//! tensor is dropped. An operation that changes a tensor in place makes burn copy it first. On a GPU burn's
//! client copies the slot to the device on a stream of its own, and gives the slot back when that copy has
//! run; it has no way to take device memory of another library. burn first copies batches of less than 100
//! MiB to pinned memory of its own.
//!
//! A tensor on the CPU that is kept keeps its slot: once all slots are kept, the loader's `next` fails with
//! `SlotsHeld`. Clone the data of what you keep, or raise [`depth`](feedline::LoaderBuilder::depth).
#![deny(unsafe_op_in_unsafe_fn)]

mod fields;
mod loader;
mod slot;

pub use fields::Fields;
pub use loader::BurnLoader;
