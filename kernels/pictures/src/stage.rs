//! Loaders of pictures whose lanes decode the files of each batch and transform them on the device.

use std::sync::{Arc, Mutex};

use feedline::batch::PinnedBatch;
use feedline::{
    DType, Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Spec, Stage, Stream,
};
use feedline_device::ViewMut;
use feedline_images::device::{WORDS, Written};
use feedline_images::{DevicePart, Transforms};
use half::{bf16, f16};

use crate::decoder::{GpuQueue, Refused, locked};
use crate::{Counts, Decode, DecodeTimes, PictureDecoder};

/// How pictures of a data set are decoded ahead of a training step: on the GPU, on the CPU, or on both.
///
/// The loader's workers read the files and draw the parameters of the transforms. Its lanes
/// ([`LoaderBuilder::produce`]) decode the files of a batch from its pinned slot, and end with one launch that
/// writes the finished pictures into the slot that the consumer gets. So order, cursor, checkpoints, bad samples
/// and the record of a run are those of any loader, and the report names this stage the device map. A record
/// has the hash of the files and parameters, not of pixels.
///
/// ```no_run
/// use feedline::{Dataset, Device, Result};
/// use feedline_images::Transforms;
/// use feedline_pictures::{Decode, PictureStage};
///
/// // `files` is feedline_datasets' ImageDataset::encoded(open("photographs")?, transforms, 1 << 20)?.
/// fn train(files: impl Dataset, transforms: &Transforms) -> Result<()> {
///     let stage = PictureStage::new(transforms, Decode::Auto)?;
///     let device = Device::best()?;
///     let compute = device.stream()?;
///     let mut loader = stage.builder(files)?.batch_size(256).shuffle(7).build(&device)?;
///     for batch in loader.epoch(0)? {
///         let batch = batch?.wait_on(&compute)?;
///         let pictures = batch.field::<u8>("image")?; // [rows, 224, 224, 3], for kernels on `compute`
///     }
///     println!("{:?}", stage.counts());
///     Ok(())
/// }
/// let transforms = Transforms::new().on_device().random_resized_crop(224).flip(0.5);
/// # let _ = transforms;
/// ```
pub struct PictureStage {
    part: DevicePart,
    decode: Decode,
    shared: Arc<Shared>,
}

/// What the lanes share.
#[derive(Default)]
struct Shared {
    gpus: Mutex<Vec<SharedGpu>>,
    /// Of each lane.
    reports: Mutex<Vec<Arc<Mutex<Report>>>>,
}

/// What the lanes of a GPU share.
struct SharedGpu {
    device: Device,
    queue: Arc<GpuQueue>,
    refused: Arc<Refused>,
}

/// What a lane has done, up to its last batch.
#[derive(Clone, Debug, Default)]
struct Report {
    description: String,
    counts: Counts,
    times: DecodeTimes,
    /// Of pinned and of device memory.
    bytes: [u64; 2],
}

/// The names of the fields of a batch of files.
#[derive(Clone)]
struct Names {
    image: String,
    parameters: String,
    /// The fields that are copied as they are.
    others: Vec<String>,
}

impl PictureStage {
    /// The list must have no transforms before `on_device`.
    ///
    /// # Errors
    /// As [`Transforms::device_part`].
    pub fn new(transforms: &Transforms, decode: Decode) -> Result<Self> {
        Ok(Self { part: transforms.device_part()?, decode, shared: Arc::default() })
    }

    /// A builder of loaders that decode the pictures of `files`, a data set with the fields of
    /// [`Transforms::add_encoded_fields`] such as `ImageDataset::encoded`. Batches have the finished pictures in
    /// the field of the files, the other fields as they are, and no parameters.
    ///
    /// There are two lanes ([`LoaderBuilder::device_lanes`]), one that prepares its batch while the GPU decodes
    /// that of the other, and a third one if the CPU decodes too. Each holds the decoded pixels of a batch on
    /// the device, of up to 25 % more pixels than the largest batch so far.
    ///
    /// # Errors
    /// `Config` for a set without such fields. [`build`](LoaderBuilder::build) returns `Unavailable` for
    /// [`Decode::Gpu`] without a GPU or without nvJPEG.
    pub fn builder(&self, files: impl Dataset) -> Result<LoaderBuilder> {
        let (names, spec) = self.fields(files.spec())?;
        let (part, decode, shared) = (self.part.clone(), self.decode, self.shared.clone());
        let make = move |stream: &Stream| {
            let mut decoder = PictureDecoder::new(stream, part.clone(), decode)?;
            shared.share(&stream.device(), &mut decoder);
            let report = shared.add(&decoder);
            let names = names.clone();
            Ok(move |batch: &mut PinnedBatch<'_>| {
                let finished = finish(&mut decoder, &names, batch);
                let mut report = locked(&report);
                (report.counts, report.times, report.bytes) =
                    (decoder.counts(), decoder.times(), decoder.bytes());
                finished
            })
        };
        let lanes = if self.decode == Decode::Gpu { 2 } else { 3 };
        Ok(Loader::builder(files).produce(spec, make).device_lanes(lanes))
    }

    /// The fields of `files`, and the spec of the finished batches.
    fn fields(&self, files: &Spec) -> Result<(Names, Spec)> {
        let parameters_of = |image: &str| format!("{image}.parameters");
        let image = files.fields().iter().find(|field| {
            let is_of_files = field.as_ragged().is_some() && field.dtype() == DType::U8;
            is_of_files && files.index_of(&parameters_of(field.name())).is_ok()
        });
        let Some(image) = image.map(|field| field.name()) else {
            let why = "the set has no field of encoded pictures with parameters: make it by \
                       ImageDataset::encoded or Transforms::add_encoded_fields";
            return Err(Error::new(ErrorKind::Config, why));
        };
        let parameters = parameters_of(image);
        let mut spec = Spec::new();
        let mut others = Vec::new();
        for field in files.fields() {
            if field.name() == image {
                spec = spec.field(image, self.part.dtype(), self.part.shape())?;
            } else if field.name() != parameters {
                spec = spec.with(field)?;
                others.push(field.name().to_owned());
            }
        }
        Ok((Names { image: image.to_owned(), parameters, others }, spec))
    }

    /// The pictures decoded so far by all lanes of loaders of this stage.
    pub fn counts(&self) -> Counts {
        self.reports().iter().fold(Counts::default(), |sum, report| sum.plus(report.counts))
    }

    /// The time spent so far by these lanes.
    pub fn times(&self) -> DecodeTimes {
        self.reports().iter().fold(DecodeTimes::default(), |sum, report| sum.plus(report.times))
    }

    /// The bytes of pinned and of device memory that these lanes hold for decoded pixels and parameters. A loader's
    /// [`memory_use`](Loader::memory_use) has only its slots, and nvJPEG does not tell its own.
    pub fn lane_bytes(&self) -> [u64; 2] {
        self.reports()
            .iter()
            .fold([0, 0], |[pinned, device], report| [pinned + report.bytes[0], device + report.bytes[1]])
    }

    /// Describes the processors that decode, for logs; empty before the first loader.
    pub fn describe(&self) -> String {
        self.reports().into_iter().next().map(|report| report.description).unwrap_or_default()
    }

    fn reports(&self) -> Vec<Report> {
        locked(&self.shared.reports).iter().map(|report| locked(report).clone()).collect()
    }
}

/// Decodes the pictures of `batch`, and queues their transforms and the copies of the other fields.
fn finish(decoder: &mut PictureDecoder, names: &Names, batch: &mut PinnedBatch<'_>) -> Result<()> {
    let (bytes, offsets) = batch.ragged::<u8>(&names.image)?;
    let parameters = batch.field::<u32>(&names.parameters)?;
    let file = |pair: &[u32]| &bytes[pair[0] as usize..pair[1] as usize];
    let files: Vec<_> = offsets.windows(2).map(file).collect();
    debug_assert_eq!(parameters.len(), files.len() * WORDS);
    let helps = batch.needs_help();
    decoder.decode(&files, parameters, helps).map_err(|error| error.at_stage(Stage::Decode))?;
    // Only now: from here on, work waits for the last use of the output's slot.
    match decoder.part().dtype() {
        DType::U8 => transform::<u8>(decoder, batch.output(&names.image)?),
        DType::F16 => transform::<f16>(decoder, batch.output(&names.image)?),
        DType::BF16 => transform::<bf16>(decoder, batch.output(&names.image)?),
        _ => transform::<f32>(decoder, batch.output(&names.image)?),
    }?;
    names.others.iter().try_for_each(|name| batch.copy(name))
}

fn transform<O: Written>(decoder: &mut PictureDecoder, to: ViewMut<'_, O>) -> Result<()> {
    decoder.transform(to)
}

impl Shared {
    /// Shares the queue of `device` with `decoder`: its engines decode one batch at a time, for all loaders.
    fn share(&self, device: &Device, decoder: &mut PictureDecoder) {
        let mut gpus = locked(&self.gpus);
        if !gpus.iter().any(|gpu| gpu.device.is(device)) {
            let (queue, refused) = Default::default();
            gpus.push(SharedGpu { device: device.clone(), queue, refused });
        }
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.device.is(device)) {
            decoder.share((&gpu.queue, &gpu.refused));
        }
    }

    /// The report of another lane.
    fn add(&self, decoder: &PictureDecoder) -> Arc<Mutex<Report>> {
        let report = Report { description: decoder.describe(), ..Report::default() };
        let report = Arc::new(Mutex::new(report));
        locked(&self.reports).push(report.clone());
        report
    }
}

impl std::fmt::Debug for PictureStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PictureStage({:?}, {:?})", self.decode, self.counts())
    }
}
