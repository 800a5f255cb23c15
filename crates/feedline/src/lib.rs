//! Keeps a GPU fed.
//!
//! CPU workers decode batches into reused pinned slots, a transfer stage copies them on its own stream, and
//! your stream waits for each copy through an event. A step costs the longest of decode, transfer and
//! compute, not their sum.
//!
//! ```
//! use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
//!
//! // A data set says how many samples there are, what a sample is, and how to write one.
//! struct Squares { spec: Spec }
//!
//! impl Dataset for Squares {
//!     fn len(&self) -> u64 { 1000 }
//!     fn spec(&self) -> &Spec { &self.spec }
//!     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
//!         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
//!         Ok(())
//!     }
//! }
//!
//! let data = Squares { spec: Spec::new().field("square", DType::I64, [])? };
//! let device = Device::best()?;
//! let compute = device.stream()?;
//! let mut loader = Loader::builder(data).batch_size(64).shuffle(7).build(&device)?;
//! let mut rows = 0;
//! for epoch in 0..2 {
//!     for batch in loader.epoch(epoch)? {
//!         let batch = batch?.wait_on(&compute)?; // the only way to the data; the host does not block
//!         let squares = batch.field::<i64>("square")?; // a view for kernels on `compute`
//!         rows += squares.len();
//!     } // dropped: the slot is reused once the work queued on `compute` so far has finished
//! }
//! assert_eq!(rows, 2000);
//! # Ok::<(), feedline::Error>(())
//! ```
//!
//! To save a run, drop the batch and call [`Loader::checkpoint`]. It waits for the work queued so far and
//! returns the cursor that matches the model.
#![forbid(unsafe_code)]

mod builder;
mod checkpoint;
mod compute;
mod decode;
mod deliveries;
mod epoch;
mod loader;
pub mod measure;
pub mod report;
mod shutdown;
pub mod trace;
mod transfer;
mod transfer_mode;

pub use builder::LoaderBuilder;
pub use checkpoint::Checkpoint;
pub use compute::{Batch, Ready, Replay, WaitMeter};
pub use decode::{MAX_WORKERS, Reading, WorkerPool, Workers};
pub use epoch::Epoch;
pub use feedline_core::{
    BadSampleReport, BadSamples, BatchSampler, Budget, CheckOptions, Context, Cursor, DType, Dataset,
    Element, Error, ErrorKind, Field, Fingerprint, LastBatch, Layout, OrderHash, Proof, Random, ReadError,
    Result, Row, Rows, Sampler, Shard, Source, Spec, Stage, StridedColumn, World, check, check_dataset,
    source,
};
pub use feedline_device::{
    Address, BackendKind, Buffer, Device, DeviceStats, Event, Graph, Input, Memory, Output, Priority,
    Readback, Stream, View, ViewMut,
};
pub use loader::{Loader, MemoryUse};
pub use report::{Report, Reporter};
pub use transfer_mode::{ChosenMode, TransferMode};
