//! The transforms of a list that run on the device, in one launch per batch.

use std::sync::Arc;

use feedline_core::{DType, Element, Result};
#[cfg(feature = "cuda")]
use feedline_core::{Error, ErrorKind};
#[cfg(feature = "cuda")]
use feedline_device::Buffer;
use feedline_device::{BackendKind, Input, Stream, View, ViewMut};
use feedline_images::DevicePart;
use feedline_images::device::{HostBatch, Labels, Value, WORDS, Written};

use super::check;
use crate::host::{augment, parallel};

/// The device's part of a list of transforms, on one stream.
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::Device;
/// use feedline_images::{Size, Transforms};
/// use feedline_kernels::ops::{Augment, Pictures};
///
/// let transforms = Transforms::new().center_crop(2).on_device();
/// let transforms = transforms.normalise([0.5; 3], [0.5; 3]).channels_first();
/// let stream = Device::host().stream()?;
/// let augment = Augment::new(&stream, transforms.device_part()?)?;
///
/// // A loader delivers the pictures and the parameters of a batch; here they are made by hand.
/// let mut parameters = [0; 144];
/// augment.part().draw(Size::new(2, 2), &mut Random::from_key(1), &mut parameters)?;
/// let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
/// let words: Vec<u32> = parameters.chunks(4).map(word).collect();
/// let (mut pixels, mut records) = (stream.buffer::<u8>(12)?, stream.buffer::<u32>(36)?);
/// pixels.write(&[255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0])?;
/// records.write(&words)?;
///
/// let mut finished = stream.buffer::<f32>(augment.part().elements())?;
/// augment.run(Pictures::new(pixels.view(), records.view()), finished.view_mut())?;
/// let finished = finished.read()?; // the red plane, the green one, the blue one
/// assert!(finished[..4].iter().all(|value| (value - 1.0).abs() < 1e-6));
/// assert!(finished[4..].iter().all(|value| (value + 1.0).abs() < 1e-6));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Augment {
    stream: Stream,
    part: Arc<DevicePart>,
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::Gpu>,
}

/// The pictures of a batch, as they crossed.
#[derive(Clone, Copy, Debug)]
pub struct Pictures<'a, I: Element> {
    pixels: View<'a, I>,
    offsets: Option<View<'a, u32>>,
    parameters: View<'a, u32>,
}

impl<'a, I: Element> Pictures<'a, I> {
    /// Pictures of one size: the field of pixels, and the field of parameters.
    pub fn new(pixels: View<'a, I>, parameters: View<'a, u32>) -> Self {
        Self { pixels, offsets: None, parameters }
    }

    /// Pictures that each have their own size: `offsets` says where in `pixels` each begins, and where the
    /// last one ends.
    pub fn ragged(pixels: View<'a, I>, offsets: View<'a, u32>, parameters: View<'a, u32>) -> Self {
        Self { pixels, offsets: Some(offsets), parameters }
    }

    fn rows(&self) -> usize {
        self.parameters.len() / WORDS
    }
}

/// The labels of a batch, and where their probabilities go.
pub struct OneHot<'a> {
    of: Input<'a>,
    dtype: DType,
    rows: usize,
    to: ViewMut<'a, f32>,
}

impl<'a> OneHot<'a> {
    /// The classes of type `u8` or `i64`, one per sample, become rows of probabilities: as many as `to` has
    /// room for. Where samples are mixed, their labels are mixed in the same shares.
    pub fn new<L: Element>(of: View<'a, L>, to: ViewMut<'a, f32>) -> Self {
        Self { rows: of.len(), of: of.into(), dtype: L::DTYPE, to }
    }
}

impl Augment {
    /// Prepares `part` for batches on `stream`. On a GPU this loads the kernels; the first use on a machine
    /// compiles them.
    ///
    /// # Errors
    /// `Config` for pictures that are too large; a device failure.
    pub fn new(stream: &Stream, part: DevicePart) -> Result<Self> {
        let fits = i32::try_from(part.size().pixels() * 4).is_ok() && part.elements() > 0;
        check(fits, || {
            format!("pictures of {} are too large for the device, or have no pixels", part.size())
        })?;
        if stream.kind() != BackendKind::Cuda {
            parallel::start_threads()?;
        }
        Ok(Self {
            #[cfg(feature = "cuda")]
            gpu: gpu::Gpu::new(stream, &part)?,
            stream: stream.clone(),
            part: Arc::new(part),
        })
    }

    /// What is done.
    pub fn part(&self) -> &DevicePart {
        &self.part
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues the transforms of a batch: one launch, which writes `[rows, shape...]` to `to`.
    ///
    /// # Errors
    /// `Config` for lengths or types that do not fit; a device failure.
    pub fn run<I: Value, O: Written>(&self, pictures: Pictures<'_, I>, to: ViewMut<'_, O>) -> Result<()> {
        self.queue(pictures, to, None)
    }

    /// As [`run`](Self::run), with labels.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with_labels<I: Value, O: Written>(
        &self,
        pictures: Pictures<'_, I>,
        to: ViewMut<'_, O>,
        labels: OneHot<'_>,
    ) -> Result<()> {
        self.queue(pictures, to, Some(labels))
    }

    fn queue<I: Value, O: Written>(
        &self,
        pictures: Pictures<'_, I>,
        to: ViewMut<'_, O>,
        labels: Option<OneHot<'_>>,
    ) -> Result<()> {
        let rows = pictures.rows();
        self.check(&pictures, &to, labels.as_ref())?;
        if rows == 0 {
            return Ok(());
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.queue(&self.stream, &self.part, pictures, to, labels);
        }
        self.on_host(pictures, to, labels)
    }

    fn check<I: Value, O: Written>(
        &self,
        pictures: &Pictures<'_, I>,
        to: &ViewMut<'_, O>,
        labels: Option<&OneHot<'_>>,
    ) -> Result<()> {
        let Pictures { pixels, offsets, parameters } = pictures;
        let (part, rows) = (&self.part, pictures.rows());
        let types = (I::DTYPE, O::DTYPE);
        check(types == (part.source_type(), part.dtype()), || {
            let (from, to) = (part.source_type(), part.dtype());
            format!("augment: pixels are {from} and become {to}, not {} and {}", types.0, types.1)
        })?;
        check(parameters.len() == rows * WORDS, || {
            format!("augment: {} parameters are not {WORDS} per picture", parameters.len())
        })?;
        let fits = match (offsets, part.source_elements()) {
            (Some(offsets), _) => offsets.len() == rows + 1,
            (None, Some(elements)) => pixels.len() == rows * elements,
            (None, None) => false,
        };
        check(fits && to.len() == rows * part.elements(), || {
            format!(
                "augment: {rows} pictures of {} elements in all, into {} elements for {} each: give the \
                 fields of one batch, with offsets if pictures have sizes of their own",
                pixels.len(),
                to.len(),
                part.elements()
            )
        })?;
        let Some(labels) = labels else { return Ok(()) };
        check(matches!(labels.dtype, DType::U8 | DType::I64), || {
            format!("augment: labels are {}: give u8 or i64", labels.dtype)
        })?;
        let classes = labels.to.len() / rows.max(1);
        let fits = labels.rows == rows && labels.to.len() == rows * classes && classes > 0;
        check(fits && u32::try_from(classes).is_ok(), || {
            format!("augment: {} labels of {rows} pictures into {} numbers", labels.rows, labels.to.len())
        })
    }

    fn on_host<I: Value, O: Written>(
        &self,
        pictures: Pictures<'_, I>,
        to: ViewMut<'_, O>,
        labels: Option<OneHot<'_>>,
    ) -> Result<()> {
        let Pictures { pixels, offsets, parameters } = pictures;
        let (part, rows) = (self.part.clone(), pictures.rows());
        // A batch without offsets has the parameters in their place, which are not looked at.
        let has_offsets = offsets.is_some();
        let inputs = [pixels.into(), parameters.into(), offsets.unwrap_or(parameters).into()];
        fn batch<'a, I: Value>(memory: &feedline_device::Memory<'a>, has_offsets: bool) -> HostBatch<'a, I> {
            let offsets = has_offsets.then(|| memory.input(2));
            HostBatch { pixels: memory.input(0), offsets, parameters: memory.input(1) }
        }
        let Some(OneHot { of, dtype, to: probabilities, .. }) = labels else {
            return self.stream.run("augment", inputs, [to.into()], move |memory| {
                augment(&part, batch::<I>(memory, has_offsets), memory.output::<O>(0), None);
            });
        };
        let [pixels, parameters, offsets] = inputs;
        let outputs = [to.into(), probabilities.into()];
        self.stream.run("augment", [pixels, parameters, offsets, of], outputs, move |memory| {
            let of: Vec<i64> = match dtype {
                DType::U8 => memory.input::<u8>(3).iter().copied().map(i64::from).collect(),
                _ => memory.input::<i64>(3).to_vec(),
            };
            let probabilities = memory.output::<f32>(1);
            let labels = Labels { of: &of, classes: probabilities.len() / rows };
            let batch = batch::<I>(memory, has_offsets);
            augment(&part, batch, memory.output::<O>(0), Some((labels, probabilities)));
        })
    }
}

impl std::fmt::Debug for Augment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Augment({} to {:?} on {})", self.part.source_type(), self.part.shape(), self.stream)
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use feedline_device::cuda::{Arg, Function, Grid};
    use feedline_images::Needs;

    use super::*;
    use crate::launch::kernel;
    use crate::loaded;
    use crate::source::AUGMENT;

    /// Blocks that a GPU should have at least, several per multiprocessor.
    const BLOCKS: usize = 2048;

    /// Pixels of a thread, at least and at most, where they are only moved: it takes four at a time.
    const MOVED: (usize, usize) = (4, 16);

    pub(super) struct Gpu {
        function: Function,
        plan: Buffer<u32>,
        threads: u32,
    }

    impl Gpu {
        pub(super) fn new(stream: &Stream, part: &DevicePart) -> Result<Option<Self>> {
            let Some(cuda) = stream.cuda_backend() else { return Ok(None) };
            let kind = if part.needs() == Needs::Copy { "copy" } else { "work" };
            let name = format!("augment_{kind}_{}_{}", part.source_type(), part.dtype());
            let threads = AUGMENT.kernel(&name).map(|kernel| kernel.threads).ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("there is no kernel {name} for these pictures"))
            })?;
            let function = loaded::load(cuda, &AUGMENT, &name)?;
            let mut plan = stream.buffer(part.words().len())?;
            plan.write(&part.words())?;
            Ok(Some(Self { function, plan, threads }))
        }

        pub(super) fn queue<I: Value, O: Written>(
            &self,
            stream: &Stream,
            part: &DevicePart,
            pictures: Pictures<'_, I>,
            to: ViewMut<'_, O>,
            labels: Option<OneHot<'_>>,
        ) -> Result<()> {
            let rows = pictures.rows();
            let Pictures { pixels, offsets, parameters } = pictures;
            // Of pictures in sizes of their own, the kernel needs the elements of all.
            let elements = match offsets {
                Some(_) => pixels.len(),
                None => part.source_elements().unwrap_or(0),
            };
            let offsets = offsets.map_or(Arg::U64(0), |offsets| Arg::In(offsets.into()));
            let pixels_out = part.size().pixels() as usize;
            let chunks_of = |pixels: usize| pixels_out.div_ceil(pixels * self.threads as usize);
            let chunks = match part.needs() {
                Needs::Mean => 1,
                Needs::Copy => BLOCKS.div_ceil(rows).clamp(chunks_of(MOVED.1), chunks_of(MOVED.0)),
                _ => BLOCKS.div_ceil(rows).clamp(1, chunks_of(1)),
            };
            let (label, bytes, probabilities, classes) = match labels {
                None => (Arg::U64(0), 0, Arg::U64(0), 0),
                Some(OneHot { of, dtype, to, .. }) => {
                    let classes = to.len() / rows;
                    (Arg::In(of), dtype.size() as u32, Arg::Out(to.into()), classes as u32)
                }
            };
            let blocks = u32::try_from(rows * chunks).map_err(|_| {
                Error::new(ErrorKind::Config, format!("{rows} pictures are too many for one launch"))
            })?;
            let grid = Grid { blocks: (blocks, 1, 1), threads: (self.threads, 1, 1), shared_bytes: 0 };
            let args = [
                Arg::In(pixels.into()),
                Arg::U64(elements as u64),
                offsets,
                Arg::In(parameters.into()),
                Arg::In(self.plan.view().into()),
                Arg::U64(rows as u64),
                Arg::U32(chunks as u32),
                Arg::Out(to.into()),
                label,
                Arg::U32(bytes),
                probabilities,
                Arg::U32(classes),
            ];
            kernel(stream, &self.function, grid, &args)
        }
    }
}
