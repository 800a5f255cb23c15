//! Stage 3, if the builder has a [`device_map`](crate::LoaderBuilder::device_map): lanes turn each batch that
//! was copied to the device into another one, by the user's kernels.
//!
//! ```text
//! fl-transfer ──loaded──▶ fl-map-N: wait(copied), wait(consumed), kernels, record ──in order──▶ consumer
//!               input slots        in number order: an output slot for each batch
//! ```
//!
//! A lane is a thread with a stream and the state of the user's closure. A lane takes the next batch and its
//! output slot under one lock, so slots go to batches in the order of delivery: otherwise later batches could
//! hold every slot while the next one to deliver waits for one. The input slot is released as that of any
//! reader: when the lane's kernels have read it. The consumer gets an output slot like any other batch.
//!
//! A lane of [`produce`](crate::LoaderBuilder::produce) takes the filled host slot itself: nothing is copied
//! before it, and `fl-transfer` only puts the batches into their order.
//!
//! | part | file |
//! | --- | --- |
//! | the user's closures, and the options of the builder | `mod.rs` |
//! | the batch that a closure reads, on the device or in its host slot | `batch.rs`, `pinned_batch.rs` |
//! | the fields that it writes | `output.rs` |
//! | the threads, their batches and slots | `lane.rs` |
//! | the delivery in order; the end of the stage | `outbox.rs` |

mod batch;
mod lane;
mod outbox;
mod output;
mod pinned_batch;

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Field, Layout, Result, Spec, catch_panic};
use feedline_device::{Device, Priority, Stream};

pub use batch::DeviceBatch;
use lane::Lane;
pub(crate) use lane::{DeviceLanes, MapWork, Outcome, streams};
use outbox::Outbox;
pub use pinned_batch::PinnedBatch;

use crate::LoaderBuilder;
use crate::trace::LoaderTrace;

/// The max number of lanes. Lanes share one device, so a few are enough.
const MAX_LANES: usize = 16;

/// The closure of one lane.
enum Map {
    /// For batches that were copied to the device.
    Copied(Box<MapCopied>),
    /// For batches in their host slots.
    Filled(Box<MapFilled>),
}

type MapCopied = dyn FnMut(&mut DeviceBatch<'_>) -> Result<()> + Send;

type MapFilled = dyn FnMut(&mut PinnedBatch<'_>) -> Result<()> + Send;

/// Makes the closure of a lane for its stream.
type Factory = dyn Fn(&Stream) -> Result<Map> + Send + Sync;

/// The device map of a builder.
#[derive(Clone)]
pub(crate) struct DeviceMap {
    /// The fields that it writes.
    spec: Spec,
    factory: Arc<Factory>,
    /// Whether its lanes read batches in their host slots.
    pub(crate) reads_host: bool,
}

impl DeviceMap {
    /// The layout of its output for batches of `filled`. A ragged field is a copy, in the same form.
    ///
    /// # Errors
    /// `Config` for a ragged field of a device map, or one that batches do not have; as [`Layout::new`].
    pub(crate) fn layout(&self, filled: &Spec, batch_size: usize) -> Result<Layout> {
        let add = |spec: Spec, field: &Field| {
            if field.as_ragged().is_none() {
                return spec.with(field);
            }
            if !self.reads_host {
                let why = "is ragged, and device_map cannot write it: give its spec fields of one size";
                return Err(output::refuse(field, why));
            }
            let own = filled.fields().iter().find(|own| own.name() == field.name());
            let is_same = |own: &&Field| {
                own.as_ragged().is_some() && (own.dtype(), own.shape()) == (field.dtype(), field.shape())
            };
            match own.filter(is_same) {
                Some(own) => spec.with(own),
                None => {
                    let why = "is ragged, so it is a copy of that of the batch, which has none of this type \
                               and item: leave it out of the spec of produce";
                    Err(output::refuse(field, why))
                }
            }
        };
        let spec = self.spec.fields().iter().try_fold(Spec::new(), add)?;
        Layout::new(&spec, batch_size)
    }

    /// Makes `count` lanes on `device`.
    ///
    /// # Errors
    /// `Config` for a number of lanes that is 0 or too large; the error or the panic of the user's factory; a
    /// device failure.
    pub(crate) fn lanes(
        &self,
        count: usize,
        device: &Device,
        trace: Option<&LoaderTrace>,
    ) -> Result<Vec<Lane>> {
        if !(1..=MAX_LANES).contains(&count) {
            let why = format!("device_lanes is {count}: it must be from 1 to {MAX_LANES}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let lane = |number: usize| {
            let stream = device.named_stream(&format!("map {number}"), Priority::High)?;
            let map = catch_panic("the factory of device_map panicked", || (self.factory)(&stream));
            Lane::new(number as u32, stream, map.and_then(|map| map)?, self.spec.fields().len(), trace)
        };
        (0..count).map(lane).collect()
    }
}

impl<T: ?Sized> LoaderBuilder<T> {
    /// Makes another batch of each batch, on the device and ahead of the step: by kernels of your own, such
    /// as decompression, one-hot codes, masks or augmentations. The batches that you receive have the fields
    /// of `spec`. Default: batches are delivered as they were copied.
    ///
    /// `make` is called once for each lane, by [`build`](Self::build), with the lane's stream: allocate
    /// scratch memory and load kernels there. It returns the closure that the lane's thread calls for every
    /// batch. That closure queues work on the stream, as a training step does, and returns: it reads the
    /// batch's fields ([`DeviceBatch::field`]) and writes every field of `spec` ([`DeviceBatch::output`],
    /// [`DeviceBatch::copy`]). All waits are queued for it: its work runs after the copy of the batch and
    /// after the last use of the output's slot, and your stream waits for it in
    /// [`Batch::wait_on`](crate::Batch). A function that returns the closure as `impl FnMut` adds `use<>`: it
    /// borrows nothing of the stream.
    ///
    /// Lanes take batches in any order, so the output must depend only on the batch and on
    /// [`DeviceBatch::random`], not on earlier calls. Batches are delivered in order; cursor, checkpoints and
    /// the record of a run are the same as without a device map. A record has the hash of the rows that are
    /// copied. There is one lane unless [`device_lanes`](Self::device_lanes) says otherwise.
    ///
    /// An error or a panic of the closure ends the run, with the batch, after the batches before it.
    /// Allocating device memory in the closure can break the recording of a graph elsewhere: do it in `make`.
    /// The loader holds one device slot more than lanes for the batches to read.
    ///
    /// ```
    /// use feedline::batch::DeviceBatch;
    /// use feedline::{DType, Device, InMemory, Loader, Spec, Stream};
    /// use feedline_device::launch_host;
    ///
    /// let digits = InMemory::new().field("digit", [], [2_u8, 0, 1, 2])?.field("id", [], [0_i64, 1, 2, 3])?;
    /// let spec = Spec::new().field("one_hot", DType::F32, [3])?.field("id", DType::I64, [])?;
    /// let builder = Loader::builder(digits).batch_size(2).device_map(spec, |stream: &Stream| {
    ///     let stream = stream.clone();
    ///     Ok(move |batch: &mut DeviceBatch<'_>| {
    ///         batch.copy("id")?;
    ///         let (digits, codes) = (batch.field::<u8>("digit")?, batch.output::<f32>("one_hot")?);
    ///         // On a GPU, launch a kernel with these views.
    ///         launch_host(&stream, "one-hot", [digits.into()], [codes.into()], |memory| {
    ///             let codes = memory.output::<f32>(0);
    ///             codes.fill(0.0);
    ///             for (code, digit) in codes.chunks_exact_mut(3).zip(memory.input::<u8>(0)) {
    ///                 code[usize::from(*digit)] = 1.0;
    ///             }
    ///         })
    ///     })
    /// });
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = builder.build(&device)?;
    /// let batch = loader.epoch(0)?.next().expect("a batch")?.wait_on(&compute)?;
    /// assert_eq!(batch.to_vec::<f32>("one_hot")?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// assert_eq!(batch.to_vec::<i64>("id")?, [0, 1]);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn device_map<M>(
        mut self,
        spec: Spec,
        make: impl Fn(&Stream) -> Result<M> + Send + Sync + 'static,
    ) -> Self
    where
        M: FnMut(&mut DeviceBatch<'_>) -> Result<()> + Send + 'static,
    {
        let factory = move |stream: &Stream| make(stream).map(|map| Map::Copied(Box::new(map)));
        self.options.device_map = Some(DeviceMap { spec, factory: Arc::new(factory), reads_host: false });
        self
    }

    /// Makes the batch on the device from the filled batch in pinned host memory, instead of copying it: for
    /// work that reads host memory, such as decoding files by a device's engines. The batches that you
    /// receive have the fields of `spec`. `PictureStage` of the crate `feedline-pictures` is made of it.
    ///
    /// It replaces [`device_map`](Self::device_map) and works like it, with two differences: the closure
    /// reads slices of the host slot ([`PinnedBatch::field`], [`PinnedBatch::ragged`]), and it may block, so
    /// it is called on several [`device_lanes`](Self::device_lanes) at a time, for different batches. Each
    /// lane adds a host slot. A ragged field of `spec`, padded or not, is a copy of the batch's field
    /// ([`PinnedBatch::copy`]). Not possible with zero copy or a resident set.
    ///
    /// ```
    /// use feedline::batch::PinnedBatch;
    /// use feedline::{DType, Device, InMemory, Loader, Spec, Stream};
    /// use feedline_device::launch_host;
    ///
    /// let texts = InMemory::new().ragged("text", [], 9, ["hello", "", "you"])?;
    /// let spec = Spec::new().field("length", DType::U32, [])?;
    /// let builder = Loader::builder(texts).batch_size(3).produce(spec, |stream: &Stream| {
    ///     let stream = stream.clone();
    ///     Ok(move |batch: &mut PinnedBatch<'_>| {
    ///         let (_, offsets) = batch.ragged::<u8>("text")?;
    ///         let lengths: Vec<u32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    ///         let to = batch.output::<u32>("length")?;
    ///         launch_host(&stream, "lengths", [], [to.into()], move |memory| {
    ///             memory.output::<u32>(0).copy_from_slice(&lengths);
    ///         })
    ///     })
    /// });
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = builder.build(&device)?;
    /// let batch = loader.epoch(0)?.next().expect("a batch")?.wait_on(&compute)?;
    /// assert_eq!(batch.to_vec::<u32>("length")?, [5, 0, 3]);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn produce<M>(
        mut self,
        spec: Spec,
        make: impl Fn(&Stream) -> Result<M> + Send + Sync + 'static,
    ) -> Self
    where
        M: FnMut(&mut PinnedBatch<'_>) -> Result<()> + Send + 'static,
    {
        let factory = move |stream: &Stream| make(stream).map(|map| Map::Filled(Box::new(map)));
        self.options.device_map = Some(DeviceMap { spec, factory: Arc::new(factory), reads_host: true });
        self
    }

    /// Number of lanes of the [`device_map`](Self::device_map) or of [`produce`](Self::produce): threads,
    /// each with its own stream and closure. Default: 1, which is enough for a closure that only queues
    /// kernels. Use more for a closure that blocks, or whose kernels do not fill the device.
    pub fn device_lanes(mut self, lanes: usize) -> Self {
        self.options.device_lanes = lanes;
        self
    }
}
