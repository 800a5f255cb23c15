//! One worker thread: how it decodes a batch, alone or, split, with others; its scratch memory; and its
//! activity, so that a read that never returns can be named.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use feedline_core::sampler::custom::NO_SAMPLE;
use feedline_core::source::Next;
use feedline_core::{
    BatchInfo, BatchSampler, Context, ErrorKind, Result, Scratch, Source, Timeline, Watch, timeline::now,
};

use super::decoder::Decoder;
use super::input::Input;
use super::rows::Reader;
use super::split::{LONG, Split, piece_rows, piece_time, workers_for};
use crate::job::{Delivery, HostInfo, Job, Message};
use crate::spans::enter;

/// A worker chooses a slot among this many queued batches.
const CHOICE: usize = 32;

const IDLE: u64 = u64::MAX;

/// The activity of one worker of a pool. Its worker writes it for each piece, so it has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Activity {
    step: AtomicU64,
    sample: Arc<Watch>,
    /// The time of [`now`].
    since_ns: AtomicU64,
}

/// A read in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The worker's index; its thread is called `fl-decode-N`.
    pub worker: usize,
    /// The step of the batch.
    pub step: u64,
    /// The sample, or the first of several that are read in one call.
    pub sample: u64,
    /// How long the read has taken so far.
    pub time: Duration,
}

impl Activity {
    /// The activity of an idle worker.
    pub(super) fn idle() -> Self {
        let (step, sample) = (AtomicU64::new(IDLE), Arc::default());
        Self { step, sample, since_ns: AtomicU64::new(0) }
    }

    /// The reads in progress of `workers`, the longest first. A snapshot; exact for reads that hang.
    pub(super) fn readings(workers: &[Self]) -> Vec<Reading> {
        let now = now();
        let reading = |(worker, activity): (usize, &Self)| Reading {
            worker,
            step: activity.step.load(Ordering::Relaxed),
            sample: activity.sample.0.load(Ordering::Relaxed),
            time: Duration::from_nanos(now.saturating_sub(activity.since_ns.load(Ordering::Relaxed))),
        };
        let readings = workers.iter().enumerate().map(reading).filter(|reading| reading.step != IDLE);
        let mut readings: Vec<_> = readings.collect();
        readings.sort_by_key(|reading| std::cmp::Reverse(reading.time));
        readings
    }
}

impl std::fmt::Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worker, step, sample, time } = self;
        let seconds = time.as_secs_f64();
        write!(
            f,
            "worker fl-decode-{worker} has been reading sample {sample} of batch {step} for {seconds:.1} s"
        )
    }
}

/// One worker thread of a pool.
pub(crate) struct Worker<'a> {
    activity: &'a Activity,
    index: usize,
    /// The scratch memory, kept from batch to batch; empty while a batch uses it.
    scratch: Cell<Scratch>,
    /// The ids of a batch whose samples it prepares.
    ids: Cell<Vec<u64>>,
    /// Nanoseconds spent preparing samples since its last batch.
    prefetch_ns: Cell<u64>,
    /// The time at which it last finished some work; 0 before.
    idle_since: Cell<u64>,
    /// The time at which the worker's last batch was handed out, and the time from which the worker was idle
    /// before that.
    last: Cell<(u64, u64)>,
}

impl<'a> Worker<'a> {
    /// Worker number `index` of a pool, which records its reads in `activity`.
    pub(crate) fn new(activity: &'a Activity, index: usize) -> Self {
        let (scratch, ids, prefetch_ns, idle_since, last) = Default::default();
        Self { activity, index, scratch, ids, prefetch_ns, idle_since, last }
    }

    /// Records in `timeline` that this worker begins the batch at `at`. Batches that were handed out together
    /// all get the idle time before the first of them.
    pub(crate) fn begin_batch(&self, at: u64, timeline: &mut Timeline) {
        if self.last.get().0 != timeline.handed_out {
            self.last.set((timeline.handed_out, self.idle_since.get()));
        }
        timeline.begin(at, self.index, self.last.get().1);
    }

    /// The worker's index in the pool.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Records that this worker is idle from `at` on.
    pub(crate) fn set_idle_since(&self, at: u64) {
        self.idle_since.set(at);
    }

    /// Records that the worker begins to read rows of `step`. Returns the cell in which the worker stores the
    /// id of each sample.
    pub(crate) fn begin(&self, step: u64, sample: u64) -> Arc<Watch> {
        self.activity.sample.0.store(sample, Ordering::Relaxed);
        self.activity.since_ns.store(now(), Ordering::Relaxed);
        self.activity.step.store(step, Ordering::Relaxed);
        self.activity.sample.clone()
    }

    /// Records that the worker has finished reading.
    pub(crate) fn end(&self) {
        self.activity.step.store(IDLE, Ordering::Relaxed);
    }

    /// Takes the memory for the ids of a batch.
    pub(super) fn take_ids(&self) -> Vec<u64> {
        self.ids.take()
    }

    /// Keeps the memory that [`take_ids`](Self::take_ids) returned.
    pub(super) fn keep_ids(&self, ids: Vec<u64>) {
        self.ids.set(ids);
    }

    /// Adds `ns` nanoseconds of preparing samples; the next batch that the worker finishes counts them as
    /// decoding.
    pub(super) fn add_prefetch(&self, ns: u64) {
        self.prefetch_ns.set(self.prefetch_ns.get() + ns);
    }

    /// Takes the nanoseconds spent preparing samples since the last call.
    pub(super) fn take_prefetch(&self) -> u64 {
        self.prefetch_ns.take()
    }

    /// Calls `read` with `context`, which gets the worker's scratch memory, for samples of these `draws`. The
    /// worker has then finished reading.
    ///
    /// A read that panicked may have left the scratch memory half written: the next one starts anew.
    pub(crate) fn read<T>(
        &self,
        context: Context,
        draws: &[u64],
        read: impl FnOnce(&mut Context) -> Result<T>,
    ) -> Result<T> {
        let context = context.with_scratch(self.scratch.take());
        let mut context = context.with_draws(draws);
        let result = read(&mut context);
        self.activity.step.store(IDLE, Ordering::Relaxed);
        if !result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {
            self.scratch.set(context.into_scratch());
        }
        result
    }
}

impl Job {
    /// Gives the first batch of `queue` a slot that `worker` filled last, if another batch of its loader has
    /// one: the batches swap their slots.
    ///
    /// The memory of such a slot is in the caches of the worker's core. If another core wrote a slot last,
    /// each cache line is fetched from there before it is overwritten.
    pub(super) fn choose_slot(worker: usize, queue: &mut VecDeque<(Arc<Decoder>, Self)>) {
        let is_own = |batch: &Self| batch.filled_by == Some(worker as u32) && batch.may_swap_slot();
        let mut batches = queue.iter_mut().take(CHOICE);
        let Some((decoder, first)) = batches.next() else { return };
        if is_own(first) || !first.may_swap_slot() {
            return;
        }
        if let Some((_, own)) = batches.find(|(other, batch)| Arc::ptr_eq(other, decoder) && is_own(batch)) {
            std::mem::swap(&mut first.lease, &mut own.lease);
            std::mem::swap(&mut first.filled_by, &mut own.filled_by);
        }
    }

    /// Decodes the batch, and hands it in. A long batch is split, and `share` offers it to at most the given
    /// number of other workers; `unused` returns the number of workers that have nothing else to do.
    pub(super) fn decode(
        self,
        decoder: &Decoder,
        worker: &Worker<'_>,
        others: (impl FnOnce() -> usize, impl FnOnce(Arc<Split>, usize)),
    ) {
        if self.is_wanted(&decoder.requests) {
            decoder.hand_in(self.timeline.number, || self.begin(decoder, worker, others));
        } else {
            self.give_up(decoder);
        }
    }

    /// Ends a job that is not wanted any more.
    pub(super) fn give_up(self, decoder: &Decoder) {
        let Self { request, timeline: Timeline { number, .. }, lease, reader, .. } = self;
        if let Some(reader) = reader {
            decoder.requests.send(Message::Reader { reader, request: request.number });
        }
        drop(lease);
        decoder.requests.hand_in(number, Ok(None));
    }

    /// Reads the records of a source, and decodes the batch, alone or with others.
    fn begin(
        mut self,
        decoder: &Decoder,
        worker: &Worker<'_>,
        others: (impl FnOnce() -> usize, impl FnOnce(Arc<Split>, usize)),
    ) -> Result<Option<Delivery>> {
        match decoder.input()? {
            Input::Dataset(dataset) => {
                self.sample(&decoder.batch_sampler)?;
                self.draw(&decoder.batch_sampler);
                if decoder.prefetch.is_on() {
                    worker.begin_batch(now(), &mut self.lease.info_mut().batch.timeline);
                    let info = self.lease.info();
                    decoder.prefetch.begin(self.request, &info.batch.ids, (decoder, dataset), worker);
                }
            }
            Input::ZeroCopy(dataset, gather_order) => {
                self.sample(&decoder.batch_sampler)?;
                let content = decoder.content_of(&self.lease);
                let (bytes, HostInfo { batch: info, .. }) = self.lease.parts_mut();
                worker.begin_batch(now(), &mut info.timeline);
                gather_order.write(&info.ids, bytes);
                info.content = content.and_then(|hash| hash.of_columns(&**dataset, &info.ids));
                info.prove();
                info.timeline.decoded = now();
                worker.set_idle_since(info.timeline.decoded);
                return Ok(Some(Delivery::Filled(self.lease.ready())));
            }
            Input::Source(source) => match self.with_records(&**source, decoder, worker)? {
                (Some(job), _) => self = job,
                (None, instead) => return Ok(instead),
            },
        }
        let rows = self.lease.info().batch.ids.len();
        let (unused, share) = others;
        let time = decoder.batch_time();
        let workers = workers_for((time, decoder.layout.bytes()), unused, decoder.workers());
        let piece_rows = piece_rows(rows, decoder.row_ns(), workers);
        let is_split = rows > piece_rows && (workers > 1 || time >= LONG);
        // The rows of a ragged field are written in order, by one worker.
        if is_split && !decoder.layout.is_ragged() {
            worker.begin_batch(now(), &mut self.lease.info_mut().batch.timeline);
            let split = decoder.share(Split::new(self, decoder, piece_rows)?);
            share(split.clone(), (rows.div_ceil(piece_rows) - 1).min(workers - 1));
            return split.decode(decoder, worker);
        }
        self.decode_alone(decoder, worker, rows)
    }

    /// Writes the ids of the batch into its info.
    ///
    /// # Errors
    /// `Config` if a function of the program gives no sample of the data set.
    pub(super) fn sample(&mut self, batch_sampler: &BatchSampler) -> Result<()> {
        let info = &mut self.lease.info_mut().batch;
        let BatchInfo { epoch, step, start, .. } = *info;
        info.valid = batch_sampler.batch(epoch, start, step, &mut info.ids);
        let Some(row) = info.ids.iter().position(|&id| id == NO_SAMPLE) else { return Ok(()) };
        Err(batch_sampler.fault(epoch, start, step, row))
    }

    /// Writes the draws of the batch into its info.
    pub(super) fn draw(&mut self, batch_sampler: &BatchSampler) {
        let HostInfo { batch: info, draws, .. } = self.lease.info_mut();
        batch_sampler.draws(info.epoch, info.start, info.step, draws);
        draws.truncate(info.ids.len());
    }

    /// Reads the records of a source. Returns the job if its batch can be decoded; otherwise the delivery in
    /// place of the batch, if there is one.
    pub(super) fn with_records(
        mut self,
        source: &dyn Source,
        decoder: &Decoder,
        worker: &Worker<'_>,
    ) -> Result<(Option<Self>, Option<Delivery>)> {
        Ok(match self.read_records(source, decoder, worker)? {
            Next::Record => (Some(self), None),
            Next::End => {
                let BatchInfo { request, source_position, .. } = self.lease.info().batch;
                let source_position = source_position.unwrap_or_default();
                (None, Some(Delivery::EpochEnd { request, source_position }))
            }
            Next::Later => {
                decoder.requests.send(Message::NotYet(Box::new(self.put_off())));
                (None, None)
            }
        })
    }

    /// Reads the records of a source, and sends the reader back unless there is more to read for this batch.
    fn read_records(&mut self, source: &dyn Source, decoder: &Decoder, worker: &Worker<'_>) -> Result<Next> {
        let Some(reader) = &mut self.reader else { return Ok(Next::Record) };
        let host_info = self.lease.info_mut();
        let (request, number) = (host_info.batch.request, self.timeline.number);
        let _span = enter!("read the source", &host_info.batch);
        let watch = worker.begin(host_info.batch.step, 0);
        worker.begin_batch(now(), &mut host_info.batch.timeline);
        let read = reader.read(source, host_info, &watch.0, || decoder.requests.is_wanted(request, number));
        let info = &mut host_info.batch;
        info.timeline.read = now();
        worker.set_idle_since(info.timeline.read);
        decoder.record(worker, "read the source", info, (info.timeline.begun, info.timeline.read));
        worker.end();
        let read = read?;
        if read != Next::Later
            && let Some(reader) = self.reader.take()
        {
            decoder.requests.send(Message::Reader { reader, request });
        }
        Ok(read)
    }

    /// Decodes all rows.
    fn decode_alone(self, decoder: &Decoder, worker: &Worker<'_>, rows: usize) -> Result<Option<Delivery>> {
        let Self { mut lease, .. } = self;
        let (bytes, host_info) = lease.parts_mut();
        let substituted = Mutex::new(std::mem::take(&mut host_info.batch.substituted));
        let rows_of_batch = decoder.to_write(feedline_core::Rows::new(&decoder.layout, bytes, rows));
        let reader = Reader { decoder, input: decoder.input()?, host_info, substituted: &substituted };
        let start = now();
        let elsewhere = reader.read_piece(rows_of_batch, worker)?;
        let busy = now() - start;
        decoder.set_row_ns(piece_time(busy, elsewhere), rows);
        worker.begin_batch(start, &mut lease.info_mut().batch.timeline);
        worker.set_idle_since(start + busy);
        decoder.record(worker, "decode", &lease.info().batch, (start, start + busy));
        let substituted = substituted.into_inner().unwrap_or_else(PoisonError::into_inner);
        decoder.finish(lease, substituted, busy, worker)
    }
}
