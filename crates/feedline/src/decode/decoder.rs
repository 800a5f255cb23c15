//! One loader's decoding: one worker begins a batch, and others join if it is long enough to be split.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crossbeam_channel::Sender;
use feedline_core::{
    BadSamples, BatchInfo, BatchSampler, Context, CopyRows, Error, ErrorKind, Layout, Result, Rows, Source,
    SourcePosition, Stage, Substituted, catch_panic, timeline::now,
};
use feedline_device::Pinned;
use feedline_slots::{FillLease, ReadyLease, SharedFill, copy_rows, stream_rows};

use super::input::{Input, Note};
use super::map_batch::MapBatch;
use super::rows::{Reader, panic_text};
use super::source::{Read, SourceReader};
use super::tuning::{STREAMING_WORKERS, piece_rows};
use super::worker::Worker;
use crate::trace::{BatchId, LoaderTrace};

/// What the workers need to know about a loader.
pub(crate) struct Decoder {
    input: Option<Input>,
    batch_sampler: Arc<BatchSampler>,
    layout: Arc<Layout>,
    bad_samples: BadSamples,
    map_batch: Option<MapBatch>,
    /// Number of workers in the pool.
    workers: usize,
    /// The only sender. Dropping it drops the messages that were not received, and the slots in them.
    inbox: Sender<Message>,
    /// The current request; batches of other requests are not decoded.
    request: AtomicU64,
    /// The number of the first batch that failed; no later batch is delivered.
    first_failed: AtomicU64,
    /// Nanoseconds per row in the last batch; 0 before the first.
    row_ns: AtomicU64,
    /// The batches that are split, by host slot.
    split: Box<[RwLock<Option<Split>>]>,
    trace: Option<LoaderTrace>,
    /// Called with the outcome of dropping the data, once no worker needs it.
    on_end: Mutex<Option<OnEnd>>,
}

type OnEnd = Box<dyn FnOnce(Result<()>) + Send>;

/// A unit of work for a worker: a batch, and the loader it belongs to.
pub(crate) struct Job {
    pub(crate) decoder: Arc<Decoder>,
    pub(crate) batch: Undecoded,
}

/// A batch to decode.
pub(crate) struct Undecoded {
    /// The batch's number, counted over all batches of the loader.
    pub(crate) number: u64,
    /// The slot to fill; its note describes the batch.
    pub(crate) lease: FillLease<Pinned, Note>,
    /// For a source, the reader of its records.
    pub(crate) reader: Option<Box<SourceReader>>,
}

/// A batch that other workers may join.
#[derive(Clone)]
pub(crate) struct Share {
    decoder: Arc<Decoder>,
    /// The host slot that the batch fills.
    slot: usize,
}

/// A message to the transfer thread.
pub(crate) enum Message {
    /// The outcome of batch `number`.
    Decoded { number: u64, outcome: Result<Outcome> },
    /// The reader of a source is free for another worker; it has read for `request`.
    Reader { reader: Box<SourceReader>, request: u64 },
    /// The source has no record yet: queue the batch again a moment later.
    Later(Box<Undecoded>),
    /// The consumer has a new request.
    Wake,
}

/// The outcome of a batch.
pub(crate) enum Outcome {
    /// The batch is decoded.
    Ready(ReadyLease<Pinned, Note>),
    /// There is no batch: the epoch of a source has ended.
    EpochEnd(EpochEnd),
    /// The batch is no longer wanted.
    Stale,
}

/// What became of a batch that a worker has begun.
enum Begun {
    Done(Outcome),
    /// Up to that many other workers may join.
    Split(Share, usize),
    /// It is queued again.
    Later,
}

/// Where the epoch of a source has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochEnd {
    pub(crate) request: u64,
    pub(crate) source_position: SourcePosition,
}

/// A batch that is split into pieces.
struct Split {
    number: u64,
    fill: SharedFill<Pinned, Note>,
    piece_rows: usize,
    busy_ns: AtomicU64,
    substituted: Mutex<Vec<Substituted>>,
    /// The first row of the first piece that failed, and why.
    error: Mutex<Option<(usize, Error)>>,
}

/// The parts of a [`Decoder`].
pub(crate) struct DecoderOptions {
    pub(crate) input: Input,
    pub(crate) batch_sampler: Arc<BatchSampler>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) bad_samples: BadSamples,
    pub(crate) map_batch: Option<MapBatch>,
    pub(crate) workers: usize,
    pub(crate) host_slots: usize,
    pub(crate) inbox: Sender<Message>,
}

impl Decoder {
    pub(crate) fn new(options: DecoderOptions, on_end: impl FnOnce(Result<()>) + Send + 'static) -> Self {
        let DecoderOptions {
            input,
            batch_sampler,
            layout,
            bad_samples,
            map_batch,
            workers,
            host_slots,
            inbox,
        } = options;
        Self {
            input: Some(input),
            batch_sampler,
            layout,
            bad_samples,
            map_batch,
            workers,
            inbox,
            request: AtomicU64::new(0),
            first_failed: AtomicU64::new(u64::MAX),
            row_ns: AtomicU64::new(0),
            split: (0..host_slots).map(|_| RwLock::new(None)).collect(),
            trace: None,
            on_end: Mutex::new(Some(Box::new(on_end))),
        }
    }

    /// Records into `trace`.
    pub(crate) fn traced(mut self, trace: Option<LoaderTrace>) -> Self {
        self.trace = trace;
        self
    }

    pub(crate) fn trace(&self) -> Option<&LoaderTrace> {
        self.trace.as_ref()
    }

    /// `worker` worked on the batch of `info` from `start` to `end`.
    fn record(&self, worker: &Worker, what: &'static str, info: &BatchInfo, start: u64, end: u64) {
        if let Some(trace) = &self.trace {
            trace.worker(worker.index(), what, BatchId::of(info), (start, end));
        }
    }

    /// From now on only batches of `request` are decoded. Request numbers grow.
    pub(crate) fn set_request(&self, request: u64) {
        // `fetch_max`, so that a stop is final even if another thread has just begun a request.
        self.request.fetch_max(request, Ordering::Relaxed);
    }

    /// From now on no batch is decoded.
    pub(crate) fn stop(&self) {
        self.set_request(u64::MAX);
    }

    /// Whether the batches of `request` are no longer wanted.
    pub(crate) fn is_stale(&self, request: u64) -> bool {
        self.request.load(Ordering::Relaxed) != request
    }

    /// Whether a batch before `number` failed, so that `number` will not be delivered.
    fn is_after_failure(&self, number: u64) -> bool {
        self.first_failed.load(Ordering::Relaxed) < number
    }

    /// The sender of messages to the transfer thread.
    pub(crate) fn inbox(&self) -> &Sender<Message> {
        &self.inbox
    }

    fn send(&self, number: u64, outcome: Result<Outcome>) {
        if outcome.is_err() {
            self.first_failed.fetch_min(number, Ordering::Relaxed);
        }
        // There is room for every batch in flight. The send fails once the transfer thread has ended.
        let _ = self.inbox.send(Message::Decoded { number, outcome });
    }

    fn input(&self) -> Result<&Input> {
        self.input.as_ref().ok_or_else(|| Error::new(ErrorKind::Stopped, "the data set is gone"))
    }

    /// How long a full batch takes one worker, as far as the last batch tells; the longest time before the
    /// first one.
    pub(crate) fn batch_time(&self) -> Duration {
        match self.row_ns.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            ns => Duration::from_nanos(ns.saturating_mul(self.layout.capacity() as u64)),
        }
    }

    fn copy(&self) -> CopyRows {
        if self.workers <= STREAMING_WORKERS { stream_rows } else { copy_rows }
    }

    /// Finishes batch `number`: stores the substitutes in its note, calls the hook of the user, and stores
    /// the `busy` nanoseconds of the workers.
    fn finish(
        &self,
        number: u64,
        mut lease: FillLease<Pinned, Note>,
        substituted: Mutex<Vec<Substituted>>,
        busy: u64,
        worker: &Worker<'_>,
    ) -> Result<ReadyLease<Pinned, Note>> {
        let info = &mut lease.note_mut().info;
        info.substituted = substituted.into_inner().unwrap_or_else(PoisonError::into_inner);
        info.substituted.sort_unstable_by_key(|substituted| substituted.row);
        for Substituted { row, substitute, .. } in &info.substituted {
            info.ids[*row] = *substitute;
        }
        let start = now();
        // After a failure not every row is read, and the batch is not delivered.
        if let Some(map_batch) = self.map_batch.as_ref().filter(|_| !self.is_after_failure(number)) {
            let (bytes, note) = lease.parts_mut();
            map_batch.run(&self.batch_sampler, &self.layout, (bytes, note), worker)?;
        }
        let timeline = &mut lease.note_mut().info.timeline;
        timeline.decoded = now();
        timeline.decode_ns = busy + (timeline.decoded - start);
        Ok(lease.ready())
    }

    fn measured(&self, busy: Duration, rows: usize) {
        let ns = busy.as_nanos() as u64 / rows.max(1) as u64;
        self.row_ns.store(ns.max(1), Ordering::Relaxed);
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let data = (self.input.take(), self.map_batch.take());
        let dropped = catch_panic("the data set panicked when it was dropped", || drop(data));
        self.inbox = crossbeam_channel::bounded(0).0;
        let on_end = self.on_end.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_end) = on_end {
            on_end(dropped);
        }
    }
}

impl Job {
    /// Decodes the batch. A long one is only split: the caller joins it, and lets as many others join as the
    /// second value says.
    pub(crate) fn run(self, worker: &Worker<'_>) -> Option<(Share, usize)> {
        let Self { decoder, batch } = self;
        let number = batch.number;
        // Each call of user code is guarded by itself. A panic that gets this far is a bug, and must
        // not hang the loader.
        let run = catch_unwind(AssertUnwindSafe(|| batch.begin(&decoder, worker)));
        match run {
            Ok(Ok(Begun::Split(share, others))) => return Some((share, others)),
            Ok(Ok(Begun::Later)) => {}
            Ok(Ok(Begun::Done(outcome))) => decoder.send(number, Ok(outcome)),
            Ok(Err(error)) => decoder.send(number, Err(error)),
            Err(panic) => {
                let why = format!("a decode worker panicked: {}", panic_text(panic));
                decoder.send(number, Err(Error::new(ErrorKind::Panic, why)));
            }
        }
        None
    }
}

impl Undecoded {
    /// Reads the records of a source, and decodes the batch or splits it.
    fn begin(mut self, decoder: &Arc<Decoder>, worker: &Worker<'_>) -> Result<Begun> {
        let request = self.lease.note().info.request;
        if decoder.is_stale(request) || decoder.is_after_failure(self.number) {
            if let Some(reader) = self.reader.take() {
                let _ = decoder.inbox.send(Message::Reader { reader, request });
            }
            return Ok(Begun::Done(Outcome::Stale));
        }
        let input = decoder.input()?;
        match input {
            Input::Dataset(_) => self.sample(&decoder.batch_sampler),
            Input::ZeroCopy(_, gather_order) => {
                self.sample(&decoder.batch_sampler);
                let (bytes, note) = self.lease.parts_mut();
                worker.begin_batch(now(), &mut note.info.timeline);
                gather_order.write(&note.info.ids, bytes);
                note.info.timeline.decoded = now();
                worker.set_idle_since(note.info.timeline.decoded);
                return Ok(Begun::Done(Outcome::Ready(self.lease.ready())));
            }
            Input::Source(source) => match self.read_records(&**source, decoder, worker)? {
                Read::Batch => {}
                Read::EpochEnd => {
                    let source_position = self.lease.note().info.source_position.unwrap_or_default();
                    let end = EpochEnd { request, source_position };
                    return Ok(Begun::Done(Outcome::EpochEnd(end)));
                }
                Read::Later => {
                    let _ = decoder.inbox.send(Message::Later(Box::new(self)));
                    return Ok(Begun::Later);
                }
            },
        }
        self.decode(decoder, worker)
    }

    /// Writes the ids of the batch into its note.
    fn sample(&mut self, batch_sampler: &BatchSampler) {
        let Note { info, start, .. } = self.lease.note_mut();
        let BatchInfo { epoch, step, .. } = *info;
        info.valid = batch_sampler.batch(epoch, *start, step, &mut info.ids);
    }

    /// Reads the records of a source, and sends the reader back.
    fn read_records(&mut self, source: &dyn Source, decoder: &Decoder, worker: &Worker<'_>) -> Result<Read> {
        let Some(reader) = &mut self.reader else { return Ok(Read::Batch) };
        let note = self.lease.note_mut();
        let request = note.info.request;
        let watch = worker.begin(note.info.step, 0);
        worker.begin_batch(now(), &mut note.info.timeline);
        let read = reader.read(source, note, &watch, || decoder.is_stale(request));
        note.info.timeline.read = now();
        worker.set_idle_since(note.info.timeline.read);
        let info = &note.info;
        decoder.record(worker, "read the source", info, info.timeline.begun, info.timeline.read);
        worker.end();
        let read = read?;
        if read != Read::Later
            && let Some(reader) = self.reader.take()
        {
            let _ = decoder.inbox.send(Message::Reader { reader, request });
        }
        Ok(read)
    }

    fn decode(self, decoder: &Arc<Decoder>, worker: &Worker<'_>) -> Result<Begun> {
        let Self { number, mut lease, .. } = self;
        let rows = lease.note().info.ids.len();
        let piece_rows = piece_rows(rows, decoder.row_ns.load(Ordering::Relaxed), decoder.workers);
        // The rows of a ragged field are written in order, by one worker.
        if rows > piece_rows && !decoder.layout.is_ragged() {
            worker.begin_batch(now(), &mut lease.note_mut().info.timeline);
            let share = Share::open(decoder.clone(), number, lease, piece_rows)?;
            let others = (rows.div_ceil(piece_rows) - 1).min(decoder.workers - 1);
            return Ok(Begun::Split(share, others));
        }
        let (bytes, note) = lease.parts_mut();
        let substituted = Mutex::new(std::mem::take(&mut note.info.substituted));
        let samples = decoder.input()?.samples(&decoder.batch_sampler, note);
        let rows_of_batch = Rows::new(&decoder.layout, bytes, rows).copied_by(decoder.copy());
        let reader = Reader { samples, bad_samples: decoder.bad_samples, substituted: &substituted };
        let start = now();
        read_piece(decoder, &reader, rows_of_batch, worker)?;
        if decoder.layout.is_ragged() {
            bring_into_form(decoder, &mut lease, rows)?;
        }
        let busy = now() - start;
        decoder.measured(Duration::from_nanos(busy), rows);
        worker.begin_batch(start, &mut lease.note_mut().info.timeline);
        worker.set_idle_since(start + busy);
        decoder.record(worker, "decode", &lease.note().info, start, start + busy);
        let ready = decoder.finish(number, lease, substituted, busy, worker)?;
        Ok(Begun::Done(Outcome::Ready(ready)))
    }
}

impl Share {
    fn open(
        decoder: Arc<Decoder>,
        number: u64,
        mut lease: FillLease<Pinned, Note>,
        piece_rows: usize,
    ) -> Result<Self> {
        let slot = lease.index();
        let info = &mut lease.note_mut().info;
        let (rows, substituted) = (info.ids.len(), std::mem::take(&mut info.substituted));
        let fill = SharedFill::new(lease, decoder.layout.clone(), rows)?;
        let split = Split {
            number,
            fill,
            piece_rows,
            busy_ns: AtomicU64::new(0),
            substituted: Mutex::new(substituted),
            error: Mutex::new(None),
        };
        let share = Self { decoder, slot };
        *share.write() = Some(split);
        Ok(share)
    }

    /// Whether this is a batch of `decoder`.
    pub(crate) fn is_of(&self, decoder: &Arc<Decoder>) -> bool {
        Arc::ptr_eq(&self.decoder, decoder)
    }

    /// Decodes pieces until none is left. The worker that finishes the last piece sends the batch.
    pub(crate) fn join(&self, worker: &Worker<'_>) {
        let is_finished = self.read().as_ref().is_some_and(|split| split.decode(&self.decoder, worker));
        if !is_finished {
            return;
        }
        // Only the worker that finishes the last piece gets here, so no other worker takes the batch.
        let Some(split) = self.write().take() else { return };
        let Split { number, fill, busy_ns, substituted, error, .. } = split;
        let rows = fill.note().info.ids.len();
        let busy = busy_ns.into_inner();
        self.decoder.measured(Duration::from_nanos(busy), rows);
        let outcome = match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => {
                let ready = self.decoder.finish(number, fill.into_lease(), substituted, busy, worker);
                ready.map(Outcome::Ready)
            }
        };
        self.decoder.send(number, outcome);
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Split>> {
        self.decoder.split[self.slot].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Split>> {
        self.decoder.split[self.slot].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Split {
    /// Decodes pieces until none is left; returns whether that finished the batch.
    fn decode(&self, decoder: &Decoder, worker: &Worker<'_>) -> bool {
        let note = self.fill.note();
        let Ok(input) = decoder.input() else { return false };
        let reader = Reader {
            samples: input.samples(&decoder.batch_sampler, note),
            bad_samples: decoder.bad_samples,
            substituted: &self.substituted,
        };
        let (mut is_finished, mut pieces) = (false, None::<(u64, u64)>);
        while let Some(mut piece) = self.fill.claim(self.piece_rows) {
            let first = piece.range().start;
            let start = now();
            if !decoder.is_after_failure(self.number)
                && let Err(error) =
                    read_piece(decoder, &reader, piece.rows().copied_by(decoder.copy()), worker)
            {
                decoder.first_failed.fetch_min(self.number, Ordering::Relaxed);
                self.fail(first, error);
                // Pieces are claimed in order, so earlier rows are read or with another worker; later
                // ones are given up.
                is_finished |= self.fill.give_up();
            }
            let end = now();
            self.busy_ns.fetch_add(end - start, Ordering::Relaxed);
            worker.set_idle_since(end);
            pieces = Some((pieces.map_or(start, |(first, _)| first), end));
            is_finished |= piece.finish();
        }
        if let Some((start, end)) = pieces {
            decoder.record(worker, "decode", &note.info, start, end);
        }
        is_finished
    }

    /// Keeps the error of the first failed row, so that the same data gives the same error.
    fn fail(&self, first: usize, error: Error) {
        let mut earliest = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if earliest.as_ref().is_none_or(|(row, _)| first < *row) {
            *earliest = Some((first, error));
        }
    }
}

/// Reads one piece of a batch, and publishes which sample is being read.
fn read_piece(decoder: &Decoder, reader: &Reader<'_>, rows: Rows<'_>, worker: &Worker<'_>) -> Result<()> {
    let info = reader.samples.info();
    let Some(&first) = info.ids.get(rows.first()) else { return Ok(()) };
    let watch = worker.begin(info.step, first);
    let context = Context::new(decoder.batch_sampler.options().seed, info.epoch);
    let mut context = context.watched(watch).with_scratch(worker.take_scratch());
    let read = reader.read(rows, &mut context);
    worker.end();
    let scratch = context.into_scratch();
    // A read that panicked may have left its scratch half written: the next one starts anew.
    if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {
        let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(scratch));
    } else {
        worker.keep_scratch(scratch);
    }
    read
}

/// Finishes the ragged fields of a batch.
fn bring_into_form(decoder: &Decoder, lease: &mut FillLease<Pinned, Note>, rows: usize) -> Result<()> {
    let (bytes, Note { info, .. }) = lease.parts_mut();
    decoder.layout.finish(bytes, rows, &mut info.extents).map_err(|(row, error)| {
        let error = error.at_stage(Stage::Decode).at_batch(info.step);
        info.ids.get(row).map_or(error.clone(), |&id| error.at_sample(id))
    })
}
