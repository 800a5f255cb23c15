//! Batches of encoded pictures: decoded on the GPU, on the CPU, or on both, then transformed on the device.

mod cpu;
mod lent;
mod line;
mod queue;
mod stage;
mod staged;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Stream, ViewMut};
use feedline_images::device::{WORDS, Written};
use feedline_images::{DevicePart, Format, Size};

use self::cpu::{Decoders, in_row};
use self::line::Line;
use self::queue::{Picture, Queue};
use self::staged::Staged;
use super::{Augment, Pictures, check};
use crate::host::parallel;
use crate::nvjpeg::{Nvjpeg, Spent};

pub use self::stage::{DecodeStage, Decoded, Encoded};

/// Who decodes the pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decode {
    /// The CPU.
    Cpu,
    /// nvJPEG on the GPU; what it refuses, the CPU.
    Gpu,
    /// Both: while a batch waits for the GPU, the CPU decodes its pictures, one after the other, and the GPU
    /// gets what is left when its turn comes. Only the batches of a [`DecodeStage`] with two or more threads
    /// wait. The CPU alone where nvJPEG is missing.
    #[default]
    Auto,
}

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
    decode: Decode,
    gpu: Option<Nvjpeg>,
    /// Shared by the threads of a stage.
    line: Arc<Line>,
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
    /// Waiting for the GPU, which decodes another batch. With [`Decode::Auto`] the CPU decodes meanwhile.
    pub turn: Duration,
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
            turn: self.turn + other.turn,
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
        let headers = part.decoder();
        let chroma = headers.chroma();
        let gpu = match decode {
            Decode::Cpu => None,
            Decode::Gpu => Some(Nvjpeg::open(stream, chroma)?),
            Decode::Auto => match Nvjpeg::open(stream, chroma) {
                Err(error) if error.kind() == ErrorKind::Unavailable => None,
                opened => Some(opened?),
            },
        };
        let decoders = Decoders { headers, free: Mutex::default(), beside_gpu: gpu.is_some() };
        parallel::start_picture_threads()?;
        Ok(Self {
            augment: Augment::new(stream, part)?,
            decode,
            gpu,
            line: Arc::default(),
            decoders,
            pixels: Staged::new(stream, 1)?,
            offsets: Staged::new(stream, 1)?,
            parameters: Staged::new(stream, 1)?,
            counts: Counts::default(),
            times: DecodeTimes::default(),
            stream: stream.clone(),
        })
    }

    /// Lets the GPU decode for this decoder and those that share `line` one after the other.
    fn wait_in(&mut self, line: &Arc<Line>) {
        self.line = line.clone();
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

    /// Where pictures are decoded, for logs.
    pub fn describe(&self) -> String {
        match (&self.gpu, self.decode) {
            (None, Decode::Auto) => "on the CPU (no nvJPEG)".to_owned(),
            (None, _) => "on the CPU".to_owned(),
            (Some(gpu), Decode::Auto) => format!("on the GPU and the CPU ({})", gpu.describe()),
            (Some(gpu), _) => format!("on the GPU ({})", gpu.describe()),
        }
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
        let offsets = self.decode(encoded)?;

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

    /// Decodes a batch into the memory for pixels. Returns where each picture begins.
    fn decode(&mut self, encoded: &[&[u8]]) -> Result<Vec<u32>> {
        let start = Instant::now();
        let (sizes, offsets) = self.sizes(encoded)?;
        self.pixels.reserve(&self.stream, offsets[encoded.len()] as usize)?;
        let Self { pixels: Staged { staging, memory }, gpu, decoders, times, line, stream, .. } = self;
        let (mut for_gpu, mut others) = (Vec::new(), Vec::new());
        for picture in pictures(encoded, &sizes, staging.bytes_mut()) {
            let Picture { bytes, size, range, .. } = &picture;
            let headers = &decoders.headers;
            let is_upright = || Format::of(bytes) == Some(Format::Jpeg) && headers.is_upright(bytes);
            let gpu = gpu.as_mut().filter(|_| is_upright());
            match gpu.and_then(|gpu| gpu.accept(bytes, *size, range.start)) {
                Some(file) => for_gpu.push((file, picture)),
                None => others.push(picture),
            }
        }
        let mut refused = if gpu.is_some() { others.len() } else { 0 };
        for_gpu.sort_by_key(|(file, _)| file.order());
        let (files, mut all): (Vec<_>, Vec<_>) = for_gpu.into_iter().unzip();
        all.append(&mut others);
        let ranges: Vec<_> = all.iter().map(|picture| picture.range.clone()).collect();
        times.headers += start.elapsed();

        let mut on_gpu = 0;
        let queue = Queue::new(all, if self.decode == Decode::Gpu { files.len() } else { 0 }, line);
        let taken = match gpu {
            Some(gpu) if !files.is_empty() => {
                let loaded = gpu.load(&files)?;
                let own = || {
                    let start = Instant::now();
                    let turn = line.wait(|| queue.len() == 0);
                    on_gpu = queue.take_first(files.len());
                    times.turn += start.elapsed();
                    gpu.decode(loaded, on_gpu, memory.view_mut(), turn)
                };
                decoders.run(&queue, own)??
            }
            _ => decoders.run(&queue, || true)?,
        };
        if !taken {
            // A damaged file fails its whole batch: the CPU finds which one it is.
            let again = pictures(encoded, &sizes, staging.bytes_mut());
            let of_gpu = |picture: &Picture<'_>| ranges[..on_gpu].contains(&picture.range);
            let again = again.into_iter().filter(of_gpu).collect();
            decoders.run(&Queue::new(again, 0, line), || ())?;
            refused += on_gpu;
            on_gpu = 0;
        }
        let start = Instant::now();
        self.pixels.copy(stream, &ranges[on_gpu..])?;
        self.times.copies += start.elapsed();
        self.counts.on_gpu += on_gpu as u64;
        self.counts.on_cpu += (ranges.len() - on_gpu) as u64;
        self.counts.refused += refused as u64;
        Ok(offsets)
    }

    /// The size of each picture, from its header, and where the pixels of each begin.
    fn sizes(&self, encoded: &[&[u8]]) -> Result<(Vec<Size>, Vec<u32>)> {
        let (mut sizes, mut offsets) = (Vec::new(), vec![0u32]);
        for (row, encoded) in encoded.iter().enumerate() {
            let size = self.decoders.headers.size(encoded).map_err(|error| in_row(row, &error))?;
            let next = u32::try_from(size.bytes()).ok().and_then(|bytes| offsets[row].checked_add(bytes));
            offsets.push(next.ok_or_else(|| {
                let why = "the pictures of a batch have 4 GiB or more: lower the batch size";
                Error::new(ErrorKind::Config, why)
            })?);
            sizes.push(size);
        }
        Ok((sizes, offsets))
    }
}

/// The pictures of a batch, each with its part of the memory for pixels.
fn pictures<'a>(encoded: &[&'a [u8]], sizes: &[Size], mut memory: &'a mut [u8]) -> Vec<Picture<'a>> {
    let (mut pictures, mut first) = (Vec::new(), 0);
    for (row, (&bytes, &size)) in encoded.iter().zip(sizes).enumerate() {
        let pixels;
        (pixels, memory) = memory.split_at_mut(size.bytes());
        pictures.push(Picture { row, bytes, size, range: first..first + size.bytes(), pixels });
        first += size.bytes();
    }
    pictures
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for PictureDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PictureDecoder({}, {:?})", self.describe(), self.counts)
    }
}
