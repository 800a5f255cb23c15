//! Loaders of pictures. Their lanes decode the files of each batch, and transform the pictures on the device.

use std::sync::{Arc, Mutex};

use feedline::batch::PinnedBatch;
use feedline::{
    DType, Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Spec, Stage, Stream,
};
use feedline_core::Field;
use feedline_images::device::WORDS;
use feedline_images::{DevicePart, Transforms};
use half::{bf16, f16};

use crate::decoder::{GpuQueue, Refused, locked};
use crate::{Counts, Decode, DecodeTimes, PictureDecoder};

/// Decodes pictures of a data set ahead of a training step: on the GPU, on the CPU, or on both.
///
/// The loader's workers read the files and draw the parameters of the transforms. Its lanes
/// ([`LoaderBuilder::produce`]) decode the files of a batch from its pinned slot. They end with one launch
/// that writes the finished pictures into the consumer's slot. So order, cursor, checkpoints, bad samples and
/// the record of a run are the same as for any loader. The report calls this stage the device map. A record
/// has the hash of the files and parameters, not of the pixels.
///
/// ```no_run
/// use feedline::{Dataset, Device, Result};
/// use feedline_images::Transforms;
/// use feedline_pictures::{Decode, PictureStage};
///
/// // `files` is feedline_datasets' Pictures::encoded_up_to(open("photographs")?, transforms, 1 << 20)?.
/// fn train(files: impl Dataset, transforms: &Transforms) -> Result<()> {
///     let stage = PictureStage::new(transforms, Decode::Auto)?;
///     let device = Device::best()?;
///     let compute = device.stream()?;
///     let mut loader = stage.builder(files)?.batch_size(256).shuffle().seed(7).build(&device)?;
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
    /// The device's part of the list, or one part for each view.
    parts: Vec<DevicePart>,
    decode: Decode,
    shared: Arc<Shared>,
}

/// The state that lanes share.
#[derive(Default)]
struct Shared {
    gpus: Mutex<Vec<SharedGpu>>,
    /// One report per lane.
    reports: Mutex<Vec<Arc<Mutex<Report>>>>,
}

/// The state that the lanes of a GPU share.
struct SharedGpu {
    device: Device,
    queue: Arc<GpuQueue>,
    refused: Arc<Refused>,
}

/// The counters of a lane, as of its last batch.
#[derive(Clone, Debug, Default)]
struct Report {
    description: String,
    counts: Counts,
    times: DecodeTimes,
    /// Bytes of pinned memory and of device memory.
    bytes: [u64; 2],
}

/// The names of the fields of a batch of files.
#[derive(Clone)]
struct Names {
    /// The files.
    files: String,
    /// The names of the parameters and of the finished pictures, for each part.
    made: Vec<(String, String)>,
    /// The fields that are copied unchanged.
    others: Vec<String>,
}

/// The suffix that turns the name of the pictures' field into the name of the parameters' field.
const PARAMETERS: &str = ".parameters";

impl PictureStage {
    /// Creates a stage. The list must have no transforms before `on_device`.
    ///
    /// # Errors
    /// As [`Transforms::device_part`].
    pub fn new(transforms: &Transforms, decode: Decode) -> Result<Self> {
        Self::views([transforms], decode)
    }

    /// A stage that decodes each file once and makes several pictures from it, one by each of these lists.
    /// Use it for a data set such as `Pictures::encoded` with the same lists. Limits and chroma
    /// upsampling are those of the first list.
    ///
    /// # Errors
    /// As [`new`](Self::new); `Config` without lists.
    pub fn views<'a>(lists: impl IntoIterator<Item = &'a Transforms>, decode: Decode) -> Result<Self> {
        let parts: Vec<_> = lists.into_iter().map(Transforms::device_part).collect::<Result<_>>()?;
        if parts.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there are no views: add some"));
        }
        Ok(Self { parts, decode, shared: Arc::default() })
    }

    /// A builder of loaders that decode the pictures of `files`. `files` is a data set with the fields of
    /// [`Transforms::add_encoded_fields`], such as `Pictures::encoded`. In a batch, the finished pictures
    /// replace the field of the files. The parameters are left out, and the other fields are unchanged. With
    /// [`views`](Self::views), the files are in the field `image`, and each view replaces its parameters,
    /// `view0.parameters` and so on.
    ///
    /// There are two lanes ([`LoaderBuilder::device_lanes`]): one prepares its batch while the GPU decodes
    /// the batch of the other. If the CPU decodes too, there is a third lane. Each lane holds the decoded
    /// pixels of a batch on the device, with room for up to 25 % more pixels than the largest batch so far.
    ///
    /// # Errors
    /// `Config` for a set without such fields. [`build`](LoaderBuilder::build) returns `Unavailable` for
    /// [`Decode::Gpu`] without a GPU or without nvJPEG.
    pub fn builder(&self, files: impl Dataset) -> Result<LoaderBuilder> {
        let (names, spec) = self.fields(files.spec())?;
        let (parts, decode, shared) = (self.parts.clone(), self.decode, self.shared.clone());
        let make = move |stream: &Stream| {
            let mut decoder = PictureDecoder::with_views(stream, parts.clone(), decode)?;
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
        let builder = Loader::builder(files).produce(spec, make).device_lanes(lanes);
        Ok(if self.decode == Decode::Gpu { builder } else { builder.lanes_use_cpu() })
    }

    /// The fields of `files`, and the spec of the finished batches.
    fn fields(&self, files: &Spec) -> Result<(Names, Spec)> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, why));
        let is_of_files = |field: &&Field| field.as_ragged().is_some() && field.dtype() == DType::U8;
        let picture_of = |field: &Field| {
            let is_record = field.dtype() == DType::U32 && field.shape() == [WORDS];
            field.name().strip_suffix(PARAMETERS).filter(|_| is_record).map(str::to_owned)
        };
        let pictures: Vec<_> = files.fields().iter().filter_map(picture_of).collect();
        let of_files: Vec<_> = files.fields().iter().filter(is_of_files).map(|field| field.name()).collect();
        // With one list, the pictures get the name of the files' field.
        let named = of_files.iter().find(|name| pictures.iter().any(|picture| picture == **name));
        let Some(&name) = named.or(of_files.iter().find(|name| **name == "image")) else {
            return refuse(
                "the set has no field of encoded pictures with parameters: make it by Pictures::encoded \
                 or Transforms::add_encoded_fields",
            );
        };
        if pictures.len() != self.parts.len() {
            let (found, parts) = (pictures.len(), self.parts.len());
            return refuse(&format!(
                "the set has parameters for {found} pictures of each file, and the stage has {parts} lists: \
                 give both the same lists"
            ));
        }
        let (mut spec, mut parts) = (Spec::new(), self.parts.iter());
        let (mut made, mut others) = (Vec::new(), Vec::new());
        for field in files.fields() {
            if let Some(picture) = picture_of(field) {
                let Some(part) = parts.next() else { continue };
                spec = spec.field(&picture, part.dtype(), part.shape())?;
                made.push((field.name().to_owned(), picture));
            } else if field.name() != name {
                spec = spec.with(field)?;
                others.push(field.name().to_owned());
            }
        }
        Ok((Names { files: name.to_owned(), made, others }, spec))
    }

    /// The pictures decoded so far by all lanes of loaders of this stage.
    pub fn counts(&self) -> Counts {
        self.reports().iter().fold(Counts::default(), |sum, report| sum.plus(report.counts))
    }

    /// The time that these lanes have spent so far.
    pub fn times(&self) -> DecodeTimes {
        self.reports().iter().fold(DecodeTimes::default(), |sum, report| sum.plus(report.times))
    }

    /// The bytes of pinned memory and of device memory that these lanes hold for decoded pixels and
    /// parameters. A loader's [`memory_use`](Loader::memory_use) counts only its slots. nvJPEG's own memory
    /// is unknown.
    pub fn lane_bytes(&self) -> [u64; 2] {
        self.reports()
            .iter()
            .fold([0, 0], |[pinned, device], report| [pinned + report.bytes[0], device + report.bytes[1]])
    }

    /// Describes the processors that decode, for logs. Empty before the first loader is built.
    pub fn describe(&self) -> String {
        self.reports().into_iter().next().map(|report| report.description).unwrap_or_default()
    }

    fn reports(&self) -> Vec<Report> {
        locked(&self.shared.reports).iter().map(|report| locked(report).clone()).collect()
    }
}

/// Decodes the pictures of `batch`, and queues their transforms and the copies of the other fields.
fn finish(decoder: &mut PictureDecoder, names: &Names, batch: &mut PinnedBatch<'_>) -> Result<()> {
    let (bytes, offsets) = batch.ragged::<u8>(&names.files)?;
    let file = |pair: &[u32]| &bytes[pair[0] as usize..pair[1] as usize];
    let files: Vec<_> = offsets.windows(2).map(file).collect();
    let parameters = names.made.iter().map(|(parameters, _)| batch.field::<u32>(parameters));
    let parameters = parameters.collect::<Result<Vec<_>>>()?;
    let helps = batch.needs_help();
    decoder.decode(&files, &parameters, helps).map_err(|error| error.at_stage(Stage::Decode))?;
    // The transforms come last, because from here on work waits for the last use of the output's slot.
    for (view, (_, picture)) in names.made.iter().enumerate() {
        match decoder.part_of(view).dtype() {
            DType::U8 => decoder.transform::<u8>(view, batch.output(picture)?),
            DType::F16 => decoder.transform::<f16>(view, batch.output(picture)?),
            DType::BF16 => decoder.transform::<bf16>(view, batch.output(picture)?),
            _ => decoder.transform::<f32>(view, batch.output(picture)?),
        }?;
    }
    names.others.iter().try_for_each(|name| batch.copy(name))
}

impl Shared {
    /// Shares the queue of `device` with `decoder`, because the engines of `device` decode one batch at a
    /// time, for all loaders.
    fn share(&self, device: &Device, decoder: &mut PictureDecoder) {
        let mut gpus = locked(&self.gpus);
        if !gpus.iter().any(|gpu| gpu.device == *device) {
            let (queue, refused) = Default::default();
            gpus.push(SharedGpu { device: device.clone(), queue, refused });
        }
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.device == *device) {
            decoder.share((&gpu.queue, &gpu.refused));
        }
    }

    /// Adds the report of another lane.
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
