//! The threads of a batch filler: they take whole batches, let the filler write them, and check the result.
//!
//! The filler borrows the slot's bytes for one call, so nothing that arrives later can write into them. A
//! batch that it could not fill goes back to the queue, for workers only.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use feedline_core::{BatchProof, Error, ErrorKind, Result, RowError, Rows, catch_panic, timeline::now};
use feedline_device::slots::Monitor;

use super::decoder::Decoder;
use super::filler::{BatchFiller, DataDescription, Fill, FillCounts, FillOutcome, FillRequest};
use super::input::Input;
use super::pool::WorkerPool;
use super::worker::{Activity, Worker};
use crate::job::{Delivery, HostInfo, Job};
use crate::record::ContentHash;

/// The max time between two checks whether the loader has ended.
const LOOK: Duration = Duration::from_millis(100);

/// The batch filler of a loader, and what its threads share.
pub(crate) struct Filling {
    filler: Arc<dyn BatchFiller>,
    /// Batches that are filled at a time.
    lanes: usize,
    fingerprint: u64,
    samples: u64,
    counts: Arc<FillCounts>,
    /// Whether the loader has ended. The threads wait here for batches.
    closed: Monitor<bool>,
}

impl Filling {
    pub(crate) fn new(
        (filler, lanes): (Arc<dyn BatchFiller>, usize),
        fingerprint: u64,
        samples: u64,
    ) -> Self {
        Self { filler, lanes, fingerprint, samples, counts: Arc::default(), closed: Monitor::new(false) }
    }

    /// The counters for the report.
    pub(crate) fn counts(&self) -> &Arc<FillCounts> {
        &self.counts
    }

    /// A batch was queued.
    pub(super) fn wake(&self) {
        self.closed.add(1, |_| ((), usize::MAX));
    }

    /// Ends the threads, once the filler has returned.
    pub(crate) fn close(&self) {
        self.closed.change(|closed| *closed = true);
    }

    /// The next batch to fill, and the room that the filler has for it; `None` once the loader has ended.
    ///
    /// The room is reserved after a batch was queued and before it is taken: a filler that several loaders
    /// share keeps no room for idle ones, and no batch waits for room while workers are idle.
    fn next(&self, pool: &WorkerPool, decoder: &Arc<Decoder>) -> Option<(Reserved<'_>, Job)> {
        loop {
            let is_closed = self
                .closed
                .wait(Some(LOOK), |closed| (*closed || pool.has_queued(decoder)).then_some(*closed));
            match is_closed {
                Some(true) => return None,
                None => continue,
                Some(false) => {}
            }
            match catch_panic("the filler panicked", || self.filler.reserve(LOOK)) {
                Ok(Some(fill)) => {
                    let reserved = Reserved(Some(fill));
                    if let Some(batch) = pool.take(decoder) {
                        return Some((reserved, batch));
                    }
                }
                Ok(None) => {}
                // The filler would panic again at once, so wait a moment.
                Err(_) => drop(self.closed.wait(Some(LOOK), |closed| closed.then_some(()))),
            }
        }
    }
}

/// The room that a filler has reserved for a batch. Dropping it unused runs user code; a panic there does not
/// end the thread.
struct Reserved<'a>(Option<Fill<'a>>);

impl Reserved<'_> {
    /// Calls the filler with `rows`.
    fn fill(mut self, request: &FillRequest<'_>, rows: &mut Rows<'_>) -> Result<FillOutcome> {
        let Some(fill) = self.0.take() else { return Err(Error::new(ErrorKind::Unavailable, "no filler")) };
        let mut outcome = None;
        let filled = catch_panic("the filler panicked", || {
            rows.read_by(|rows| {
                outcome = Some(fill(request, rows).map_err(|error| (0, error))?);
                Ok(())
            })
        })?;
        let failed =
            |(_, error): RowError| Error::new(ErrorKind::Unavailable, "not filled").with_source(error);
        filled.map_err(failed)?;
        outcome.ok_or_else(|| Error::new(ErrorKind::Unavailable, "not filled"))
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(fill) = self.0.take() {
            let _ = catch_panic("the filler panicked", || drop(fill));
        }
    }
}

/// Starts the threads `fl-fill-N` of `decoder`, if it has a filler.
///
/// # Errors
/// `Config` if the system refuses a thread.
pub(crate) fn start(decoder: &Arc<Decoder>, pool: &WorkerPool) -> Result<Vec<JoinHandle<()>>> {
    let Some(filling) = &decoder.filling else { return Ok(Vec::new()) };
    let spawn = |lane: usize| {
        let (decoder, pool) = (decoder.clone(), pool.clone());
        std::thread::Builder::new().name(format!("fl-fill-{lane}")).spawn(move || run(decoder, pool, lane))
    };
    let threads = (0..filling.lanes).map(spawn).collect::<std::io::Result<_>>();
    threads.map_err(|error| {
        let why = "cannot start the threads of the filler: let it fill fewer batches at a time";
        Error::new(ErrorKind::Config, why).with_source(error)
    })
}

fn run(decoder: Arc<Decoder>, pool: WorkerPool, lane: usize) {
    let activity = Activity::idle();
    // Workers and fillers have numbers of their own in a trace.
    let worker = Worker::new(&activity, pool.workers() + lane);
    let Some(filling) = &decoder.filling else { return };
    while let Some((reserved, batch)) = filling.next(&pool, &decoder) {
        if let Some(batch) = fill((reserved, batch), filling, &decoder, &pool, &worker) {
            pool.give_back(&decoder, batch);
        }
        decoder.requests.wake_for_outcomes(false);
    }
    // The pool is dropped before the decoder: once the decoder is gone, the loader joins the threads of its
    // pool.
    drop(pool);
}

/// Lets the filler write `batch`, and sends it on; returns it if the workers have to decode it.
fn fill(
    (reserved, batch): (Reserved<'_>, Job),
    filling: &Filling,
    decoder: &Arc<Decoder>,
    pool: &WorkerPool,
    worker: &Worker<'_>,
) -> Option<Job> {
    if !batch.is_wanted(&decoder.requests) {
        batch.give_up(decoder);
        return None;
    }
    let mut batch = with_samples(batch, decoder, worker)?;
    let start = now();
    let filled = write((reserved, &mut batch), filling, decoder, pool);
    let took = now() - start;
    let counts = &filling.counts;
    let outcome = match filled {
        Err(error) => {
            // The error is of a user's type, so its drop may panic.
            let _ = catch_panic("the filler panicked", || drop(error));
            counts.returned.fetch_add(1, Relaxed);
            return Some(batch);
        }
        Ok(outcome) if !is_right(&mut batch, &outcome, decoder) => {
            counts.rejected.fetch_add(1, Relaxed);
            return Some(batch);
        }
        Ok(outcome) => outcome,
    };
    counts.filled(outcome.servers, took, outcome.network);
    decoder.hand_in(batch.timeline.number, || finish(batch, start, decoder, worker));
    None
}

/// The batch with its ids and, for a source, its records; `None` if something else was delivered instead.
fn with_samples(batch: Job, decoder: &Decoder, worker: &Worker<'_>) -> Option<Job> {
    let (number, mut ready) = (batch.timeline.number, None);
    decoder.hand_in(number, || {
        let (read, instead) = match decoder.input()? {
            Input::Source(source) => batch.with_records(&**source, decoder, worker)?,
            Input::Dataset(_) | Input::ZeroCopy(..) => {
                let mut batch = batch;
                batch.sample(&decoder.batch_sampler)?;
                batch.draw(&decoder.batch_sampler);
                (Some(batch), None)
            }
        };
        ready = read;
        Ok(instead)
    });
    ready
}

/// Calls the filler with the rows of `batch`.
fn write(
    (reserved, batch): (Reserved<'_>, &mut Job),
    filling: &Filling,
    decoder: &Decoder,
    pool: &WorkerPool,
) -> Result<FillOutcome> {
    let (bytes, host_info) = batch.lease.parts_mut();
    let (info, data) = (&host_info.batch, filling.describe(decoder));
    let mut rows = Rows::new(&decoder.layout, bytes, info.ids.len());
    rows.poison();
    let request = FillRequest {
        data,
        info,
        records: data.is_source.then(|| &host_info.records.bytes[..info.ids.len()]),
        draws: host_info.draws(),
        requests: &decoder.requests,
        has_idle_workers: &|| pool.has_idle_workers(),
        counts: &filling.counts,
    };
    reserved.fill(&request, &mut rows)
}

/// Whether `outcome` describes the rows of `batch`, and has its ids.
fn is_right(batch: &mut Job, outcome: &FillOutcome, decoder: &Decoder) -> bool {
    let (bytes, HostInfo { batch: info, .. }) = batch.lease.parts_mut();
    let content = ContentHash::EVERY.of_slab(&decoder.layout, bytes, info.ids.len());
    outcome.order == BatchProof::of(info.epoch, &info.ids).order() && outcome.content == content
}

/// Finishes `batch` as a worker does.
fn finish(batch: Job, start: u64, decoder: &Decoder, worker: &Worker<'_>) -> Result<Option<Delivery>> {
    let Job { mut lease, .. } = batch;
    let info = &mut lease.info_mut().batch;
    let substituted = std::mem::take(&mut info.substituted);
    worker.begin_batch(start, &mut info.timeline);
    worker.set_idle_since(now());
    decoder.record(worker, "fill", &lease.info().batch, (start, now()));
    // No worker spent time on this batch.
    decoder.finish(lease, substituted, 0, worker)
}

impl Filling {
    fn describe<'a>(&self, decoder: &'a Decoder) -> DataDescription<'a> {
        DataDescription {
            spec: decoder.layout.spec(),
            fingerprint: self.fingerprint,
            samples: self.samples,
            seed: decoder.batch_sampler.options().seed,
            is_source: matches!(decoder.input, Some(Input::Source(_))),
        }
    }
}
