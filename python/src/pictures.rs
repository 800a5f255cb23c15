//! Pictures that a stage behind the loader decodes and transforms: on the GPU, on the CPU, or on both.
//!
//! The workers of a host loader read the encoded files and draw the parameters of the transforms. In each
//! epoch a thread takes their batches through the stage; what it has finished waits in a channel. A saved
//! state counts the batches that came out of the channel.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use feedline::dataset::Field;
use feedline::{
    BadSampleReport, Cursor, DType, Dataset, Device, Epoch, Error, ErrorKind, HostBatch, Loader,
    LoaderBuilder, Progress, Result, Stream, TransferMode, TryNext,
};
use feedline_datasets::{ImageDataset, OpenOptions, Ragged, open_with};
use feedline_images::device::Written;
use feedline_images::{DevicePart, Transforms};
use feedline_pictures::{Decode, DecodeStage, Decoded, Encoded};

use crate::batch::closed;
use crate::running::{Answer, Start, TICK};

/// The field of the pictures.
pub(crate) const IMAGE: &str = "image";

/// The parameters of the transforms that a worker has drawn.
pub(crate) const PARAMETERS: &str = "image.parameters";

/// How the pictures of a data set are decoded behind the loader.
#[derive(Clone)]
pub(crate) struct Behind {
    /// The encoded files, with the parameters of their transforms.
    pub(crate) files: Arc<dyn Dataset>,
    part: DevicePart,
    pub(crate) decode: Decode,
    /// The bytes of each file, the largest first.
    sizes: Arc<[u32]>,
    /// How often a file may come in an epoch.
    copies: usize,
}

impl Behind {
    /// The pictures at `path`. Reads every file once to find the longest, and keeps the lengths in the user's
    /// cache.
    pub(crate) fn open(path: &str, options: &OpenOptions, list: Transforms, decode: Decode) -> Result<Self> {
        let part = list.device_part()?;
        let files = Ragged::measured(open_with(path, options)?)?;
        let is_file = |field: &&Field| field.dtype() == DType::U8 && field.as_ragged().is_some();
        let mut sizes = Vec::new();
        for field in files.spec().fields().iter().filter(is_file) {
            // Another field of bytes, such as a caption, is shorter.
            let lengths = files.lengths(field.name())?;
            if lengths.iter().max() > sizes.iter().max() {
                sizes = lengths.to_vec();
            }
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let max_bytes = sizes.first().map_or(1, |&max| max.max(1) as usize);
        let files = ImageDataset::encoded(open_with(path, options)?, list, max_bytes)?;
        Ok(Self { files: Arc::new(files), part, decode, sizes: sizes.into(), copies: 1 })
    }

    /// These pictures with other files: a choice in which one may come `copies` times.
    pub(crate) fn with(&self, files: Arc<dyn Dataset>, copies: usize) -> Self {
        Self { files, copies: self.copies.saturating_mul(copies), ..self.clone() }
    }

    /// The max bytes of the files of a batch in which no file comes more often than `copies`.
    fn max_per_batch(&self, rows: usize) -> usize {
        let each = self.sizes.iter().flat_map(|&bytes| std::iter::repeat_n(bytes as usize, self.copies));
        each.take(rows).sum::<usize>().max(1)
    }

    /// Workers of the stage: one has its batch on the GPU, the next prepares its own, and with both
    /// processors a third has the CPU.
    fn workers(&self) -> usize {
        if self.decode == Decode::Gpu { 2 } else { 3 }
    }
}

/// The position after the batches that were delivered, and the bad samples up to there.
pub(crate) type Position = Arc<Mutex<(Cursor, BadSampleReport)>>;

/// A loader of pictures: between epochs, or within one.
pub(crate) struct PictureLoader {
    state: PictureState,
    pub(crate) position: Position,
}

enum PictureState {
    Idle(Box<Parts>),
    Running(Run),
    /// The thread could not start or has panicked.
    Lost,
}

struct Parts {
    files: Box<Loader>,
    host: Stream,
    stage: Stage,
    /// The shape and the type of a finished picture.
    form: ([usize; 3], DType),
    /// A stream of the device on which batches are finished.
    device: Stream,
}

/// The stage, by the type of the finished pixels.
enum Stage {
    U8(DecodeStage<u8>),
    F32(DecodeStage<f32>),
}

/// The thread of an epoch.
struct Run {
    batches: Receiver<Result<PictureBatch>>,
    is_abandoned: Arc<AtomicBool>,
    thread: JoinHandle<Box<Parts>>,
}

impl PictureLoader {
    /// Starts the workers of `builder` and the stage on `device`. `is_bounded` says that no sample comes
    /// more than once in an epoch, unless the data set has it more than once.
    pub(crate) fn new(
        builder: LoaderBuilder,
        behind: &Behind,
        device: &Device,
        (rows, prefetch, is_bounded): (usize, Option<usize>, bool),
    ) -> Result<Self> {
        let workers = behind.workers();
        // Each worker of the stage has two batches; one more is in flight.
        let depth = prefetch.unwrap_or(0).max(2 * workers + 1);
        let builder = builder.depth(depth).transfer_mode(TransferMode::Staged);
        let builder = match is_bounded {
            true => builder.max_per_batch(IMAGE, behind.max_per_batch(rows)),
            false => builder,
        };
        // First, because it says what the machine lacks.
        let stage = match behind.part.dtype() {
            DType::U8 => Stage::U8(DecodeStage::new(device, behind.part.clone(), behind.decode, workers)?),
            _ => Stage::F32(DecodeStage::new(device, behind.part.clone(), behind.decode, workers)?),
        };
        let host = Device::new_host();
        let files = Box::new(builder.build(&host)?);
        let position = Arc::new(Mutex::new((files.cursor(), BadSampleReport::default())));
        let form = (behind.part.shape(), behind.part.dtype());
        let parts = Parts { files, host: host.stream()?, stage, form, device: device.stream()? };
        Ok(Self { state: PictureState::Idle(Box::new(parts)), position })
    }

    /// The loader of the files. Ends the epoch.
    pub(crate) fn files(&mut self) -> Result<&mut Loader> {
        let parts = self.end()?;
        self.state = PictureState::Idle(parts);
        match &mut self.state {
            PictureState::Idle(parts) => Ok(&mut parts.files),
            _ => Err(closed()),
        }
    }

    /// The processors that decode.
    pub(crate) fn describe(&self) -> String {
        match &self.state {
            PictureState::Idle(parts) => match &parts.stage {
                Stage::U8(stage) => stage.describe().to_owned(),
                Stage::F32(stage) => stage.describe().to_owned(),
            },
            _ => String::new(),
        }
    }

    /// Begins an epoch, or continues the one of a cursor; returns the number of its steps.
    pub(crate) fn begin(&mut self, from: Start) -> Result<Option<u64>> {
        let mut parts = self.end()?;
        let (finished, batches) = sync_channel(1);
        let (begun, steps) = sync_channel(1);
        let (position, is_abandoned) = (self.position.clone(), Arc::new(AtomicBool::new(false)));
        let abandoned = is_abandoned.clone();
        let work = move || {
            let Parts { files, host, stage, form, device } = &mut *parts;
            let progress = files.progress();
            let epoch = match from {
                Start::Epoch(epoch) => files.epoch(epoch),
                Start::Cursor(cursor) => files.resume(cursor),
            };
            let start = epoch.map(|epoch| {
                *locked(&position) = (epoch.cursor(), progress.bad_sample_report());
                (epoch.steps(), epoch)
            });
            match start {
                // The receivers are gone if the loader was dropped.
                Err(error) => drop(begun.send(Err(error))),
                Ok((steps, epoch)) => {
                    let _ = begun.send(Ok(steps));
                    let files = read_files(epoch, progress, host, &abandoned);
                    match stage {
                        Stage::U8(stage) => finish(stage, files, (*form, device), &finished, Finished::U8),
                        Stage::F32(stage) => finish(stage, files, (*form, device), &finished, Finished::F32),
                    }
                }
            }
            parts
        };
        let thread = std::thread::Builder::new().name("fl-pictures".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            let why = "cannot start a thread for the pictures: raise the limit of processes (ulimit -u)";
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        })?;
        self.state = PictureState::Running(Run { batches, is_abandoned, thread });
        steps.recv().unwrap_or_else(|_| Err(panicked()))
    }

    /// The next finished batch. Waits for it until `limit` has passed.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<Answer> {
        let PictureState::Running(run) = &self.state else { return Ok(Answer::Over) };
        match run.batches.recv_timeout(limit) {
            Ok(batch) => {
                let batch = batch?;
                *locked(&self.position) = batch.info.after.clone();
                Ok(Answer::Batch(batch.into()))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Answer::NotYet),
            Err(RecvTimeoutError::Disconnected) => {
                self.files()?;
                Ok(Answer::Over)
            }
        }
    }

    /// The loader and the stage, after the epoch's thread has ended.
    fn end(&mut self) -> Result<Box<Parts>> {
        match std::mem::replace(&mut self.state, PictureState::Lost) {
            PictureState::Idle(parts) => Ok(parts),
            PictureState::Lost => Err(panicked()),
            PictureState::Running(Run { batches, is_abandoned, thread }) => {
                is_abandoned.store(true, Ordering::Relaxed);
                drop(batches);
                thread.join().map_err(|_| panicked())
            }
        }
    }
}

impl Drop for PictureLoader {
    fn drop(&mut self) {
        // A thread that panicked has dropped its parts.
        drop(self.end());
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Panic, "the thread that finishes pictures has ended: make another loader")
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A batch of encoded files.
struct Files {
    batch: HostBatch,
    /// The other fields, one behind another.
    others: Vec<u8>,
    info: Info,
}

/// What is known of a batch.
#[derive(Clone)]
pub(crate) struct Info {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) ids: Vec<u64>,
    pub(crate) valid: usize,
    pub(crate) substituted: Vec<(usize, u64)>,
    /// The position after this batch.
    after: (Cursor, BadSampleReport),
    fields: Vec<Other>,
}

/// A field that is not the picture, and its place among the others of the batch.
#[derive(Clone)]
struct Other {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    at: usize,
}

/// The batches of an epoch of files, until it is abandoned.
fn read_files<'a>(
    mut epoch: Epoch<'a>,
    progress: Progress,
    host: &'a Stream,
    is_abandoned: &'a AtomicBool,
) -> impl Iterator<Item = Result<Files>> + 'a {
    std::iter::from_fn(move || {
        while !is_abandoned.load(Ordering::Relaxed) {
            match epoch.next_timeout(TICK) {
                Err(error) => return Some(Err(error)),
                Ok(TryNext::Over) => return None,
                Ok(TryNext::NotYet) => {}
                Ok(TryNext::Batch(batch)) => {
                    let after = (epoch.cursor(), progress.bad_sample_report());
                    let batch = batch.wait_on(host).and_then(feedline::Ready::into_host);
                    return Some(batch.and_then(|batch| Files::new(batch, after)));
                }
            }
        }
        None
    })
}

impl Files {
    fn new(batch: HostBatch, after: (Cursor, BadSampleReport)) -> Result<Self> {
        let (mut others, mut fields) = (Vec::new(), Vec::new());
        for field in batch.spec().fields() {
            if field.name() == IMAGE || field.name() == PARAMETERS {
                continue;
            }
            // Aligned for every framework.
            others.resize(others.len().next_multiple_of(64), 0);
            let (name, dtype, shape) = (field.name().to_owned(), field.dtype(), field.shape().to_vec());
            fields.push(Other { name, dtype, shape, at: others.len() });
            others.extend_from_slice(bytes(&batch, field.name(), dtype)?);
        }
        let substituted = batch.substituted().iter().map(|bad| (bad.row, bad.substitute)).collect();
        let info = Info {
            epoch: batch.epoch(),
            step: batch.step(),
            ids: batch.ids().to_vec(),
            valid: batch.valid_rows(),
            substituted,
            after,
            fields,
        };
        Ok(Self { batch, others, info })
    }

    /// What the stage needs of it, and what is kept.
    fn encoded(&self) -> Result<(Encoded<'_>, Info)> {
        let (bytes, offsets) = self.batch.ragged(IMAGE)?;
        let parameters = self.batch.field(PARAMETERS)?;
        Ok((Encoded { bytes, offsets, parameters, labels: &self.others }, self.info.clone()))
    }
}

fn bytes<'a>(batch: &'a HostBatch, name: &str, dtype: DType) -> Result<&'a [u8]> {
    Ok(match dtype {
        DType::U8 | DType::Bool => batch.field::<u8>(name)?,
        DType::I8 => bytemuck::cast_slice(batch.field::<i8>(name)?),
        DType::U16 => bytemuck::cast_slice(batch.field::<u16>(name)?),
        DType::I16 => bytemuck::cast_slice(batch.field::<i16>(name)?),
        DType::U32 => bytemuck::cast_slice(batch.field::<u32>(name)?),
        DType::I32 => bytemuck::cast_slice(batch.field::<i32>(name)?),
        DType::I64 => bytemuck::cast_slice(batch.field::<i64>(name)?),
        DType::F16 => bytemuck::cast_slice(batch.field::<half::f16>(name)?),
        DType::BF16 => bytemuck::cast_slice(batch.field::<half::bf16>(name)?),
        DType::F32 => bytemuck::cast_slice(batch.field::<f32>(name)?),
        DType::F64 => bytemuck::cast_slice(batch.field::<f64>(name)?),
    })
}

/// Takes `files` through `stage` until an error, or until no one receives.
fn finish<O: Written>(
    stage: &mut DecodeStage<O>,
    files: impl Iterator<Item = Result<Files>>,
    ((shape, dtype), device): (([usize; 3], DType), &Stream),
    to: &SyncSender<Result<PictureBatch>>,
    of: fn(Decoded<O, u8, Info>) -> Finished,
) {
    // The steps of the batches in the stage, which come out in this order.
    let steps = RefCell::new(VecDeque::new());
    let files =
        files.inspect(|files| steps.borrow_mut().push_back(files.as_ref().ok().map(|files| files.info.step)));
    for batch in stage.run(files, Files::encoded) {
        let is_last = batch.is_err();
        let step = steps.borrow_mut().pop_front().flatten();
        let batch = batch.map_err(|error| match step {
            Some(step) => error.at_stage(feedline::Stage::Decode).at_batch(step),
            None => error,
        });
        let batch = batch.map(|batch| {
            let info = batch.rest.clone();
            PictureBatch { info, shape, dtype, finished: Arc::new(of(batch)), device: device.clone() }
        });
        if to.send(batch).is_err() || is_last {
            return;
        }
    }
}

/// A batch of finished pictures. Its memory is free for another batch once this and all tensors of it are
/// dropped.
pub(crate) struct PictureBatch {
    pub(crate) info: Info,
    shape: [usize; 3],
    dtype: DType,
    finished: Arc<Finished>,
    /// A stream of the device, for reads of the host.
    pub(crate) device: Stream,
}

/// The memory of a batch.
pub(crate) enum Finished {
    U8(Decoded<u8, u8, Info>),
    F32(Decoded<f32, u8, Info>),
}

/// A field's memory, which `owner` keeps.
pub(crate) struct Place {
    pub(crate) owner: Arc<Finished>,
    pub(crate) dtype: DType,
    pub(crate) address: u64,
    pub(crate) shape: Vec<usize>,
}

impl PictureBatch {
    pub(crate) fn has(&self, name: &str) -> bool {
        name == IMAGE || self.info.fields.iter().any(|field| field.name == name)
    }

    /// Whether a tensor of this batch is alive.
    pub(crate) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.finished) > 1
    }

    /// The field `name`, once `stream` waits for it; `None` if there is none.
    pub(crate) fn place(&self, name: &str, stream: &Stream) -> Result<Option<Place>> {
        let owner = self.finished.clone();
        let rows = self.info.ids.len();
        let shape = |of: &[usize]| [&[rows], of].concat();
        if name == IMAGE {
            let address = match &*self.finished {
                Finished::U8(batch) => batch.wait_on(stream)?.address().0,
                Finished::F32(batch) => batch.wait_on(stream)?.address().0,
            };
            return Ok(Some(Place { owner, dtype: self.dtype, address, shape: shape(&self.shape) }));
        }
        let Some(field) = self.info.fields.iter().find(|field| field.name == name) else { return Ok(None) };
        let others = match &*self.finished {
            Finished::U8(batch) => batch.labels(stream)?,
            Finished::F32(batch) => batch.labels(stream)?,
        };
        let address = others.address().0 + field.at as u64;
        Ok(Some(Place { owner, dtype: field.dtype, address, shape: shape(&field.shape) }))
    }
}
