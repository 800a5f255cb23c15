//! Keeps a GPU fed.
//!
//! CPU workers decode batches into reused pinned slots, a transfer stage copies them on its own stream, and
//! your stream waits for each copy through an event. A step costs the longest of decode, transfer and
//! compute, not their sum.
//!
//! ```
//! use feedline::check_dataset;
//! use feedline::check::CheckOptions;
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
//! // In a test, or once before a long run:
//! assert!(check_dataset(&data, &CheckOptions::default())?.is_clean());
//! let device = Device::best()?;
//! let compute = device.stream()?;
//! let mut loader = Loader::builder(data).batch_size(64).shuffle().seed(7).build(&device)?;
//! let mut rows = 0;
//! for epoch in 0..2 {
//!     for batch in loader.epoch(epoch)? {
//!         let batch = batch?.wait_on(&compute)?; // the only way to the data; the host does not block
//!         let squares = batch.field::<i64>("square")?; // a view for kernels on `compute`
//!         rows += squares.len();
//!     } // dropped: the slot is reused once the work queued on `compute` so far has finished
//!     let _saved = loader.checkpoint(&compute)?; // waits for that work: the cursor matches the model
//! }
//! assert_eq!(rows, 2000);
//! # Ok::<(), feedline::Error>(())
//! ```
//!
//! # What to look for
//!
//! | to | see |
//! | --- | --- |
//! | open files: tables, texts, pictures, arrays | the crate `feedline-datasets`, and docs/data.md |
//! | write a set of your own | [`Dataset`], [`from_fn`], [`InMemory`]; [`check_dataset`] tests it |
//! | change, choose, join samples | `map`, `filter`, `subset`, `zip`, `concat` of [`Dataset`], [`Mix`] |
//! | split, cross-validate | [`Dataset::split`], [`Dataset::folds`] |
//! | shuffle, weigh, balance, set an order of your own | [`LoaderBuilder::shuffle`], [`Sampler`] |
//! | draw negatives | [`Dataset::negatives`] |
//! | read a stream without a length | [`Source`], [`Loader::source_builder`] |
//! | load samples that vary in length | [`Spec::ragged`], [`LoaderBuilder::pad`], [`dataset::Packed`] |
//! | join predictions with their rows | [`BatchInfo::ids`](batch::BatchInfo::ids), `ids` of a subset |
//! | resume a run | [`Progress::checkpoint`], [`Loader::resume`] |
//! | train on several GPUs or machines | [`World`], [`LoaderBuilder::world`] |
//! | live with samples that cannot be read | [`BadSamples`] |
//! | find out what a step waits for | [`Progress::report`] |
//!
//! # In the loop of a framework
//!
//! `feedline-candle` makes candle's tensors of a batch, on the same GPU (`Bridge::tensor`); `feedline-burn`
//! is a `DataLoader` for burn's `Learner` (`BurnLoader`); `feedline-dlpack` is for every other library with
//! DLPack. A view of a batch is an argument of cudarc's launch builder.
//!
//! # A run that can be resumed
//!
//! A cursor alone is ahead of the model, because work on a stream runs later. [`Progress::checkpoint`],
//! which a loader and its epochs have too, waits for the work, and refuses while a batch is held. This loop
//! continues with the same bits wherever it was killed:
//!
//! ```
//! # use feedline::{Checkpoint, Context, DType, Dataset, Device, Loader};
//! # use feedline::{ReadError, Ready, Row, Spec, Stream};
//! # struct Ones(Spec);
//! # impl Dataset for Ones {
//! #     fn len(&self) -> u64 { 40 }
//! #     fn spec(&self) -> &Spec { &self.0 }
//! #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
//! #         row.bytes_mut(0).fill(1);
//! #         Ok(())
//! #     }
//! # }
//! # fn data() -> feedline::Result<Ones> { Ok(Ones(Spec::new().field("x", DType::U8, [])?)) }
//! # const EPOCHS: u64 = 2;
//! # #[derive(Default)]
//! # struct Model { steps: u64, saved: Vec<Checkpoint> }
//! # impl Model {
//! #     fn step(&mut self, _: &Stream, _: &Ready) -> feedline::Result<()> { self.steps += 1; Ok(()) }
//! #     fn is_due(&self) -> bool { self.steps % 3 == 0 }
//! #     fn save(&mut self, saved: Checkpoint) -> feedline::Result<()> { self.saved.push(saved); Ok(()) }
//! # }
//! fn train(device: &Device, saved: Option<Checkpoint>, model: &mut Model) -> feedline::Result<()> {
//!     let compute = device.stream()?;
//!     let mut loader = Loader::builder(data()?).batch_size(8).shuffle().seed(7).build(device)?;
//!     let progress = loader.progress(); // usable while an epoch borrows the loader
//!     let first = saved.as_ref().map_or(0, |saved| saved.cursor.epoch());
//!     if let Some(saved) = &saved {
//!         loader.set_bad_sample_report(saved.bad_sample_report.clone());
//!     }
//!     for epoch in first..EPOCHS {
//!         let batches = match &saved {
//!             Some(saved) if epoch == first => loader.resume(saved.cursor)?,
//!             _ => loader.epoch(epoch)?,
//!         };
//!         for batch in batches {
//!             let batch = batch?.wait_on(&compute)?;
//!             model.step(&compute, &batch)?; // queues the work of one step
//!             drop(batch); // released, with its work queued: the checkpoint counts this batch
//!             if model.is_due() {
//!                 model.save(progress.checkpoint(&compute)?)?; // waits until the steps so far have run
//!             }
//!         }
//!     }
//!     compute.synchronize()
//! }
//! # let (device, mut model) = (Device::new_host(), Model::default());
//! # train(&device, None, &mut model)?;
//! # let saved = model.saved.remove(1);
//! # train(&device, Some(saved), &mut model)?;
//! # assert_eq!(model.steps, 10 + 4);
//! # Ok::<(), feedline::Error>(())
//! ```
//!
//! # What the model has seen
//!
//! A loader that is built with [`LoaderBuilder::record`] writes 32 bytes per step. From them the crate
//! `feedline-record` and the program `feedline` make any batch again, name the samples that have changed
//! since, and show those of a loss spike: see the module [`record`](mod@record).
//!
//! # Without a device
//!
//! [`LoaderBuilder::build_host`] gives batches whose fields are slices; [`Ready::to_vec`] copies a field from
//! any device.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod builder;
mod compute;
mod decode;
mod device_map;
mod host_loader;
mod job;
mod loader;
mod numa;
mod progress;
pub mod record;
pub mod report;
mod shutdown;
mod spans;
pub mod trace;
mod transfer;
mod transfer_mode;
mod tune;

pub use builder::LoaderBuilder;
pub use compute::{Batch, HostBatch, Ready};
pub use decode::{WorkerPool, Workers};
pub use feedline_core::{
    BadSampleReport, BadSamples, Context, Cursor, DType, Dataset, Error, ErrorKind, InMemory, LastBatch, Mix,
    Pad, ReadError, Result, Row, Sampler, Source, Spec, Stage, World, check, check_dataset, compose, from_fn,
    source,
};
pub use feedline_device::{Device, Event, Stream, View, ViewMut};
pub use host_loader::{HostEpoch, HostLoader, HostProgress};
pub use loader::{Epoch, Loader, TryNext};
pub use progress::{Checkpoint, Progress};
pub use shutdown::StopHandle;
pub use transfer_mode::TransferMode;

/// Samples that could not be read, and their substitutes.
pub mod bad_samples {
    pub use feedline_core::bad_samples::BadSample;
    pub use feedline_core::{Budget, Failure, Substituted};
}

/// The description of a batch, its fields of variable length, and a batch before it is copied.
pub mod batch {
    pub use feedline_core::BatchInfo;

    pub use crate::compute::{PaddedView, RaggedView};
    pub use crate::decode::FilledBatch;
    pub use crate::device_map::{DeviceBatch, PinnedBatch};
}

/// The parts of a data set of your own: fields, rows, random numbers, fingerprints.
pub mod dataset {
    pub use feedline_core::packed::Piece;
    pub use feedline_core::ragged::{Form, RaggedField};
    pub use feedline_core::{
        About, Cost, Element, ElementType, Fate, Field, FieldId, Long, Meaning, Packed, PackedBuilder,
        PackedOptions, PackedSource, PackedSourceBuilder, Prefetched, Random, RowError, RowFields, Rows,
        Sample, Sink, Storage, StridedColumn, TakeItems, Unpadded, UnpaddedBuilder, lengths,
    };
}

/// Kinds and statistics of devices, and steps recorded as graphs. Buffers, results and launches for kernels
/// of your own are in the crate `feedline-device`.
pub mod device {
    /// cudarc, and the adapter from a view to its kernel arguments.
    #[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
    pub mod cuda {
        pub use feedline_device::cuda::{CudaSliceRef, cudarc};
    }
    pub use feedline_device::{Address, BackendKind, DeviceStats, Gauge, Priority};

    pub use crate::compute::Replay;
}

/// Batches that are filled beside the workers, by servers on other machines for example.
pub mod filler {
    pub use feedline_core::{BatchContent, BatchProof};

    pub use crate::decode::filler::{
        BatchFiller, DataDescription, Fill, FillOutcome, FillRequest, FillerReport,
    };
}

/// The samples of each batch, and the proof that each was delivered once.
pub mod sampler {
    pub use feedline_core::{BatchSampler, BatchSamplerOptions, Proof};
}
