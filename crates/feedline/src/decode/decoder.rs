//! The state of one loader that its workers share, and the last steps of decoding a batch.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use feedline_core::{
    BadSamples, BatchInfo, BatchSampler, Dataset, Error, ErrorKind, HostRows, Layout, Result, Rows, Stage,
    Substituted, catch_panic, timeline::now,
};
use feedline_device::Pinned;
use feedline_device::slots::{FillLease, WAKE_UP, copy_rows, stream_rows};
use feedline_device::zero_copy::Rest;

use super::fill::Filling;
use super::input::Input;
use super::map_batch::MapBatch;
use super::prefetch::Prefetch;
use super::split::Split;
use super::worker::Worker;
use crate::job::{Delivery, HostInfo, QUIET, Requests};
use crate::record::ContentHash;
use crate::trace::{BatchId, LoaderTrace};

/// Up to this many workers copy long rows by non-temporal stores; if there are more, all use plain stores.
///
/// Records of 150 KB of a mapped file to an H200 by 4, 8 and 15 workers: 31, 44 and 45 GB/s by
/// non-temporal stores, 25, 43 and 53 by plain stores. 2026-11-21. Bench: `raw`.
const STREAMING_WORKERS: usize = 8;

/// The state of a loader that its workers share.
pub(crate) struct Decoder {
    /// `None` once it is dropped.
    pub(crate) input: Option<Input<dyn Dataset>>,
    pub(crate) batch_sampler: Arc<BatchSampler>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) bad_samples: BadSamples,
    pub(crate) map_batch: Option<MapBatch>,
    /// Hashes the rows of batches, for a run that is recorded.
    pub(crate) content: Option<ContentHash>,
    /// The fields of which the host keeps the rows, and their names.
    pub(crate) host_fields: Vec<(usize, Arc<str>)>,
    /// Whether the data set makes a batch of all of its samples.
    pub(crate) reads_whole: bool,
    /// For a set that is partly on the device: which samples workers read, and their places in host slots.
    pub(crate) rest: Option<Rest>,
    /// Number of workers that may take work.
    pub(crate) workers: Arc<AtomicUsize>,
    /// The requested batches, and the inbox that receives them.
    pub(crate) requests: Arc<Requests>,
    /// Set when the loader ends, to the first cause.
    pub(crate) stop: Arc<OnceLock<Error>>,
    /// Fills batches beside the workers.
    pub(crate) filling: Option<Filling>,
    pub(crate) trace: Option<LoaderTrace>,
    /// Nanoseconds per row in the last batch; 0 before the first.
    pub(crate) row_ns: AtomicU64,
    /// Samples that the data set prepares before their batch is read.
    pub(crate) prefetch: Prefetch,
    /// The split batches. One with no other owner is reused.
    pub(crate) splits: Mutex<Vec<Arc<Split>>>,
    /// Called with the outcome of dropping the data, once no worker needs it.
    pub(crate) on_end: Box<dyn Fn(Result<()>) + Send + Sync>,
}

impl Decoder {
    /// `worker` worked on the batch of `info` from `start` to `end`.
    pub(super) fn record(
        &self,
        worker: &Worker,
        what: &'static str,
        info: &BatchInfo,
        (start, end): (u64, u64),
    ) {
        if let Some(trace) = &self.trace {
            trace.worker(worker.index(), what, BatchId::of(info), (start, end));
        }
    }

    /// Does `work` on batch `number`, and hands in the outcome if `work` returns one.
    ///
    /// Each call of user code has a guard of its own, which names the sample. A panic that gets this far is a
    /// bug, and must not hang the loader.
    pub(super) fn hand_in(&self, number: u64, work: impl FnOnce() -> Result<Option<Delivery>>) {
        let outcome = catch_panic("a decode worker panicked", work).and_then(|result| result);
        if !matches!(outcome, Ok(None)) {
            self.requests.hand_in(number, outcome);
        }
    }

    pub(super) fn input(&self) -> Result<&Input<dyn Dataset>> {
        self.input.as_ref().ok_or_else(|| Error::new(ErrorKind::Stopped, "the data set is gone"))
    }

    /// The estimated time of one worker for a full batch, from the last batch; `Duration::MAX` before the
    /// first.
    pub(crate) fn batch_time(&self) -> Duration {
        match self.row_ns() {
            0 => Duration::MAX,
            ns => Duration::from_nanos(ns.saturating_mul(self.layout.capacity() as u64)),
        }
    }

    /// Whether decoding `queued` short batches takes the workers longer than a wake-up. This loader has at
    /// most one batch in each host slot.
    pub(super) fn is_busy_with(&self, queued: usize) -> bool {
        let queued = queued.min(self.requests.host_slots());
        let (time, queued) = (self.batch_time(), u32::try_from(queued).unwrap_or(u32::MAX));
        let workers = u32::try_from(self.workers()).unwrap_or(u32::MAX);
        time < QUIET && time.saturating_mul(queued) >= WAKE_UP.saturating_mul(workers)
    }

    /// The time of one worker for a row of the last batch, in nanoseconds; 0 before the first.
    pub(super) fn row_ns(&self) -> u64 {
        self.row_ns.load(Ordering::Relaxed)
    }

    /// Records that the rows of a batch took `busy` nanoseconds of the workers' time.
    pub(super) fn set_row_ns(&self, busy: u64, rows: usize) {
        self.row_ns.store((busy / rows.max(1) as u64).max(1), Ordering::Relaxed);
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// `rows`, for a read that copies long rows as suits the number of workers.
    pub(super) fn to_write<'a>(&self, rows: Rows<'a>) -> Rows<'a> {
        let streams = self.workers() <= STREAMING_WORKERS;
        rows.copied_by(if streams { stream_rows } else { copy_rows })
    }

    /// Shares `split` with other workers. Reuses the memory of a batch that nobody works on any more.
    pub(super) fn share(&self, split: Split) -> Arc<Split> {
        let mut splits = self.splits.lock().unwrap_or_else(PoisonError::into_inner);
        for place in splits.iter_mut() {
            if let Some(free) = Arc::get_mut(place) {
                *free = split;
                return place.clone();
            }
        }
        let split = Arc::new(split);
        splits.push(split.clone());
        split
    }

    /// Finishes a batch: stores the substitutes and the proof in its info, calls the hook of the user,
    /// brings ragged fields into their form, packs the rows for the device, and stores the `busy` nanoseconds
    /// of the workers.
    pub(super) fn finish(
        &self,
        mut lease: FillLease<Pinned, HostInfo>,
        substituted: Vec<Substituted>,
        busy: u64,
        worker: &Worker<'_>,
    ) -> Result<Option<Delivery>> {
        let info = &mut lease.info_mut().batch;
        info.substituted = substituted;
        info.substituted.sort_unstable_by_key(|substituted| substituted.row);
        for Substituted { row, substitute, .. } in &info.substituted {
            info.ids[*row] = *substitute;
        }
        let start = now();
        info.prove();
        // A batch that is no longer wanted may have unread rows, so the hook is not called.
        if let Some(map_batch) = self.map_batch.as_ref().filter(|_| self.requests.wants(info)) {
            let (bytes, info) = lease.parts_mut();
            map_batch.run(&self.batch_sampler, &self.layout, (bytes, info), worker)?;
        }
        if let Some(hash) = self.content_of(&lease) {
            let (bytes, HostInfo { batch: info, .. }) = lease.parts_mut();
            info.content = Some(hash.of_slab(&self.layout, bytes, info.ids.len()));
        }
        self.keep_rows(&mut lease);
        if self.layout.is_ragged() {
            self.finish_ragged(&mut lease)?;
        }
        if let Some(rest) = &self.rest {
            let (bytes, HostInfo { batch: info, .. }) = lease.parts_mut();
            rest.pack(&self.layout, &info.ids, bytes);
        }
        let timeline = &mut lease.info_mut().batch.timeline;
        timeline.decoded = now();
        timeline.decode_ns = busy + worker.take_prefetch() + (timeline.decoded - start);
        Ok(Some(Delivery::Filled(lease.ready())))
    }

    /// The hash of the rows of a batch, if its step is to be hashed.
    pub(super) fn content_of(&self, lease: &FillLease<Pinned, HostInfo>) -> Option<ContentHash> {
        let info = &lease.info().batch;
        self.content.filter(|hash| hash.is_due(self.batch_sampler.step_of(info.start) + info.step))
    }

    /// Copies the rows that the host keeps.
    fn keep_rows(&self, lease: &mut FillLease<Pinned, HostInfo>) {
        if self.host_fields.is_empty() {
            return;
        }
        let (slab, HostInfo { batch: info, .. }) = lease.parts_mut();
        if info.host_rows.is_empty() {
            let none =
                |field: &Arc<str>| HostRows { field: field.clone(), bytes: Vec::new(), ends: Vec::new() };
            info.host_rows.extend(self.host_fields.iter().map(|(_, name)| none(name)));
        }
        for (kept, &(field, _)) in info.host_rows.iter_mut().zip(&self.host_fields) {
            kept.bytes.clear();
            kept.ends.clear();
            let is_ragged = self.layout.ragged_place(field).is_some();
            let bytes = self.layout.spec().fields()[field].row_bytes();
            for row in 0..info.ids.len() {
                kept.bytes.extend_from_slice(match is_ragged {
                    true => self.layout.row_values(slab, field, row),
                    false => &slab[self.layout.offset(field) + row * bytes..][..bytes],
                });
                kept.ends.push(kept.bytes.len());
            }
        }
    }

    /// Pads or sums the ragged fields of a batch, as the spec requires.
    fn finish_ragged(&self, lease: &mut FillLease<Pinned, HostInfo>) -> Result<()> {
        let (bytes, HostInfo { batch: info, .. }) = lease.parts_mut();
        self.layout.finish(bytes, info.ids.len(), &mut info.extents).map_err(|(row, error)| {
            let error = error.at_stage(Stage::Decode).at_batch(info.step);
            info.ids.get(row).map_or(error.clone(), |&id| error.at_sample(id))
        })
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let data = (self.input.take(), self.map_batch.take(), self.filling.take());
        let dropped = catch_panic("the data set panicked when it was dropped", || drop(data));
        (self.on_end)(dropped);
    }
}
