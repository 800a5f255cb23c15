//! Batches of encoded pictures, decoded ahead of the training step by threads with streams of their own.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_core::{Element, Error, ErrorKind, Result, catch_panic};
use feedline_device::{Device, Stream, View};
use feedline_images::DevicePart;
use feedline_images::device::Written;

use super::lent::{Lender, Lent};
use super::line::Line;
use super::staged::Host;
use super::{Counts, Decode, DecodeTimes, PictureDecoder, check, locked};

/// Batches that a thread has at a time: one that it decodes, and the next.
const BATCHES: usize = 2;

/// The encoded pictures of a batch, as `ImageDataset::encoded` delivers them, and their labels of type `L`.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a, L = u8> {
    /// The files, one after the other: the values of the ragged field `image`.
    pub bytes: &'a [u8],
    /// Where each file begins, and where the last one ends: the offsets of that field.
    pub offsets: &'a [u32],
    /// The field `image.parameters`.
    pub parameters: &'a [u32],
    /// The field `label`, or other numbers that the step needs on the device too; may be empty.
    pub labels: &'a [L],
}

impl<'a, L> Encoded<'a, L> {
    /// The files, by row.
    fn files(&self) -> Result<Vec<&'a [u8]>> {
        let file = |pair: &[u32]| self.bytes.get(pair[0] as usize..pair[1] as usize);
        self.offsets.windows(2).map(file).collect::<Option<_>>().ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the offsets of a batch do not fit its files: give one ragged field",
            )
        })
    }
}

/// Decodes batches ahead of a training step: on the CPU, on the GPU, or on both.
///
/// Each thread has a [`PictureDecoder`] and a stream; batches come out in the order in which they went in. A
/// step waits for its batch on the device only ([`Decoded::wait_on`]). The batches that go in are those of a
/// host loader, whose field `image` is ragged, or anything else that holds encoded pictures. The labels, of
/// type `L`, cross with them. The example `images` is a training loop with a stage.
///
/// Two threads keep the GPU busy: while it decodes the pictures of one, the other prepares its own. With
/// [`Decode::Auto`] the CPU decodes what waits for the GPU, so that a third thread keeps both busy. Each
/// takes two batches at a time, so give the loader a `depth` of twice the threads and one more. Each keeps up
/// to three finished batches in device memory.
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::Device;
/// use feedline_images::{Decoder, Transforms};
/// use feedline_kernels::ops::{Decode, DecodeStage, Encoded};
///
/// // What a loader of `ImageDataset::encoded` delivers; here a batch of one bitmap, of one blue pixel.
/// struct Batch { bytes: Vec<u8>, offsets: Vec<u32>, parameters: Vec<u32>, labels: Vec<i64> }
/// # let part = Transforms::new().on_device().resize(2).device_part()?;
/// # let mut bmp = b"BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
/// # bmp.extend([0; 24]);
/// # bmp.extend([255, 0, 0, 0]);
/// # let mut drawn = [0; 144];
/// # part.draw(Decoder::new().size(&bmp)?, &mut Random::from_key(1), &mut drawn)?;
/// # let parameters = drawn.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
/// # let offsets = vec![0, bmp.len() as u32];
/// # let batches = [Ok(Batch { bytes: bmp, offsets, parameters, labels: vec![7] })];
///
/// let device = Device::host();
/// let compute = device.stream()?;
/// let transforms = Transforms::new().on_device().resize(2);
/// let mut stage = DecodeStage::<u8, i64>::new(&device, transforms.device_part()?, Decode::Auto, 2)?;
/// let finished = stage.run(batches, |batch: &Batch| {
///     let Batch { bytes, offsets, parameters, labels } = batch;
///     Ok((Encoded { bytes, offsets, parameters, labels }, ()))
/// });
/// for batch in finished {
///     let batch = batch?;
///     // Both are for kernels on `compute`: [rows, shape...] and [rows].
///     let (pictures, labels) = (batch.wait_on(&compute)?, batch.labels(&compute)?);
///     assert_eq!((pictures.len(), labels.to_vec()?), (12, vec![7]));
/// }
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct DecodeStage<O: Written, L: Element = u8> {
    threads: Vec<Thread<O, L>>,
    /// The thread that gets the next batch.
    next: usize,
}

/// What a thread does next; returns whether it goes on.
type Job<O, L> = Box<dyn FnOnce(&mut Worker<O, L>) -> bool + Send>;

struct Thread<O: Written, L: Element> {
    /// `None` once the thread shall end.
    jobs: Option<SyncSender<Job<O, L>>>,
    running: Option<JoinHandle<()>>,
    told: Arc<Mutex<Told>>,
    description: String,
}

/// What a thread last said of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    counts: Counts,
    times: DecodeTimes,
}

struct Worker<O: Written, L: Element> {
    decoder: PictureDecoder,
    stream: Stream,
    pictures: Lender<O>,
    labels: Lender<L>,
    /// What labels are copied from.
    staging: Host,
    told: Arc<Mutex<Told>>,
    /// Without a batch.
    idle: Duration,
}

impl<O: Written, L: Element> DecodeStage<O, L> {
    /// Starts `threads` threads that decode on `device`. `part` is that of a list without transforms on the
    /// host; `O` is its element type.
    ///
    /// # Errors
    /// As [`PictureDecoder::new`]; `Config` without threads; `Unavailable` if a thread cannot start.
    pub fn new(device: &Device, part: DevicePart, decode: Decode, threads: usize) -> Result<Self> {
        check(threads > 0, || "nothing decodes without threads: give 1 or more".into())?;
        check(part.dtype() == O::DTYPE, || {
            format!("finished pictures are {}, not {}: change the stage or the list", part.dtype(), O::DTYPE)
        })?;
        let line = Arc::default();
        let threads = (0..threads).map(|number| Thread::start(device, part.clone(), decode, number, &line));
        Ok(Self { threads: threads.collect::<Result<_>>()?, next: 0 })
    }

    /// The batches, decoded and transformed, in order. `read` finds the pictures and labels in a batch, and
    /// returns what else of it the host needs; the batch itself is dropped as soon as it is decoded.
    ///
    /// The iterator takes batches ahead, so that every thread has two; it blocks for the next batch, and
    /// until the first one is decoded. What is not taken from it is decoded for nothing.
    ///
    /// Each item is an error where a batch is one, or has a picture that cannot be decoded (`Sample`), or the
    /// device fails. The batches behind it follow.
    pub fn run<B, R, F>(
        &mut self,
        batches: impl IntoIterator<Item = Result<B>>,
        read: F,
    ) -> impl Iterator<Item = Result<Decoded<O, L, R>>>
    where
        B: Send + 'static,
        R: Send + 'static,
        F: for<'b> Fn(&'b B) -> Result<(Encoded<'b, L>, R)> + Send + Sync + 'static,
    {
        let (mut batches, read) = (batches.into_iter().fuse(), Arc::new(read));
        let mut ahead = VecDeque::new();
        std::iter::from_fn(move || {
            while ahead.len() < BATCHES * self.threads.len()
                && let Some(batch) = batches.next()
            {
                let (sender, receiver) = sync_channel(1);
                match batch {
                    Ok(batch) => self.decode(batch, read.clone(), sender),
                    // There is room for one.
                    Err(error) => drop(sender.try_send(Err(error))),
                }
                ahead.push_back(receiver);
            }
            let ended = |_| Err(Error::new(ErrorKind::Panic, "a thread that decodes pictures has ended"));
            Some(ahead.pop_front()?.recv().unwrap_or_else(ended))
        })
    }

    /// Gives a batch to the next thread.
    fn decode<B, R, F>(&mut self, batch: B, read: Arc<F>, result: SyncSender<Result<Decoded<O, L, R>>>)
    where
        B: Send + 'static,
        R: Send + 'static,
        F: for<'b> Fn(&'b B) -> Result<(Encoded<'b, L>, R)> + Send + Sync + 'static,
    {
        let thread = &self.threads[self.next];
        self.next = (self.next + 1) % self.threads.len();
        let job: Job<O, L> = Box::new(move |worker| {
            let decoded = catch_panic("the decoding of a batch panicked", || {
                let (encoded, rest) = read(&batch)?;
                let (pictures, labels) = worker.decode(encoded)?;
                Ok(Decoded { pictures, labels, rest })
            });
            drop(batch);
            // After a panic the decoder is not used again.
            let goes_on = decoded.is_ok();
            // Nobody waits for it once the iterator is dropped.
            let _ = result.send(decoded.unwrap_or_else(Err));
            goes_on
        });
        if let Some(jobs) = &thread.jobs {
            // If the thread has ended, the job is dropped, and with it the sender of its result.
            let _ = jobs.send(job);
        }
    }

    /// What was decoded where, by all threads.
    pub fn counts(&self) -> Counts {
        self.told().fold(Counts::default(), |sum, told| sum.plus(told.counts))
    }

    /// Where the time of all threads went.
    pub fn times(&self) -> DecodeTimes {
        self.told().fold(DecodeTimes::default(), |sum, told| sum.plus(told.times))
    }

    /// Where pictures are decoded, for logs.
    pub fn describe(&self) -> &str {
        &self.threads[0].description
    }

    fn told(&self) -> impl Iterator<Item = Told> {
        self.threads.iter().map(|thread| *locked(&thread.told))
    }
}

impl<O: Written, L: Element> Thread<O, L> {
    fn start(
        device: &Device,
        part: DevicePart,
        decode: Decode,
        number: usize,
        line: &Arc<Line>,
    ) -> Result<Self> {
        let stream = device.stream()?;
        let mut decoder = PictureDecoder::new(&stream, part, decode)?;
        decoder.wait_in(line);
        let (told, description) = (Arc::default(), decoder.describe());
        let mut worker = Worker {
            decoder,
            staging: Host::new(&stream, 1)?,
            stream,
            pictures: Lender::new(),
            labels: Lender::new(),
            told: Arc::clone(&told),
            idle: Duration::ZERO,
        };
        // The jobs that are not begun: all that a thread can have.
        let (jobs, queue) = sync_channel::<Job<O, L>>(BATCHES);
        let work = move || {
            let mut since = Instant::now();
            for job in queue {
                worker.idle += since.elapsed();
                if !job(&mut worker) {
                    break;
                }
                since = Instant::now();
            }
        };
        let running = std::thread::Builder::new().name(format!("fl-pictures-{number}")).spawn(work);
        let running = running.map_err(|error| {
            let why = "cannot start a thread that decodes: raise the limit of processes (ulimit -u)";
            Error::new(ErrorKind::Unavailable, why).caused_by(error)
        })?;
        Ok(Self { jobs: Some(jobs), running: Some(running), told, description })
    }
}

impl<O: Written, L: Element> Worker<O, L> {
    fn decode(&mut self, encoded: Encoded<'_, L>) -> Result<(Lent<O>, Lent<L>)> {
        let files = encoded.files()?;
        let mut pictures = self.pictures.lend(&self.stream, files.len() * self.decoder.part().elements())?;
        let mut labels = self.labels.lend(&self.stream, encoded.labels.len())?;
        let (to, staging, stream) = (labels.view_mut()?, &mut self.staging, &self.stream);
        let copy = || match encoded.labels {
            [] => Ok(()),
            values => staging.write(stream, values, to),
        };
        let decoded = self.decoder.run_with(&files, encoded.parameters, pictures.view_mut()?, copy);
        *locked(&self.told) = Told {
            counts: self.decoder.counts(),
            times: DecodeTimes { idle: self.idle, ..self.decoder.times() },
        };
        decoded?;
        pictures.memory()?.publish()?;
        labels.memory()?.publish()?;
        Ok((pictures, labels))
    }
}

/// A batch of finished pictures in device memory. Dropping it lets the memory be used again, after all work
/// that the streams which waited for it have so far.
pub struct Decoded<O: Written, L: Element, R> {
    pictures: Lent<O>,
    labels: Lent<L>,
    /// What else of the batch was kept.
    pub rest: R,
}

impl<O: Written, L: Element, R> Decoded<O, L, R> {
    /// Makes `stream` wait, on the device, until the pictures are finished: `[rows, shape...]`. The host does
    /// not block.
    ///
    /// # Errors
    /// `Config` for a stream of another device, or one that is being recorded; a device failure.
    pub fn wait_on<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, O>> {
        self.pictures.on(stream)
    }

    /// The labels, as they were in [`Encoded`]; `stream` waits for them like for the pictures.
    ///
    /// # Errors
    /// As [`wait_on`](Self::wait_on).
    pub fn labels<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, L>> {
        self.labels.on(stream)
    }
}

impl<O: Written, L: Element> Drop for DecodeStage<O, L> {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(|thread| drop(thread.jobs.take()));
        for thread in &mut self.threads {
            // A panic of a job was caught and returned as its result.
            let _ = thread.running.take().map(JoinHandle::join);
        }
    }
}

impl<O: Written, L: Element> std::fmt::Debug for DecodeStage<O, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecodeStage({} threads, {:?})", self.threads.len(), self.counts())
    }
}

impl<O: Written, L: Element, R: std::fmt::Debug> std::fmt::Debug for Decoded<O, L, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoded({} elements, {:?})", self.pictures.elements, self.rest)
    }
}
