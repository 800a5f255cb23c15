//! A batch to decode: its records are read, then one worker decodes it, or several share its rows.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use feedline_core::source::Next;
use feedline_core::{
    BatchInfo, BatchSampler, Context, Error, ErrorKind, Result, Rows, Source, Substituted, Timeline,
    timeline::now,
};
use feedline_device::Pinned;
use feedline_slots::{FillLease, SharedFill, WAKE_UP};

use super::decoder::{Decoder, Delivery, Filled, Message};
use super::input::{HostInfo, Input};
use super::rows::Reader;
use super::source::SourceReader;
use super::worker::Worker;
use crate::spans::enter;
use crate::transfer::Request;

/// A batch that takes one worker less time than this is decoded by that worker alone; a longer one is split.
/// A piece must be long against a [`WAKE_UP`].
///
/// Machine: 16 cores of a Xeon beside an H200, 2026-11-21. Bench: `tiny`, `gather`.
const PIECE: Duration = WAKE_UP.saturating_mul(5);

/// A batch that takes one worker less time than this, and that a cache can hold ([`CACHED`]), is split only
/// for workers that have nothing else to do.
///
/// Two workers that write one slot move its lines between the caches of their cores. Batches of 256 rows of
/// 784 bytes to an H200 by four workers took 190 us of their time each when all four shared every batch, and
/// 95 us when one worker decoded them all. Batches of 3.2 MB by twelve workers are a quarter faster when all
/// are split. 2026-11-24. Bench: `readers`, `tiny`.
const LONG: Duration = WAKE_UP.saturating_mul(50);

/// The sizes of batches for which workers have slots of their own. Smaller ones cost less than their
/// hand-over; larger ones do not stay in the cache of a core.
///
/// Machine: 16 cores of a Xeon beside an H200, 2026-11-24. Bench: `tiny` (100 and 400 KB), `readers` (200
/// KB).
pub(crate) const CACHED: RangeInclusive<usize> = 64 << 10..=1 << 20;

/// The shortest piece of a batch that is split.
///
/// A batch of half a millisecond in pieces of a tenth would keep five of sixteen workers busy, and the
/// others would wait for the last of them. Machine and date as above. Bench: `gather` at 15 workers.
const SHORT_PIECE: Duration = Duration::from_micros(25);

/// The number of queued batches among whose slots a worker chooses.
const CHOICE: usize = 32;

/// A batch to decode.
pub(crate) struct Undecoded {
    /// The batch's number, counted over all batches of the loader.
    pub(crate) number: u64,
    /// Its request, at the step of this batch.
    request: Request,
    pub(crate) timeline: Timeline,
    /// The slot to fill; its info describes the batch once that is begun.
    pub(crate) lease: FillLease<Pinned, HostInfo>,
    /// The worker that filled the slot last, if it is known.
    pub(crate) filled_by: Option<u32>,
    /// For a source, the reader of its records.
    pub(crate) reader: Option<Box<SourceReader>>,
    /// Whether the slot's info describes the batch.
    is_described: bool,
}

/// A batch whose rows several workers decode, in pieces.
pub(crate) struct Split {
    number: u64,
    /// The slot. The worker that finishes the last piece takes it out.
    fill: RwLock<Option<SharedFill<Pinned, HostInfo>>>,
    piece_rows: usize,
    busy_ns: AtomicU64,
    /// The part of it in which other processes have read.
    elsewhere_ns: AtomicU64,
    substituted: Mutex<Vec<Substituted>>,
    /// The first row of the first piece that failed, and why.
    error: Mutex<Option<(usize, Error)>>,
}

impl Undecoded {
    /// Batch `number`, the next step of `request`, to be decoded into the slot of `lease`, which worker
    /// `filled_by` filled last. For a source, with the reader of its records.
    pub(crate) fn new(
        number: u64,
        request: Request,
        lease: FillLease<Pinned, HostInfo>,
        (filled_by, reader): (Option<u32>, Option<Box<SourceReader>>),
    ) -> Self {
        let timeline = Timeline { number, ..Timeline::default() };
        Self { number, request, timeline, lease, filled_by, reader, is_described: false }
    }

    /// Gives the first batch of `queue` a slot that `worker` filled last, if another batch of its loader has
    /// one: the batches swap their slots.
    ///
    /// The memory of such a slot is in the caches of the worker's core. Of a slot that another core wrote
    /// last, each line is fetched from there before it is overwritten.
    pub(super) fn choose_slot(worker: usize, queue: &mut VecDeque<(Arc<Decoder>, Self)>) {
        let is_own = |batch: &Self| batch.filled_by == Some(worker as u32) && !batch.is_described;
        let mut batches = queue.iter_mut().take(CHOICE);
        let Some((decoder, first)) = batches.next() else { return };
        if is_own(first) || first.is_described {
            return;
        }
        if let Some((_, own)) = batches.find(|(other, batch)| Arc::ptr_eq(other, decoder) && is_own(batch)) {
            std::mem::swap(&mut first.lease, &mut own.lease);
            std::mem::swap(&mut first.filled_by, &mut own.filled_by);
        }
    }

    /// Describes the batch in the slot's info.
    fn describe(&mut self) {
        if !std::mem::replace(&mut self.is_described, true) {
            let Request { number: request, epoch, step, start, .. } = self.request;
            let info = self.lease.info_mut();
            info.batch.reset(request, epoch, step);
            info.batch.timeline = self.timeline;
            info.batch.start = start;
            info.draws.clear();
            info.records.clear();
        }
    }

    /// Decodes the batch. A long batch is split, and `share` offers it to at most the given number of other
    /// workers; `unused` returns the number of those that have nothing else to do. Returns whether the caller
    /// has to wake the transfer thread, sooner or later.
    pub(super) fn decode(
        self,
        decoder: &Arc<Decoder>,
        worker: &Worker<'_>,
        others: (impl FnOnce() -> usize, impl FnOnce(Arc<Split>, usize)),
    ) -> bool {
        let (number, request) = (self.number, self.request.number);
        if self.is_unwanted(decoder) {
            if let Some(reader) = self.reader {
                decoder.requests.send(Message::Reader { reader, request });
            }
            drop(self.lease);
            decoder.requests.send(Message::Decoded { number, outcome: Ok(None) });
            return false;
        }
        decoder.send_outcome(number, false, || self.begin(decoder, worker, others))
    }

    /// Whether the batch will not be delivered.
    pub(super) fn is_unwanted(&self, decoder: &Decoder) -> bool {
        let requests = &decoder.requests;
        requests.is_stale(self.request.number) || requests.is_after_failure(self.number)
    }

    /// Reads the records of a source, and decodes the batch, alone or with others.
    fn begin(
        mut self,
        decoder: &Decoder,
        worker: &Worker<'_>,
        others: (impl FnOnce() -> usize, impl FnOnce(Arc<Split>, usize)),
    ) -> Result<Option<Delivery<Filled>>> {
        match decoder.input()? {
            Input::Dataset(dataset) => {
                self.sample(&decoder.batch_sampler);
                self.draw(&decoder.batch_sampler);
                if decoder.prefetch.is_on() {
                    worker.begin_batch(now(), &mut self.lease.info_mut().batch.timeline);
                    let info = self.lease.info();
                    decoder.prefetch.begin(self.request, &info.batch.ids, (decoder, dataset), worker);
                }
            }
            Input::ZeroCopy(dataset, gather_order) => {
                self.sample(&decoder.batch_sampler);
                let content = decoder.content_of(&self.lease);
                let (bytes, HostInfo { batch: info, .. }) = self.lease.parts_mut();
                worker.begin_batch(now(), &mut info.timeline);
                gather_order.write(&info.ids, bytes);
                info.content = content.and_then(|hash| hash.of_columns(&**dataset, &info.ids));
                info.prove();
                info.timeline.decoded = now();
                worker.set_idle_since(info.timeline.decoded);
                return Ok(Some(Delivery::Batch(self.lease.ready())));
            }
            Input::Source(source) => match self.with_records(&**source, decoder, worker)? {
                Ok(batch) => self = batch,
                Err(delivery) => return Ok(delivery),
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
    pub(super) fn sample(&mut self, batch_sampler: &BatchSampler) {
        self.describe();
        let info = &mut self.lease.info_mut().batch;
        let BatchInfo { epoch, step, start, .. } = *info;
        info.valid = batch_sampler.batch(epoch, start, step, &mut info.ids);
    }

    /// Writes the draws of the batch into its info.
    pub(super) fn draw(&mut self, batch_sampler: &BatchSampler) {
        let HostInfo { batch: info, draws, .. } = self.lease.info_mut();
        batch_sampler.draws(info.epoch, info.start, info.step, draws);
    }

    /// Reads the records of a source; `Err` with what is delivered in place of the batch, if anything.
    pub(super) fn with_records(
        mut self,
        source: &dyn Source,
        decoder: &Decoder,
        worker: &Worker<'_>,
    ) -> Result<Result<Self, Option<Delivery<Filled>>>> {
        Ok(match self.read_records(source, decoder, worker)? {
            Next::Record => Ok(self),
            Next::End => {
                let BatchInfo { request, source_position, .. } = self.lease.info().batch;
                let source_position = source_position.unwrap_or_default();
                Err(Some(Delivery::EpochEnd { request, source_position }))
            }
            Next::Later => {
                decoder.requests.send(Message::NotYet(Box::new(self)));
                Err(None)
            }
        })
    }

    /// Reads the records of a source, and sends the reader back unless there is more to read for this batch.
    fn read_records(&mut self, source: &dyn Source, decoder: &Decoder, worker: &Worker<'_>) -> Result<Next> {
        self.describe();
        let Some(reader) = &mut self.reader else { return Ok(Next::Record) };
        let host_info = self.lease.info_mut();
        let request = host_info.batch.request;
        let _span = enter!("read the source", &host_info.batch);
        let watch = worker.begin(host_info.batch.step, 0);
        worker.begin_batch(now(), &mut host_info.batch.timeline);
        let read = reader.read(source, host_info, &watch, || decoder.requests.is_stale(request));
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
    fn decode_alone(
        self,
        decoder: &Decoder,
        worker: &Worker<'_>,
        rows: usize,
    ) -> Result<Option<Delivery<Filled>>> {
        let Self { number, mut lease, .. } = self;
        let (bytes, host_info) = lease.parts_mut();
        let substituted = Mutex::new(std::mem::take(&mut host_info.batch.substituted));
        let rows_of_batch = Rows::new(&decoder.layout, bytes, rows).copied_by(decoder.copy());
        let reader = Reader { decoder, input: decoder.input()?, host_info, substituted: &substituted };
        let start = now();
        let elsewhere = read_piece(&reader, rows_of_batch, worker)?;
        let busy = now() - start;
        decoder.set_row_ns(piece_time(busy, elsewhere), rows);
        worker.begin_batch(start, &mut lease.info_mut().batch.timeline);
        worker.set_idle_since(start + busy);
        decoder.record(worker, "decode", &lease.info().batch, (start, start + busy));
        let substituted = substituted.into_inner().unwrap_or_else(PoisonError::into_inner);
        decoder.finish(number, lease, substituted, busy, worker)
    }
}

impl Split {
    /// Splits `batch` into pieces of `piece_rows` rows.
    fn new(batch: Undecoded, decoder: &Decoder, piece_rows: usize) -> Result<Self> {
        let Undecoded { number, mut lease, .. } = batch;
        let info = &mut lease.info_mut().batch;
        let (rows, substituted) = (info.ids.len(), std::mem::take(&mut info.substituted));
        Ok(Self {
            number,
            fill: RwLock::new(Some(SharedFill::new(lease, decoder.layout.clone(), rows)?)),
            piece_rows,
            busy_ns: AtomicU64::new(0),
            elsewhere_ns: AtomicU64::new(0),
            substituted: Mutex::new(substituted),
            error: Mutex::new(None),
        })
    }

    /// Decodes pieces until none is left.
    pub(super) fn join(&self, decoder: &Decoder, worker: &Worker<'_>) {
        decoder.send_outcome(self.number, true, || self.decode(decoder, worker));
    }

    /// As [`join`](Self::join). The worker that finishes the last piece gets the outcome of the batch.
    fn decode(&self, decoder: &Decoder, worker: &Worker<'_>) -> Result<Option<Delivery<Filled>>> {
        if !self.decode_pieces(decoder, worker)? {
            return Ok(None);
        }
        // Only the worker that finishes the last piece reaches this line; the others have no piece left.
        let Some(fill) = self.fill.write().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(None);
        };
        let busy = self.busy_ns.load(Ordering::Relaxed);
        let elsewhere = self.elsewhere_ns.load(Ordering::Relaxed);
        decoder.set_row_ns(piece_time(busy, elsewhere), fill.info().batch.ids.len());
        if let Some((_, error)) = self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let substituted =
            std::mem::take(&mut *self.substituted.lock().unwrap_or_else(PoisonError::into_inner));
        decoder.finish(self.number, fill.into_lease(), substituted, busy, worker)
    }

    /// Decodes pieces until none is left; returns whether that finished the batch.
    fn decode_pieces(&self, decoder: &Decoder, worker: &Worker<'_>) -> Result<bool> {
        let fill = self.fill.read().unwrap_or_else(PoisonError::into_inner);
        let Some(fill) = &*fill else { return Ok(false) };
        let host_info = fill.info();
        let reader = Reader { decoder, input: decoder.input()?, host_info, substituted: &self.substituted };
        let (mut is_finished, mut pieces) = (false, None::<(u64, u64)>);
        while let Some(mut piece) = fill.claim(self.piece_rows) {
            let first = piece.range().start;
            let start = now();
            if !decoder.requests.is_after_failure(self.number) {
                match read_piece(&reader, piece.rows().copied_by(decoder.copy()), worker) {
                    Ok(elsewhere) => {
                        self.elsewhere_ns.fetch_add(elsewhere, Ordering::Relaxed);
                    }
                    Err(error) => {
                        decoder.requests.set_failed(self.number);
                        self.fail(first, error);
                        // Pieces are claimed in order: earlier rows are read or being read by another worker.
                        // Later rows are given up.
                        is_finished |= fill.give_up();
                    }
                }
            }
            let end = now();
            self.busy_ns.fetch_add(end - start, Ordering::Relaxed);
            worker.set_idle_since(end);
            pieces = Some((pieces.map_or(start, |(first, _)| first), end));
            is_finished |= piece.finish();
        }
        if let Some(times) = pieces {
            decoder.record(worker, "decode", &host_info.batch, times);
        }
        Ok(is_finished)
    }

    /// Keeps the error of the first failed row, so that the same data gives the same error.
    fn fail(&self, first: usize, error: Error) {
        let mut earliest = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if earliest.as_ref().is_none_or(|(row, _)| first < *row) {
            *earliest = Some((first, error));
        }
    }
}

/// Reads one piece of a batch, and publishes which sample is being read. Returns the nanoseconds for which
/// other processes have read.
fn read_piece(reader: &Reader<'_>, rows: Rows<'_>, worker: &Worker<'_>) -> Result<u64> {
    let info = &reader.host_info.batch;
    let Some(&first) = info.ids.get(rows.first()) else { return Ok(0) };
    let _span = enter!("decode", info);
    let watch = worker.begin(info.step, first);
    let context = Context::new(reader.decoder.batch_sampler.options().seed, info.epoch);
    let draws = &reader.host_info.draws()[rows.first()..][..rows.len()];
    let context = context.watched(watch).ended_by(reader.decoder.stop.clone());
    let mut context = context.with_scratch(worker.take_scratch()).with_draws(draws);
    let read = reader.read(rows, &mut context);
    worker.end();
    let elsewhere = context.elsewhere_ns();
    // A read that panicked may have left its scratch half written: the next one starts anew.
    if !read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {
        worker.keep_scratch(context.into_scratch());
    }
    read.map(|()| elsewhere)
}

/// The time by which batches are split, if the workers were `busy` nanoseconds.
///
/// A piece that another process or Python code reads is a hundred times as long, 10 ms: to hand it over takes
/// 0.1 ms of both sides together, a message, two wake-ups and a look at the generators, or the interpreter's
/// lock; and on a machine that is busy a wake-up takes milliseconds. The time of the read would make such
/// pieces ever shorter: the shorter they are, the more of it is waiting.
fn piece_time(busy: u64, elsewhere: u64) -> u64 {
    if elsewhere == 0 { busy } else { (elsewhere / 100).max(1) }
}

/// The number of workers for a batch that takes one of them `time` and has `bytes` bytes. `unused` counts the
/// workers that have nothing else to do.
fn workers_for((time, bytes): (Duration, usize), unused: impl FnOnce() -> usize, all: usize) -> usize {
    match time {
        _ if time <= PIECE => 1,
        _ if time < LONG && bytes <= *CACHED.end() => 1 + unused(),
        _ => all,
    }
}

/// Rows per piece if a row takes `row_ns` and there are `workers`.
pub fn piece_rows(rows: usize, row_ns: u64, workers: usize) -> usize {
    if row_ns == 0 {
        // No time is known before the first batch.
        return rows.div_ceil(4 * workers).max(1);
    }
    let batch = Duration::from_nanos(row_ns.saturating_mul(rows as u64));
    let piece = if batch > PIECE { (batch / workers as u32).clamp(SHORT_PIECE, PIECE) } else { PIECE };
    (piece.as_nanos() as u64 / row_ns).clamp(1, rows.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::{Duration, piece_rows, piece_time, workers_for};

    #[test]
    fn pieces_that_another_process_reads_are_a_hundred_times_as_long_and_do_not_depend_on_the_wait() {
        let rows = |busy, elsewhere| piece_rows(128, piece_time(busy, elsewhere) / 128, 1);
        assert_eq!([rows(128 * 100_000, 0), rows(128 * 100_000, 128 * 100_000)], [1, 100]);
        assert_eq!(rows(128 * 10_000_000, 128 * 100_000), 100, "most of it was waiting");
    }

    #[test]
    fn a_batch_that_a_cache_holds_is_split_for_unused_workers_and_a_long_or_large_one_for_all() {
        for (us, kib, unused, workers) in [
            (100, 200, 3, 1),
            (100, 3000, 3, 1),
            (101, 200, 3, 4),
            (999, 1024, 0, 1),
            (999, 1025, 0, 12),
            (1000, 200, 0, 12),
        ] {
            let batch = (Duration::from_micros(us), kib << 10);
            assert_eq!(workers_for(batch, || unused, 12), workers, "{us} us, {kib} KiB, {unused} unused");
        }
    }

    #[test]
    fn a_piece_is_neither_too_long_nor_too_short() {
        // 4096 rows of 200 ns are 820 us.
        for (workers, rows) in [(1, 500), (2, 500), (10, 409), (16, 256), (64, 125)] {
            assert_eq!(piece_rows(4096, 200, workers), rows, "{workers} workers");
        }
        // A batch of 100 us or less is not split, a longer one is.
        assert_eq!([piece_rows(500, 200, 16), piece_rows(501, 200, 16)], [500, 125]);
        let odd = [piece_rows(0, 200, 16), piece_rows(3, u64::MAX, 16), piece_rows(8, 1 << 40, 1)];
        assert_eq!(odd, [1; 3]);
        assert_eq!(piece_rows(4096, 0, 16), 64, "before the first batch");
    }
}
