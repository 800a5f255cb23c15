//! Batches of encoded pictures: decoded on the GPU, on the CPU, or on both, then transformed on the device.

mod choice;
mod stage;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_device::{BackendKind, Buffer, Stream, ViewMut};
use feedline_images::device::{WORDS, Written};
use feedline_images::{Decoder, DevicePart, Format, Size};

use self::choice::{Choice, Part};
use super::{Augment, Pictures, check};
use crate::host::parallel;
use crate::nvjpeg::{Asked, Nvjpeg, Spent, Staging};

pub use self::choice::Decode;
pub use self::stage::{DecodeStage, Decoded, Encoded};

/// Decodes batches of JPEG files, and other pictures on the CPU, and lets them go through a list of
/// transforms on the device.
///
/// What nvJPEG refuses, such as progressive files, CMYK and pictures that must be turned, is decoded on the
/// CPU, that picture alone: the same pixels as a worker decodes. nvJPEG's pixels differ from those by a few
/// levels. Limits and [`Chroma`](feedline_images::Chroma) are those of the list.
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::Device;
/// use feedline_images::{Decoder, Transforms};
/// use feedline_kernels::ops::{Decode, PictureDecoder};
///
/// let transforms = Transforms::new().on_device().resize(2);
/// let stream = Device::host().stream()?;
/// let mut decoder = PictureDecoder::new(&stream, transforms.device_part()?, Decode::Cpu)?;
///
/// // A bitmap of one blue pixel, and its parameters; a loader delivers those of a batch.
/// let mut bmp = b"BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
/// bmp.extend([0; 24]);
/// bmp.extend([255, 0, 0, 0]);
/// let mut drawn = [0; 144];
/// decoder.part().draw(Decoder::new().size(&bmp)?, &mut Random::from_key(1), &mut drawn)?;
/// let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
/// let parameters: Vec<u32> = drawn.chunks(4).map(word).collect();
///
/// let mut finished = stream.buffer::<u8>(12)?;
/// decoder.run(&[&bmp], &parameters, finished.view_mut())?;
/// assert_eq!(finished.read()?, [0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255]);
/// assert_eq!(decoder.counts().on_cpu, 1);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct PictureDecoder {
    stream: Stream,
    augment: Augment,
    choice: Choice,
    gpu: Option<Nvjpeg>,
    decoders: Decoders,
    pixels: Staged<u8>,
    offsets: Staged<u32>,
    parameters: Staged<u32>,
    counts: Counts,
    times: DecodeTimes,
}

/// What a [`PictureDecoder`] has decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pictures decoded on the GPU.
    pub on_gpu: u64,
    /// Pictures decoded on the CPU, for whatever reason.
    pub on_cpu: u64,
    /// Those among them that were for the GPU, which refused them.
    pub refused: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            on_gpu: self.on_gpu + other.on_gpu,
            on_cpu: self.on_cpu + other.on_cpu,
            refused: self.refused + other.refused,
        }
    }
}

/// Where the time of a [`PictureDecoder`]'s thread went, over all batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeTimes {
    /// Reading the headers of the files, and asking nvJPEG which ones it takes.
    pub headers: Duration,
    /// Copying files into pinned memory.
    pub load: Duration,
    /// In nvJPEG's calls.
    pub queue: Duration,
    /// Waiting for the device to decode.
    pub wait: Duration,
    /// Copying to the device what the CPU decoded, and the parameters.
    pub copies: Duration,
    /// Waiting for the transforms of the batch before.
    pub transforms: Duration,
    /// Waiting for a batch; only of a stage.
    pub idle: Duration,
}

impl DecodeTimes {
    fn plus(self, other: Self) -> Self {
        Self {
            headers: self.headers + other.headers,
            load: self.load + other.load,
            queue: self.queue + other.queue,
            wait: self.wait + other.wait,
            copies: self.copies + other.copies,
            transforms: self.transforms + other.transforms,
            idle: self.idle + other.idle,
        }
    }
}

impl PictureDecoder {
    /// Prepares to decode on `stream`. `part` is that of a list without transforms on the host.
    ///
    /// # Errors
    /// `Config` for a list with transforms on the host; `Unavailable` for [`Decode::Gpu`] without a GPU or
    /// without nvJPEG; a device failure.
    pub fn new(stream: &Stream, part: DevicePart, decode: Decode) -> Result<Self> {
        check(part.source_elements().is_none(), || {
            "the list has transforms on the host: put on_device() first, so that whole pictures are decoded"
                .into()
        })?;
        let decoders = Decoders { headers: part.decoder(), free: Mutex::default() };
        let chroma = decoders.headers.chroma();
        let gpu = match decode {
            Decode::Cpu => None,
            Decode::Gpu => Some(Nvjpeg::open(stream, chroma)?),
            Decode::Auto => match Nvjpeg::open(stream, chroma) {
                Err(error) if error.kind() == ErrorKind::Unavailable => None,
                opened => Some(opened?),
            },
        };
        parallel::start_threads()?;
        Ok(Self {
            augment: Augment::new(stream, part)?,
            choice: Choice::new(decode, gpu.is_some()),
            gpu,
            decoders,
            pixels: Staged::new(stream, 1)?,
            offsets: Staged::new(stream, 1)?,
            parameters: Staged::new(stream, 1)?,
            counts: Counts::default(),
            times: DecodeTimes::default(),
            stream: stream.clone(),
        })
    }

    /// Lets the GPU decode for this decoder and those that share `turn` one after the other.
    fn take_turns(&mut self, turn: &Arc<Mutex<()>>) {
        if let Some(gpu) = &mut self.gpu {
            gpu.take_turns(turn);
        }
    }

    /// What is done with the decoded pictures.
    pub fn part(&self) -> &DevicePart {
        self.augment.part()
    }

    /// What was decoded where.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Where the time went.
    pub fn times(&self) -> DecodeTimes {
        let Spent { load, queue, wait } = self.gpu.as_ref().map(Nvjpeg::spent).unwrap_or_default();
        DecodeTimes { load, queue, wait, ..self.times }
    }

    /// Where pictures are decoded, and why, for logs.
    pub fn describe(&self) -> String {
        let engine = self.gpu.as_ref().map_or("no nvJPEG", Nvjpeg::describe);
        format!("{} ({engine})", self.choice)
    }

    /// Decodes the pictures of a batch and queues their transforms, which write `[rows, shape...]` to `to`.
    ///
    /// Blocks until the pictures are decoded: run it on a thread and a stream of its own to let it work
    /// beside a training step.
    ///
    /// # Errors
    /// `Sample` for a picture that cannot be decoded, with its row; `Config` for lengths that do not fit; a
    /// device failure.
    pub fn run<O: Written>(
        &mut self,
        encoded: &[&[u8]],
        parameters: &[u32],
        to: ViewMut<'_, O>,
    ) -> Result<()> {
        self.run_with(encoded, parameters, to, || Ok(()))
    }

    /// [`run`](Self::run), with other copies to the device, made while the stream is idle.
    fn run_with<O: Written>(
        &mut self,
        encoded: &[&[u8]],
        parameters: &[u32],
        to: ViewMut<'_, O>,
        copies: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let rows = encoded.len();
        check(parameters.len() == rows * WORDS, || {
            format!("{} parameters are not {WORDS} for each of {rows} pictures", parameters.len())
        })?;
        if rows == 0 {
            return copies();
        }
        // What other work the stream has does not count as decoding, and memory may be used again.
        let start = Instant::now();
        self.stream.synchronize()?;
        self.times.transforms += start.elapsed();
        let start = Instant::now();
        let (offsets, [gpu, cpu]) = self.decode(encoded)?;
        self.choice.took(start.elapsed(), gpu, cpu);

        let start = Instant::now();
        let bytes = offsets[rows] as usize;
        self.offsets.write(&self.stream, &offsets)?;
        self.parameters.write(&self.stream, parameters)?;
        copies()?;
        self.times.copies += start.elapsed();
        let pixels = self.pixels.memory.slice(0..bytes)?;
        let offsets = self.offsets.memory.slice(0..rows + 1)?;
        let parameters = self.parameters.memory.slice(0..rows * WORDS)?;
        self.augment.run(Pictures::ragged(pixels, offsets, parameters), to)
    }

    /// Decodes a batch into the memory for pixels. Returns where each picture begins, and what the GPU and
    /// the CPU did of it.
    fn decode(&mut self, encoded: &[&[u8]]) -> Result<(Vec<u32>, [Part; 2])> {
        let start = Instant::now();
        let mut offsets = vec![0u32];
        let mut places = Vec::new();
        for (row, (head, &bytes)) in self.decoders.heads(encoded).into_iter().zip(encoded).enumerate() {
            let Head { size, may_be_on_gpu } = head.map_err(|error| in_row(row, &error))?;
            let first = offsets.last().copied().unwrap_or(0);
            let next = u32::try_from(size.bytes()).ok().and_then(|bytes| first.checked_add(bytes));
            let next = next.ok_or_else(|| {
                let why = "the pictures of a batch have 4 GiB or more: lower the batch size";
                Error::new(ErrorKind::Config, why)
            })?;
            offsets.push(next);
            places.push(Place { row, bytes, size, may_be_on_gpu, range: first as usize..next as usize });
        }
        self.pixels.reserve(&self.stream, offsets[encoded.len()] as usize)?;

        let wanted = (self.choice.share() * encoded.len() as f64).round() as usize;
        let accepted = match &mut self.gpu {
            Some(gpu) if wanted > 0 => gpu.accept(&places.iter().map(Place::asked).collect::<Vec<_>>()),
            _ => vec![None; places.len()],
        };
        let (mut files, mut on_gpu, mut others, mut refused) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (place, file) in places.into_iter().zip(accepted) {
            let is_wanted = files.len() < wanted;
            if let Some(file) = file.filter(|_| is_wanted) {
                on_gpu.push(file);
                files.push(place);
            } else {
                refused += usize::from(is_wanted);
                others.push(place);
            }
        }
        self.times.headers += start.elapsed();
        let Self { pixels, gpu, stream, decoders, .. } = self;
        let mut parts = [files.len(), others.len()].map(|pictures| Part { pictures, ..Part::default() });
        let taken = match gpu {
            Some(gpu) if !files.is_empty() => {
                let Staged { staging, memory } = pixels;
                let (loaded, view) = (gpu.load(&on_gpu)?, memory.view_mut());
                let start = Instant::now();
                let own = || (gpu.decode(loaded, view), start.elapsed());
                let ((taken, time), on_cpu) = decoders.run(staging.bytes_mut(), &others, own)?;
                (parts[0].time, parts[1].time) = (time, on_cpu);
                taken?
            }
            _ => decoders.run(pixels.staging.bytes_mut(), &others, || false)?.0,
        };
        if !taken && !files.is_empty() {
            // A damaged file fails its whole batch: the CPU finds which one it is.
            decoders.run(pixels.staging.bytes_mut(), &files, || ())?;
            refused += files.len();
            others.append(&mut files);
        }
        let ranges: Vec<_> = others.iter().map(|place| place.range.clone()).collect();
        let start = Instant::now();
        pixels.copy(stream, &ranges)?;
        self.times.copies += start.elapsed();
        self.counts.on_gpu += files.len() as u64;
        self.counts.on_cpu += others.len() as u64;
        self.counts.refused += refused as u64;
        Ok((offsets, parts))
    }
}

/// A picture and its place in the memory for pixels.
struct Place<'a> {
    row: usize,
    bytes: &'a [u8],
    size: Size,
    may_be_on_gpu: bool,
    range: Range<usize>,
}

impl<'a> Place<'a> {
    /// What nvJPEG is asked about it.
    fn asked(&self) -> Option<Asked<'a>> {
        let Size { height, width } = self.size;
        self.may_be_on_gpu.then_some((self.bytes, (height, width), self.range.start))
    }
}

/// What the header of a picture says.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    size: Size,
    /// It is a JPEG that need not be turned.
    may_be_on_gpu: bool,
}

/// What decodes on the CPU, on the pool.
struct Decoders {
    /// For headers; has the settings of all.
    headers: Decoder,
    /// Those that no thread uses at the moment.
    free: Mutex<Vec<Decoder>>,
}

/// Headers that one thread reads at a time: some ten microseconds of work.
const HEADERS: usize = 32;

impl Decoders {
    /// What the headers say, by row.
    fn heads(&self, encoded: &[&[u8]]) -> Vec<Result<Head>> {
        let mut heads: Vec<_> = encoded.iter().map(|_| Ok(Head::default())).collect();
        let parts = heads.chunks_mut(HEADERS).zip(encoded.chunks(HEADERS)).collect();
        let read = |(heads, encoded): (&mut [_], &[&[u8]])| {
            for (head, bytes) in heads.iter_mut().zip(encoded) {
                *head = self.headers.size(bytes).map(|size| {
                    let is_jpeg = Format::of(bytes) == Some(Format::Jpeg);
                    Head { size, may_be_on_gpu: is_jpeg && self.headers.is_upright(bytes) }
                });
            }
        };
        parallel::beside(parts, read, || ());
        heads
    }

    /// Decodes `places` into `memory`, while the calling thread does `own`. Returns also how long the decoding
    /// took.
    fn run<R>(
        &self,
        memory: &mut [u8],
        places: &[Place<'_>],
        own: impl FnOnce() -> R,
    ) -> Result<(R, Duration)> {
        let mut parts = Vec::new();
        let (mut rest, mut at) = (memory, 0);
        for place in places {
            let (_, behind) = rest.split_at_mut(place.range.start - at);
            let (pixels, behind) = behind.split_at_mut(place.range.len());
            parts.push((place, pixels));
            (rest, at) = (behind, place.range.end);
        }
        let failed = Mutex::new(None);
        let (start, took) = (Instant::now(), Mutex::new(Duration::ZERO));
        let decode = |(place, pixels): (&Place<'_>, &mut [u8])| {
            let mut decoder = locked(&self.free).pop().unwrap_or_else(|| self.headers.fresh());
            let decoded = decoder.decode_into(place.bytes, place.size, pixels);
            locked(&self.free).push(decoder);
            *locked(&took) = start.elapsed();
            if let Err(error) = decoded {
                let mut failed = locked(&failed);
                // The first row counts, whichever thread was first.
                if failed.as_ref().is_none_or(|(row, _)| *row > place.row) {
                    *failed = Some((place.row, error));
                }
            }
        };
        let result = parallel::beside(parts, decode, own);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((row, error)) => Err(in_row(row, &error)),
            None => Ok((result, took.into_inner().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_row(row: usize, error: &Error) -> Error {
    Error::new(ErrorKind::Sample, format!("picture {row} of the batch: {}", error.message()))
        .caused_by(error.clone())
}

/// Memory on the host, and as much on the device.
struct Staged<T: Element> {
    staging: Host,
    memory: Buffer<T>,
}

/// Pinned memory for copies to a GPU, plain memory elsewhere.
enum Host {
    Pinned(Staging),
    Plain(Vec<u8>),
}

impl Host {
    fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        Ok(match stream.kind() {
            BackendKind::Cuda => Self::Pinned(Staging::new(stream, bytes)?),
            _ => Self::Plain(vec![0; bytes]),
        })
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(staging) => staging.bytes_mut(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Copies `values` to the device, through this memory, which grows where it is too small.
    fn write<T: Element>(&mut self, stream: &Stream, values: &[T], to: ViewMut<'_, T>) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if self.bytes_mut().len() < bytes.len() {
            *self = Self::new(stream, bytes.len())?;
        }
        self.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.copy(stream, std::slice::from_ref(&(0..bytes.len())), to)
    }

    /// Copies ranges of bytes to the same places of the device's memory.
    fn copy<T: Element>(
        &mut self,
        stream: &Stream,
        ranges: &[Range<usize>],
        to: ViewMut<'_, T>,
    ) -> Result<()> {
        match self {
            Self::Pinned(staging) => staging.copy(ranges, to),
            Self::Plain(bytes) => {
                let parts: Vec<_> =
                    ranges.iter().map(|range| (range.clone(), bytes[range.clone()].to_vec())).collect();
                stream.run("pictures", [], [to.into()], move |memory| {
                    let to: &mut [u8] = bytemuck::cast_slice_mut(memory.output::<T>(0));
                    parts.into_iter().for_each(|(range, bytes)| to[range].copy_from_slice(&bytes));
                })
            }
        }
    }
}

impl<T: Element> Staged<T> {
    fn new(stream: &Stream, elements: usize) -> Result<Self> {
        let staging = Host::new(stream, elements * size_of::<T>())?;
        Ok(Self { staging, memory: stream.buffer(elements)? })
    }

    /// Grows both to `elements`, with room for larger batches.
    fn reserve(&mut self, stream: &Stream, elements: usize) -> Result<()> {
        if self.memory.len() < elements {
            *self = Self::new(stream, elements + elements / 4)?;
        }
        Ok(())
    }

    /// Copies `values` to the device.
    fn write(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        self.reserve(stream, values.len())?;
        self.staging.write(stream, values, self.memory.slice_mut(0..values.len())?)
    }

    /// Copies ranges of bytes to the same places of the device's memory.
    fn copy(&mut self, stream: &Stream, ranges: &[Range<usize>]) -> Result<()> {
        self.staging.copy(stream, ranges, self.memory.view_mut())
    }
}

impl std::fmt::Debug for PictureDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PictureDecoder({}, {:?})", self.describe(), self.counts)
    }
}
