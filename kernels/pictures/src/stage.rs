//! Workers that decode batches of encoded pictures ahead of the training step, each on a stream of its own.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_core::{Element, Error, ErrorKind, Result, catch_panic};
use feedline_device::{Device, Stream, View};
use feedline_images::DevicePart;
use feedline_images::device::Written;

use crate::buffer_pool::{BufferPool, PooledBuffer};
use crate::decoder::{GpuQueue, locked};
use crate::upload::HostMemory;
use crate::{Counts, Decode, DecodeTimes, PictureDecoder, check};

/// Max batches per worker: one that it decodes, and the next.
const BATCHES: usize = 2;

/// The encoded pictures of a batch, as `ImageDataset::encoded` delivers them, and their labels of type `L`.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a, L = u8> {
    /// The concatenated files: the values of the ragged field `image`.
    pub bytes: &'a [u8],
    /// The first byte of each file, and the end of the last one: the offsets of that field.
    pub offsets: &'a [u32],
    /// The field `image.parameters`.
    pub parameters: &'a [u32],
    /// The field `label`, or other numbers that the step needs on the device; may be empty.
    pub labels: &'a [L],
}

impl<'a, L> Encoded<'a, L> {
    /// The files, by row.
    fn files(&self) -> Result<Vec<&'a [u8]>> {
        let file = |pair: &[u32]| self.bytes.get(pair[0] as usize..pair[1] as usize);
        self.offsets.windows(2).map(file).collect::<Option<_>>().ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the offsets of a batch exceed its files: give offsets and values of one ragged field",
            )
        })
    }
}

/// Decodes batches ahead of a training step, on the CPU, on the GPU, or on both.
///
/// The input is batches of a host loader whose field `image` is ragged, or other containers of encoded
/// pictures. Each worker is a thread with a [`PictureDecoder`] and a stream. Batches come out in input order,
/// with their labels of type `L`. The training step waits for a batch on the device only
/// ([`Decoded::wait_on`]). The example `images` trains with a stage.
///
/// Two workers keep the GPU busy: one prepares its batch while the GPU decodes that of the other. With
/// [`Decode::Auto`] the CPU decodes batches that wait for the GPU, so a third worker keeps both busy. A
/// worker holds two input batches: give the loader a `depth` of twice the workers plus one. A worker also
/// keeps up to three finished batches in device memory.
///
/// ```
/// use feedline_core::Random;
/// use feedline_device::Device;
/// use feedline_images::{Decoder, Transforms};
/// use feedline_pictures::{Decode, DecodeStage, Encoded};
///
/// // A batch of an `ImageDataset::encoded`; here one bitmap with one blue pixel.
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
/// let device = Device::new_host();
/// let compute = device.stream()?;
/// let transforms = Transforms::new().on_device().resize(2);
/// let mut stage = DecodeStage::<u8, i64>::new(&device, transforms.device_part()?, Decode::Auto, 2)?;
/// let finished = stage.run(batches, |batch: &Batch| {
///     let Batch { bytes, offsets, parameters, labels } = batch;
///     Ok((Encoded { bytes, offsets, parameters, labels }, ()))
/// });
/// for batch in finished {
///     let batch = batch?;
///     // Views for kernels on `compute`: [rows, shape...] and [rows].
///     let (pictures, labels) = (batch.wait_on(&compute)?, batch.labels(&compute)?);
///     assert_eq!((pictures.len(), labels.to_vec()?), (12, vec![7]));
/// }
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct DecodeStage<O: Written, L: Element = u8> {
    workers: Vec<Worker<O, L>>,
    /// The worker that gets the next batch.
    next: usize,
}

/// Work on one batch. Returns false if the worker must end.
type Job<O, L> = Box<dyn FnOnce(&mut WorkerState<O, L>) -> bool + Send>;

/// The stage's handle of a worker.
struct Worker<O: Written, L: Element> {
    /// `None` once the worker is asked to end.
    queue: Option<SyncSender<Job<O, L>>>,
    thread: Option<JoinHandle<()>>,
    report: Arc<Mutex<WorkerReport>>,
    description: String,
}

/// The counts and times of a worker, after its last batch.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerReport {
    counts: Counts,
    times: DecodeTimes,
}

/// The state of a worker's thread.
struct WorkerState<O: Written, L: Element> {
    decoder: PictureDecoder,
    stream: Stream,
    pictures: BufferPool<O>,
    labels: BufferPool<L>,
    /// Host memory to copy labels from.
    label_memory: HostMemory,
    report: Arc<Mutex<WorkerReport>>,
    /// Time spent waiting for a batch.
    idle: Duration,
}

impl<O: Written, L: Element> DecodeStage<O, L> {
    /// Starts `workers` threads that decode on `device`. `part` is from a list without transforms on the
    /// host; `O` is its element type.
    ///
    /// # Errors
    /// As [`PictureDecoder::new`]; `Config` for 0 workers; `Unavailable` if a thread cannot start.
    pub fn new(device: &Device, part: DevicePart, decode: Decode, workers: usize) -> Result<Self> {
        check(workers > 0, || "the decode stage has 0 workers: give 1 or more".into())?;
        check(part.dtype() == O::DTYPE, || {
            format!("finished pictures are {}, not {}: change the stage or the list", part.dtype(), O::DTYPE)
        })?;
        let gpu_queue = Arc::default();
        let workers =
            (0..workers).map(|number| Worker::start(device, part.clone(), decode, number, &gpu_queue));
        Ok(Self { workers: workers.collect::<Result<_>>()?, next: 0 })
    }

    /// Decodes and transforms `batches`; yields them in input order. `read` returns the pictures and labels
    /// of a batch, and other values to keep; the batch itself is dropped once it is decoded.
    ///
    /// `next` takes input until every worker has two batches, then blocks until the first one is decoded.
    /// Dropping the iterator discards the batches in flight.
    ///
    /// An item is an error if its batch is one, if one of its pictures cannot be decoded (`Sample`), or if
    /// the device fails. The batches after it follow.
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
        // The reorder buffer: the results of the batches in flight, in input order.
        let mut in_flight = VecDeque::new();
        std::iter::from_fn(move || {
            while in_flight.len() < BATCHES * self.workers.len()
                && let Some(batch) = batches.next()
            {
                let (sender, receiver) = sync_channel(1);
                match batch {
                    Ok(batch) => self.decode(batch, read.clone(), sender),
                    // The channel has room for one.
                    Err(error) => drop(sender.try_send(Err(error))),
                }
                in_flight.push_back(receiver);
            }
            let ended = |_| Err(Error::new(ErrorKind::Panic, "a worker of the decode stage has ended"));
            Some(in_flight.pop_front()?.recv().unwrap_or_else(ended))
        })
    }

    /// Queues a batch for the next worker.
    fn decode<B, R, F>(&mut self, batch: B, read: Arc<F>, result: SyncSender<Result<Decoded<O, L, R>>>)
    where
        B: Send + 'static,
        R: Send + 'static,
        F: for<'b> Fn(&'b B) -> Result<(Encoded<'b, L>, R)> + Send + Sync + 'static,
    {
        let worker = &self.workers[self.next];
        self.next = (self.next + 1) % self.workers.len();
        let job: Job<O, L> = Box::new(move |state| {
            let decoded = catch_panic("the decoding of a batch panicked", || {
                let (encoded, rest) = read(&batch)?;
                let (pictures, labels) = state.decode(encoded)?;
                Ok(Decoded { pictures, labels, rest })
            });
            drop(batch);
            // After a panic the decoder is not used again.
            let is_usable = decoded.is_ok();
            // The receiver is gone if the iterator was dropped.
            let _ = result.send(decoded.unwrap_or_else(Err));
            is_usable
        });
        if let Some(queue) = &worker.queue {
            // If the worker has ended, the job is dropped, and with it the sender of its result.
            let _ = queue.send(job);
        }
    }

    /// The pictures decoded so far by all workers, by processor.
    pub fn counts(&self) -> Counts {
        self.reports().fold(Counts::default(), |sum, report| sum.plus(report.counts))
    }

    /// The time spent so far by all workers.
    pub fn times(&self) -> DecodeTimes {
        self.reports().fold(DecodeTimes::default(), |sum, report| sum.plus(report.times))
    }

    /// Describes the processors that decode, for logs.
    pub fn describe(&self) -> &str {
        &self.workers[0].description
    }

    fn reports(&self) -> impl Iterator<Item = WorkerReport> {
        self.workers.iter().map(|worker| *locked(&worker.report))
    }
}

impl<O: Written, L: Element> Worker<O, L> {
    fn start(
        device: &Device,
        part: DevicePart,
        decode: Decode,
        number: usize,
        gpu_queue: &Arc<GpuQueue>,
    ) -> Result<Self> {
        let stream = device.stream()?;
        let mut decoder = PictureDecoder::new(&stream, part, decode)?;
        decoder.set_gpu_queue(gpu_queue);
        let (report, description) = (Arc::default(), decoder.describe());
        let mut state = WorkerState {
            decoder,
            label_memory: HostMemory::new(&stream, 1)?,
            stream,
            pictures: BufferPool::new(),
            labels: BufferPool::new(),
            report: Arc::clone(&report),
            idle: Duration::ZERO,
        };
        // Room for all batches of a worker, so that `send` does not block.
        let (queue, jobs) = sync_channel::<Job<O, L>>(BATCHES);
        let work = move || {
            let mut since = Instant::now();
            for job in jobs {
                state.idle += since.elapsed();
                if !job(&mut state) {
                    break;
                }
                since = Instant::now();
            }
        };
        let thread = std::thread::Builder::new().name(format!("fl-pictures-{number}")).spawn(work);
        let thread = thread.map_err(|error| {
            let why = "cannot start a worker of the decode stage: raise the limit of processes (ulimit -u)";
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        })?;
        Ok(Self { queue: Some(queue), thread: Some(thread), report, description })
    }
}

impl<O: Written, L: Element> WorkerState<O, L> {
    fn decode(&mut self, encoded: Encoded<'_, L>) -> Result<(PooledBuffer<O>, PooledBuffer<L>)> {
        let files = encoded.files()?;
        let mut pictures = self.pictures.get(&self.stream, files.len() * self.decoder.part().elements())?;
        let mut labels = self.labels.get(&self.stream, encoded.labels.len())?;
        let (to, memory, stream) = (labels.view_mut()?, &mut self.label_memory, &self.stream);
        let copy = || match encoded.labels {
            [] => Ok(()),
            values => memory.write(stream, values, to),
        };
        let decoded = self.decoder.run_with(&files, encoded.parameters, pictures.view_mut()?, copy);
        *locked(&self.report) = WorkerReport {
            counts: self.decoder.counts(),
            times: DecodeTimes { idle: self.idle, ..self.decoder.times() },
        };
        decoded?;
        pictures.memory()?.publish()?;
        labels.memory()?.publish()?;
        Ok((pictures, labels))
    }
}

/// A batch of finished pictures in device memory. Dropping it returns the memory to its worker, which reuses
/// it after the work queued so far on the streams that waited for the batch.
pub struct Decoded<O: Written, L: Element, R> {
    pictures: PooledBuffer<O>,
    labels: PooledBuffer<L>,
    /// The values of `read` to keep.
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

    /// The labels of [`Encoded`]; makes `stream` wait for them as for the pictures.
    ///
    /// # Errors
    /// As [`wait_on`](Self::wait_on).
    pub fn labels<'a>(&'a self, stream: &'a Stream) -> Result<View<'a, L>> {
        self.labels.on(stream)
    }
}

impl<O: Written, L: Element> Drop for DecodeStage<O, L> {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| drop(worker.queue.take()));
        for worker in &mut self.workers {
            // A panic of a job was caught and returned as its result.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }
}

impl<O: Written, L: Element> std::fmt::Debug for DecodeStage<O, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecodeStage({} workers, {:?})", self.workers.len(), self.counts())
    }
}

impl<O: Written, L: Element, R: std::fmt::Debug> std::fmt::Debug for Decoded<O, L, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoded({} elements, {:?})", self.pictures.elements, self.rest)
    }
}
