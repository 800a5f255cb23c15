//! Transforms on the device, in one launch per batch.

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "kernels take raw addresses")]
mod gpu;

use std::sync::Arc;

use feedline_core::{DType, Element, Result};
use feedline_device::{BackendKind, Input, Stream, View, ViewMut, launch_host};
use feedline_images::DevicePart;
use feedline_images::device::{HostBatch, Labels, Value, WORDS, Written};
use feedline_kernels::pool::{self, each};

use crate::check;

/// Runs the device's part of a list of transforms, on one stream.
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::{Buffer, Device};
/// use feedline_images::{Size, Transforms};
/// use feedline_pictures::{Augment, Pictures};
///
/// let transforms = Transforms::new().center_crop(2).on_device();
/// let transforms = transforms.normalise([0.5; 3], [0.5; 3]).channels_first();
/// let stream = Device::new_host().stream()?;
/// let augment = Augment::new(&stream, transforms.device_part()?)?;
///
/// // A loader delivers the pictures and the parameters of a batch; here they are written by hand.
/// let mut parameters = [0; 144];
/// augment.part().draw(Size::new(2, 2), &mut Random::from_key(1), &mut parameters)?;
/// let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
/// let words: Vec<u32> = parameters.chunks(4).map(word).collect();
/// let (mut pixels, mut records) = (Buffer::<u8>::new(&stream, 12)?, Buffer::<u32>::new(&stream, 36)?);
/// pixels.write(&[255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0])?;
/// records.write(&words)?;
///
/// let mut finished = Buffer::<f32>::new(&stream, augment.part().elements())?;
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

/// The pictures of a batch, as a loader copied them to the device.
#[derive(Clone, Copy, Debug)]
pub struct Pictures<'a, I: Element> {
    pixels: View<'a, I>,
    offsets: Option<View<'a, u32>>,
    parameters: View<'a, u32>,
}

impl<'a, I: Element> Pictures<'a, I> {
    /// Pictures of one size, from the fields of pixels and parameters.
    pub fn new(pixels: View<'a, I>, parameters: View<'a, u32>) -> Self {
        Self { pixels, offsets: None, parameters }
    }

    /// Pictures of different sizes. `offsets` has the index of each picture's first element in `pixels`, and
    /// then the end of the last picture.
    pub fn ragged(pixels: View<'a, I>, offsets: View<'a, u32>, parameters: View<'a, u32>) -> Self {
        Self { pixels, offsets: Some(offsets), parameters }
    }

    fn rows(&self) -> usize {
        self.parameters.len() / WORDS
    }
}

/// The labels of a batch, and a buffer for their probabilities.
pub struct OneHot<'a> {
    of: Input<'a>,
    dtype: DType,
    rows: usize,
    to: ViewMut<'a, f32>,
}

impl<'a> OneHot<'a> {
    /// Writes the classes `of` the samples (`u8` or `i64`) to `to`, as a row of probabilities per sample. The
    /// length of `to` determines the number of classes. The labels of mixed samples are mixed in the same
    /// proportions.
    pub fn new<L: Element>(of: View<'a, L>, to: ViewMut<'a, f32>) -> Self {
        Self { rows: of.len(), of: of.into(), dtype: L::DTYPE, to }
    }
}

impl Augment {
    /// Prepares `part` for batches on `stream`. On a GPU this loads the kernels. The first use on a machine
    /// compiles them.
    ///
    /// # Errors
    /// `Config` for pictures that are empty or too large; a device failure.
    pub fn new(stream: &Stream, part: DevicePart) -> Result<Self> {
        let fits = i32::try_from(part.size().pixels() * 4).is_ok() && part.elements() > 0;
        check(fits, || {
            format!("augment: pictures of {} are empty or have 2^29 pixels or more", part.size())
        })?;
        if stream.device().kind() != BackendKind::Cuda {
            pool::start()?;
        }
        Ok(Self {
            #[cfg(feature = "cuda")]
            gpu: gpu::Gpu::new(stream, &part)?,
            stream: stream.clone(),
            part: Arc::new(part),
        })
    }

    /// The transforms.
    pub fn part(&self) -> &DevicePart {
        &self.part
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues the transforms of a batch. One launch writes `[rows, shape...]` to `to`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths or types; a device failure.
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
        self.run_on_host(pictures, to, labels)
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
            let (found, target) = types;
            format!(
                "augment: the transforms turn {from} into {to}; the batch has {found}, the result {target}"
            )
        })?;
        check(parameters.len() == rows * WORDS, || {
            format!(
                "augment: {} parameters are not a multiple of {WORDS}, one record per picture",
                parameters.len()
            )
        })?;
        let fits = match (offsets, part.source_elements()) {
            (Some(offsets), _) => offsets.len() == rows + 1,
            (None, Some(elements)) => pixels.len() == rows * elements,
            (None, None) => false,
        };
        check(fits && to.len() == rows * part.elements(), || {
            format!(
                "augment: {rows} pictures with {} elements and {} offsets, into {} elements of which each \
                 picture needs {}: give the fields of one batch, with offsets if the sizes differ",
                pixels.len(),
                offsets.as_ref().map_or(0, View::len),
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

    fn run_on_host<I: Value, O: Written>(
        &self,
        pictures: Pictures<'_, I>,
        to: ViewMut<'_, O>,
        labels: Option<OneHot<'_>>,
    ) -> Result<()> {
        let Pictures { pixels, offsets, parameters } = pictures;
        let (part, rows) = (self.part.clone(), pictures.rows());
        // There are always three inputs. Without offsets, the kernel does not read the third one.
        let has_offsets = offsets.is_some();
        let inputs = [pixels.into(), parameters.into(), offsets.unwrap_or(parameters).into()];
        fn batch<'a, I: Value>(memory: &feedline_device::Memory<'a>, has_offsets: bool) -> HostBatch<'a, I> {
            let offsets = has_offsets.then(|| memory.input(2));
            HostBatch { pixels: memory.input(0), offsets, parameters: memory.input(1) }
        }
        let Some(OneHot { of, dtype, to: probabilities, .. }) = labels else {
            return launch_host(&self.stream, "augment", inputs, [to.into()], move |memory| {
                on_host(&part, batch::<I>(memory, has_offsets), memory.output::<O>(0), None);
            });
        };
        let [pixels, parameters, offsets] = inputs;
        let outputs = [to.into(), probabilities.into()];
        launch_host(&self.stream, "augment", [pixels, parameters, offsets, of], outputs, move |memory| {
            let of: Vec<i64> = match dtype {
                DType::U8 => memory.input::<u8>(3).iter().copied().map(i64::from).collect(),
                _ => memory.input::<i64>(3).to_vec(),
            };
            let probabilities = memory.output::<f32>(1);
            let labels = Labels { of: &of, classes: probabilities.len() / rows };
            let batch = batch::<I>(memory, has_offsets);
            on_host(&part, batch, memory.output::<O>(0), Some((labels, probabilities)));
        })
    }
}

impl std::fmt::Debug for Augment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Augment({} to {:?} on {})", self.part.source_type(), self.part.shape(), self.stream)
    }
}

/// Runs the transforms of `part` on every sample of a batch. `probabilities` has a row for each label.
///
/// # Panics
/// If the lengths do not match each other.
fn on_host<I: Value, O: Written>(
    part: &DevicePart,
    batch: HostBatch<'_, I>,
    to: &mut [O],
    labels: Option<(Labels<'_>, &mut [f32])>,
) {
    let rows = to.chunks_exact_mut(part.elements()).enumerate();
    match labels {
        None => each(rows, |(row, to)| part.run_on_host(batch, row, to, None)),
        Some((labels, probabilities)) => {
            let of_rows = probabilities.chunks_exact_mut(labels.classes);
            each(rows.zip(of_rows), |((row, to), probabilities)| {
                part.run_on_host(batch, row, to, Some((labels, probabilities)));
            });
        }
    }
}
