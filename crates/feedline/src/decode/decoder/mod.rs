//! One loader's decoding: one worker begins a batch, and others join if it is long enough to be split.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crossbeam_channel::Sender;
use feedline_core::{
    BadSamples, BatchInfo, BatchSampler, CopyRows, Error, ErrorKind, Layout, Result, SourcePosition, Stage,
    Substituted, catch_panic, timeline::now,
};
use feedline_device::Pinned;
use feedline_device::zero_copy::Rest;
use feedline_slots::{FillLease, ReadyLease, copy_rows, stream_rows};

use super::input::{Input, Note};
use super::map_batch::MapBatch;
use super::source::SourceReader;
use super::tuning::STREAMING_WORKERS;
use super::worker::Worker;
use crate::trace::{BatchId, LoaderTrace};

mod job;
mod share;

pub(crate) use job::{Job, Undecoded};
pub(crate) use share::Share;
use share::Split;

/// What the workers need to know about a loader.
pub(crate) struct Decoder {
    input: Option<Input>,
    batch_sampler: Arc<BatchSampler>,
    layout: Arc<Layout>,
    bad_samples: BadSamples,
    map_batch: Option<MapBatch>,
    /// What is read of a set that is partly on the device.
    rest: Option<Rest>,
    /// Number of workers that may take work.
    workers: Arc<AtomicUsize>,
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

/// Where the epoch of a source has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochEnd {
    pub(crate) request: u64,
    pub(crate) source_position: SourcePosition,
}

/// The parts of a [`Decoder`].
pub(crate) struct DecoderOptions {
    pub(crate) input: Input,
    pub(crate) batch_sampler: Arc<BatchSampler>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) bad_samples: BadSamples,
    pub(crate) map_batch: Option<MapBatch>,
    pub(crate) rest: Option<Rest>,
    pub(crate) workers: Arc<AtomicUsize>,
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
            rest,
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
            rest,
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

    fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    fn copy(&self) -> CopyRows {
        if self.workers() <= STREAMING_WORKERS { stream_rows } else { copy_rows }
    }

    /// Finishes batch `number`: stores the substitutes and the proof in its note, calls the hook of the user,
    /// brings ragged fields into their form, packs the rows for the device, and stores the `busy` nanoseconds
    /// of the workers.
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
        info.prove();
        // After a failure not every row is read, and the batch is not delivered.
        if let Some(map_batch) = self.map_batch.as_ref().filter(|_| !self.is_after_failure(number)) {
            let (bytes, note) = lease.parts_mut();
            map_batch.run(&self.batch_sampler, &self.layout, (bytes, note), worker)?;
        }
        if self.layout.is_ragged() {
            self.bring_into_form(&mut lease)?;
        }
        if let Some(rest) = &self.rest {
            let (bytes, note) = lease.parts_mut();
            rest.pack(&self.layout, &note.info.ids, bytes);
        }
        let timeline = &mut lease.note_mut().info.timeline;
        timeline.decoded = now();
        timeline.decode_ns = busy + (timeline.decoded - start);
        Ok(lease.ready())
    }

    /// Pads and adds up the ragged fields of a batch.
    fn bring_into_form(&self, lease: &mut FillLease<Pinned, Note>) -> Result<()> {
        let (bytes, Note { info, .. }) = lease.parts_mut();
        self.layout.finish(bytes, info.ids.len(), &mut info.extents).map_err(|(row, error)| {
            let error = error.at_stage(Stage::Decode).at_batch(info.step);
            info.ids.get(row).map_or(error.clone(), |&id| error.at_sample(id))
        })
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
