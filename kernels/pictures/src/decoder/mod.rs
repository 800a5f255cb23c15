//! Batches of encoded pictures. They are decoded on the GPU, on the CPU or on both, and then transformed on
//! the device.

mod cpu;
mod gpu_queue;
mod picture_queue;
mod refused;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Stream, ViewMut};
use feedline_images::device::{WORDS, Written};
use feedline_images::{DevicePart, Format, Size};

use self::cpu::{Decoders, in_row, start_pools};
pub(crate) use self::gpu_queue::GpuQueue;
use self::picture_queue::{Picture, PictureQueue};
pub(crate) use self::refused::Refused;
use self::refused::find_refused;
use crate::nvjpeg::{Nvjpeg, Times};
use crate::upload::Upload;
use crate::{Augment, Pictures, check};

/// The processor that decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decode {
    /// The CPU.
    Cpu,
    /// nvJPEG on the GPU, and the CPU for pictures that nvJPEG refuses.
    Gpu,
    /// Both. While a batch waits for the GPU, the CPU decodes its pictures from the end, and the GPU decodes
    /// the rest. Reading comes first, so the CPU helps only while the workers are ahead of the lanes. The
    /// training step needs the CPU too, so the CPU does not help while the lanes are ahead of the step.
    /// Timing decides which processor decodes a picture. This may change its pixels by a few levels, and
    /// those of a damaged picture altogether (see [`PictureDecoder`]). Order and random numbers do not
    /// change. Without nvJPEG, the CPU decodes alone.
    #[default]
    Auto,
}

/// Decodes batches of encoded pictures, and applies a list of transforms on the device.
///
/// nvJPEG decodes JPEG files. It refuses progressive files, CMYK and pictures with an EXIF rotation. The CPU
/// decodes these and all other formats, to the same pixels as a worker of the loader. nvJPEG's pixels differ
/// from them by a few levels. If the compressed data of a file are damaged, each decoder continues in its own
/// way and none reports it: these pixels differ entirely. The list sets the limits and the
/// [`Chroma`](feedline_images::Chroma).
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::{Buffer, Device};
/// use feedline_images::{Decoder, Transforms};
/// use feedline_pictures::{Decode, PictureDecoder};
///
/// let transforms = Transforms::new().on_device().resize(2);
/// let stream = Device::new_host().stream()?;
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
/// let mut finished = Buffer::<u8>::new(&stream, 12)?;
/// decoder.run(&[&bmp], &parameters, finished.view_mut())?;
/// assert_eq!(finished.read()?, [0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255]);
/// assert_eq!(decoder.counts().on_cpu, 1);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct PictureDecoder {
    stream: Stream,
    /// The transforms and parameters of each view.
    views: Vec<View>,
    decode: Decode,
    gpu: Option<Nvjpeg>,
    /// The queue of the GPU. The decoders of a GPU share it, and `refused` too.
    gpu_queue: Arc<GpuQueue>,
    refused: Arc<Refused>,
    decoders: Decoders,
    pixels: Upload<u8>,
    offsets: Upload<u32>,
    /// The number of rows that were decoded last, and the bytes of their pixels.
    decoded: (usize, usize),
    counts: Counts,
    times: DecodeTimes,
}

/// One view of all pictures, with its transforms.
struct View {
    augment: Augment,
    parameters: Upload<u32>,
}

/// The number of pictures that a [`PictureDecoder`] has decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pictures decoded on the GPU.
    pub on_gpu: u64,
    /// Pictures decoded on the CPU.
    pub on_cpu: u64,
    /// Pictures that nvJPEG refused. `on_cpu` counts them too.
    pub refused: u64,
}

impl Counts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            on_gpu: self.on_gpu + other.on_gpu,
            on_cpu: self.on_cpu + other.on_cpu,
            refused: self.refused + other.refused,
        }
    }
}

/// The time of a [`PictureDecoder`]'s thread over all batches, by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeTimes {
    /// Parsing the headers of the files, by the CPU's decoder and by nvJPEG.
    pub headers: Duration,
    /// Waiting in the queue for the GPU. With [`Decode::Auto`] the CPU decodes meanwhile.
    pub queue: Duration,
    /// In calls of nvJPEG.
    pub submit: Duration,
    /// Waiting for the device to decode.
    pub wait: Duration,
    /// Copying the CPU's pictures and the parameters to the device.
    pub copies: Duration,
    /// Waiting for the transforms of the previous batch.
    pub transforms: Duration,
}

impl DecodeTimes {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            headers: self.headers + other.headers,
            queue: self.queue + other.queue,
            submit: self.submit + other.submit,
            wait: self.wait + other.wait,
            copies: self.copies + other.copies,
            transforms: self.transforms + other.transforms,
        }
    }
}

impl PictureDecoder {
    /// Creates a decoder on `stream`. `part` is from a list without transforms on the host.
    ///
    /// # Errors
    /// `Config` for a list with transforms on the host; `Unavailable` for [`Decode::Gpu`] without a GPU or
    /// without nvJPEG; a device failure.
    pub fn new(stream: &Stream, part: DevicePart, decode: Decode) -> Result<Self> {
        Self::with_views(stream, vec![part], decode)
    }

    /// A decoder for several views of each picture. Limits and chroma are those of the first view.
    ///
    /// # Errors
    /// As [`new`](Self::new); `Config` without views.
    pub(crate) fn with_views(stream: &Stream, parts: Vec<DevicePart>, decode: Decode) -> Result<Self> {
        check(parts.iter().all(|part| part.source_elements().is_none()), || {
            "the list has transforms on the host: put on_device() first, so that whole pictures are decoded"
                .into()
        })?;
        let Some(first) = parts.first() else {
            return Err(Error::new(ErrorKind::Config, "there are no views: add some"));
        };
        let headers = first.decoder();
        let chroma = headers.chroma();
        let gpu = match decode {
            Decode::Cpu => None,
            Decode::Gpu => Some(Nvjpeg::open(stream, chroma)?),
            Decode::Auto => match Nvjpeg::open(stream, chroma) {
                Err(error) if error.kind() == ErrorKind::Unavailable => None,
                opened => Some(opened?),
            },
        };
        let decoders = Decoders { headers, free: Mutex::default(), with_gpu: gpu.is_some() };
        start_pools()?;
        let view =
            |part| Ok(View { augment: Augment::new(stream, part)?, parameters: Upload::new(stream, 1)? });
        Ok(Self {
            views: parts.into_iter().map(view).collect::<Result<_>>()?,
            decode,
            gpu,
            gpu_queue: Arc::default(),
            refused: Arc::default(),
            decoders,
            pixels: Upload::new(stream, 1)?,
            offsets: Upload::new(stream, 1)?,
            decoded: (0, 0),
            counts: Counts::default(),
            times: DecodeTimes::default(),
            stream: stream.clone(),
        })
    }

    /// Shares the GPU with the other decoders of `queue`, because the GPU decodes one batch at a time. The
    /// decoders also share the list of files that the GPU has refused.
    pub(crate) fn share(&mut self, (queue, refused): (&Arc<GpuQueue>, &Arc<Refused>)) {
        (self.gpu_queue, self.refused) = (queue.clone(), refused.clone());
    }

    /// The transforms of the decoded pictures.
    pub fn part(&self) -> &DevicePart {
        self.views[0].augment.part()
    }

    /// The transforms of view number `view`.
    pub(crate) fn part_of(&self, view: usize) -> &DevicePart {
        self.views[view].augment.part()
    }

    /// The pictures decoded so far, by processor.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The time spent so far.
    pub fn times(&self) -> DecodeTimes {
        let Times { submit, wait } = self.gpu.as_ref().map(Nvjpeg::times).unwrap_or_default();
        DecodeTimes { submit, wait, ..self.times }
    }

    /// The bytes of pinned memory and of device memory of its buffers.
    pub(crate) fn bytes(&self) -> [u64; 2] {
        let parameters = self.views.iter().map(|view| view.parameters.bytes());
        let rest = parameters.chain([self.offsets.bytes()]);
        rest.fold(self.pixels.bytes(), |sum, part| [sum[0] + part[0], sum[1] + part[1]])
    }

    /// Describes the processors that decode, for logs.
    pub fn describe(&self) -> String {
        match (&self.gpu, self.decode) {
            (None, Decode::Auto) => "on the CPU (no nvJPEG)".to_owned(),
            (None, _) => "on the CPU".to_owned(),
            (Some(gpu), Decode::Auto) => format!("on the GPU and the CPU ({})", gpu.describe()),
            (Some(gpu), _) => format!("on the GPU ({})", gpu.describe()),
        }
    }

    /// Decodes the pictures of a batch and queues their transforms. The transforms write `[rows, shape...]`
    /// to `to`.
    ///
    /// Blocks until the pictures are decoded. The GPU reads files in pinned memory in place. The driver
    /// copies other files one by one, on the calling thread. [`PictureStage`](crate::PictureStage) decodes
    /// ahead of a training step.
    ///
    /// # Errors
    /// `Sample` for a picture that cannot be decoded, with its row; `Config` for mismatched lengths; a device
    /// failure.
    pub fn run<O: Written>(
        &mut self,
        encoded: &[&[u8]],
        parameters: &[u32],
        to: ViewMut<'_, O>,
    ) -> Result<()> {
        self.decode(encoded, &[parameters], &|| true)?;
        self.transform(0, to)
    }

    /// Decodes the pictures of a batch for [`transform`](Self::transform), and blocks until they are decoded.
    /// `parameters` has the parameters of each view. With [`Decode::Auto`], the CPU takes pictures from the
    /// GPU while `helps` returns true.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn decode(
        &mut self,
        encoded: &[&[u8]],
        parameters: &[&[u32]],
        helps: &(dyn Fn() -> bool + Sync),
    ) -> Result<()> {
        let rows = encoded.len();
        for (given, _) in parameters.iter().zip(&self.views) {
            check(given.len() == rows * WORDS, || {
                format!("{rows} pictures need {WORDS} parameters each, not {} in all", given.len())
            })?;
        }
        self.decoded = (0, 0);
        if rows == 0 {
            return Ok(());
        }
        // Waits first, because other work of the stream does not count as decoding, and the buffers are
        // reused below.
        let start = Instant::now();
        self.stream.synchronize()?;
        self.times.transforms += start.elapsed();
        let offsets = self.decode_pixels(encoded, helps)?;
        let start = Instant::now();
        self.offsets.write(&self.stream, &offsets)?;
        for (given, view) in parameters.iter().zip(&mut self.views) {
            view.parameters.write(&self.stream, given)?;
        }
        self.times.copies += start.elapsed();
        self.decoded = (rows, offsets[rows] as usize);
        Ok(())
    }

    /// Queues the transforms of view number `view` of the pictures that were decoded last.
    ///
    /// # Errors
    /// `Config` if `to` has another length; a device failure.
    pub(crate) fn transform<O: Written>(&mut self, view: usize, to: ViewMut<'_, O>) -> Result<()> {
        let (rows, bytes) = self.decoded;
        if rows == 0 {
            return Ok(());
        }
        let pixels = self.pixels.device.slice(0..bytes)?;
        let offsets = self.offsets.device.slice(0..rows + 1)?;
        let View { augment, parameters } = &self.views[view];
        let parameters = parameters.device.slice(0..rows * WORDS)?;
        augment.run(Pictures::ragged(pixels, offsets, parameters), to)
    }

    /// Decodes a batch into the buffer for pixels. Returns the offset of each picture, and the end of the
    /// last picture.
    fn decode_pixels(&mut self, encoded: &[&[u8]], helps: &(dyn Fn() -> bool + Sync)) -> Result<Vec<u32>> {
        let start = Instant::now();
        let (sizes, offsets) = self.sizes(encoded)?;
        self.pixels.reserve(&self.stream, offsets[encoded.len()] as usize)?;
        let Self {
            pixels: Upload { host, device },
            gpu,
            decoders,
            times,
            gpu_queue,
            decode,
            refused: known,
            ..
        } = self;
        let (mut for_gpu, mut others) = (Vec::new(), Vec::new());
        for picture in pictures(encoded, &sizes, host.bytes_mut()) {
            let Picture { bytes, size, range, .. } = &picture;
            let headers = &decoders.headers;
            let is_upright = || Format::detect(bytes) == Some(Format::Jpeg) && headers.is_upright(bytes);
            let gpu = gpu.as_mut().filter(|_| is_upright() && !known.contains(bytes));
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
        let helps: &(dyn Fn() -> bool + Sync) = if *decode == Decode::Gpu { &|| false } else { helps };
        let queue = PictureQueue::new(all, files.len(), (gpu_queue, helps));
        // Files that nvJPEG refuses while it decodes. The CPU decodes them, and reports the damaged ones.
        let refused_late = match gpu {
            Some(gpu) if !files.is_empty() => {
                let own = || {
                    let start = Instant::now();
                    let mut entry = Some(gpu_queue.wait(|| queue.len() == 0));
                    on_gpu = queue.take_first(files.len());
                    times.queue += start.elapsed();
                    find_refused(on_gpu, |range| {
                        let entry = entry.take().unwrap_or_else(|| gpu_queue.wait(|| false));
                        gpu.decode(&files[range], device.view_mut(), entry)
                    })
                };
                decoders.run(&queue, own)??
            }
            _ => decoders.run(&queue, Vec::new)?,
        };
        let mut on_cpu = ranges[on_gpu..].to_vec();
        if !refused_late.is_empty() {
            refused_late.iter().for_each(|&file| known.add(files[file].bytes()));
            let ranges: Vec<_> = refused_late.iter().map(|&file| ranges[file].clone()).collect();
            let again = pictures(encoded, &sizes, host.bytes_mut());
            let again = again.into_iter().filter(|picture| ranges.contains(&picture.range)).collect();
            decoders.run(&PictureQueue::new(again, 0, (gpu_queue, helps)), || ())?;
            refused += refused_late.len();
            on_cpu.extend(ranges);
        }
        let start = Instant::now();
        self.pixels.copy(&self.stream, &on_cpu)?;
        self.times.copies += start.elapsed();
        self.counts.on_gpu += (ranges.len() - on_cpu.len()) as u64;
        self.counts.on_cpu += on_cpu.len() as u64;
        self.counts.refused += refused as u64;
        Ok(offsets)
    }

    /// The size of each picture, from its header, and the offset of its pixels.
    fn sizes(&self, encoded: &[&[u8]]) -> Result<(Vec<Size>, Vec<u32>)> {
        let (mut sizes, mut offsets) = (Vec::new(), vec![0u32]);
        for (row, encoded) in encoded.iter().enumerate() {
            let size = self.decoders.headers.size(encoded).map_err(|error| in_row(row, &error))?;
            let next = u32::try_from(size.bytes()).ok().and_then(|bytes| offsets[row].checked_add(bytes));
            offsets.push(next.ok_or_else(|| {
                let why = "the decoded pictures of a batch take 4 GiB or more: lower the batch size";
                Error::new(ErrorKind::Config, why)
            })?);
            sizes.push(size);
        }
        Ok((sizes, offsets))
    }
}

/// Splits the memory for pixels into a part per picture.
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

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for PictureDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PictureDecoder({}, {:?})", self.describe(), self.counts)
    }
}
