//! Samples that the data set prepares before their batch is read
//! ([`Storage::prefetch`](feedline_core::Storage::prefetch)).
//!
//! A worker calls the set for its own batch first. If another worker prepares the same samples, it continues
//! with those of later batches; it does the same after a batch until there is other work. The set reports
//! when it has no room. This code bounds the number of calls, because a faulty set may answer anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_core::sampler::custom::NO_SAMPLE;
use feedline_core::{Context, Dataset, Prefetched, catch_panic, timeline::now};

use super::decoder::Decoder;
use super::input::Input;
use super::worker::Worker;
use crate::job::Request;

/// Max ids of later batches that a worker checks while its own samples are pending. 256 ids take 10 us, so
/// this takes less time than most groups.
const WHILE_PENDING: usize = 16 << 10;

/// Max ids checked after a batch: few, because most steps are already prepared when a cache holds much of a
/// set.
const AFTER_BATCH: usize = 1 << 10;

/// The progress of a loader's prefetch.
#[derive(Default)]
pub(crate) struct Prefetch {
    /// Whether the set has nothing to prepare.
    is_off: AtomicBool,
    progress: Mutex<Progress>,
    /// The step whose ids were drawn last, and the ids: a step is checked many times while its samples are
    /// prepared, or while there is no room for them.
    drawn: Mutex<(Request, Vec<u64>)>,
}

/// The steps of an epoch from `unsure` to `next.step` are prepared. Those before `unsure` may not be, or
/// another worker may still be preparing them.
#[derive(Clone, Copy, Default)]
struct Progress {
    next: Request,
    unsure: u64,
    /// How often samples of `next` were prepared.
    calls: usize,
    /// The latest epoch with a batch that was begun.
    begun: u64,
}

impl Prefetch {
    /// Whether the set may have something to prepare.
    pub(super) fn is_on(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// Prepares the samples `ids` before `worker` reads them for `request`. If other workers are preparing
    /// them, this worker prepares samples of later batches meanwhile.
    pub(super) fn begin(
        &self,
        request: Request,
        ids: &[u64],
        (decoder, dataset): (&Decoder, &dyn Dataset),
        worker: &Worker<'_>,
    ) {
        if self.has_prepared(request) {
            return;
        }
        // Each call that prepares something prepares at least one sample, so this many calls are enough.
        for _ in 0..=ids.len() {
            match self.call(dataset, (request, ids), decoder, worker) {
                Prefetched::Prepared => {}
                Prefetched::Pending if self.go_on(decoder, worker, WHILE_PENDING) => {}
                _ => return,
            }
        }
    }

    /// After a batch: prepares some samples of a later batch of `decoder`; returns false if there is nothing
    /// to prepare now.
    pub(super) fn after_batch(&self, decoder: &Decoder, worker: &Worker<'_>) -> bool {
        self.go_on(decoder, worker, AFTER_BATCH)
    }

    /// Whether the samples of `request` are prepared. Later calls of [`go_on`](Self::go_on) begin with the
    /// next step.
    fn has_prepared(&self, request: Request) -> bool {
        let mut progress = self.progress();
        let Progress { next, unsure, begun, .. } = *progress;
        let at = |request: Request| (request.number, request.epoch, request.step);
        if at(request) >= at(next) {
            // Workers that begin the batches before this one may get here later.
            let next = Request { step: request.step + 1, ..request };
            *progress = Progress { next, unsure: next.step, calls: 0, begun: request.epoch };
            return false;
        }
        if (next.number, next.epoch) != (request.number, request.epoch) {
            // The next epoch may be in preparation before the last batches of this one begin.
            return false;
        }
        progress.begun = begun.max(request.epoch);
        request.step >= unsure
    }

    /// Prepares some samples of later batches of `decoder`; checks at most `max` samples.
    fn go_on(&self, decoder: &Decoder, worker: &Worker<'_>, max: usize) -> bool {
        let Ok(Input::Dataset(dataset)) = decoder.input() else { return false };
        let mut ids = worker.take_ids();
        let prepared = self.go_on_with(&mut ids, (decoder, dataset), worker, max);
        worker.keep_ids(ids);
        prepared
    }

    fn go_on_with(
        &self,
        ids: &mut Vec<u64>,
        (decoder, dataset): (&Decoder, &dyn Dataset),
        worker: &Worker<'_>,
        max: usize,
    ) -> bool {
        let mut seen = 0;
        while seen < max {
            let progress = *self.progress();
            let Progress { next, unsure, calls, begun } = progress;
            if !self.is_on() || decoder.requests.is_stale(next.number) {
                return false;
            }
            self.draw(next, decoder, ids);
            if ids.is_empty() {
                let later = next.next_epoch();
                let is_empty = decoder.batch_sampler.steps(later.epoch, later.start) == 0;
                if later.epoch >= later.end || later.epoch > begun.saturating_add(1) || is_empty {
                    return false;
                }
                self.advance(next, Progress { next: later, unsure: 0, calls: 0, begun });
                continue;
            }
            seen += ids.len();
            let mut later =
                Progress { next: Request { step: next.step + 1, ..next }, unsure, calls: 0, begun };
            match self.call(dataset, (next, ids), decoder, worker) {
                Prefetched::Never | Prefetched::Full => return false,
                // A call that prepares something prepares a sample.
                Prefetched::Prepared if calls < ids.len() => {
                    self.advance(next, Progress { calls: calls + 1, ..progress });
                    return true;
                }
                Prefetched::Ready | Prefetched::Prepared => {}
                Prefetched::Pending => later.unsure = later.next.step,
            }
            self.advance(next, later);
        }
        false
    }

    /// Replaces `ids` by the ids of the step of `request`.
    fn draw(&self, request: Request, decoder: &Decoder, ids: &mut Vec<u64>) {
        // Another worker that wants the same ids waits for them instead of drawing them too.
        let (of, known) = &mut *self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if *of != request {
            decoder.batch_sampler.batch(request.epoch, request.start, request.step, known);
            // A custom sampler gave no sample here. The batch fails when it is decoded.
            known.retain(|&id| id != NO_SAMPLE);
            *of = request;
        }
        ids.clone_from(known);
    }

    /// Advances from `next` to `later`, unless another worker has advanced already.
    fn advance(&self, next: Request, later: Progress) {
        let mut progress = self.progress();
        if progress.next == next {
            *progress = later;
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the data set once. After a panic it is not called again: the read of the samples reports the
    /// error.
    fn call(
        &self,
        dataset: &dyn Dataset,
        (request, ids): (Request, &[u64]),
        decoder: &Decoder,
        worker: &Worker<'_>,
    ) -> Prefetched {
        let start = now();
        let watch = worker.begin(request.step, ids.first().copied().unwrap_or_default());
        let context = Context::new(decoder.batch_sampler.options().seed, request.epoch).watched(watch);
        let outcome = worker.read(context, &[], |context| {
            catch_panic("the data set panicked in prefetch", || dataset.storage().prefetch(ids, context))
        });
        let outcome = outcome.unwrap_or(Prefetched::Never);
        if outcome == Prefetched::Never {
            self.is_off.store(true, Ordering::Relaxed);
        }
        worker.add_prefetch(now() - start);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_that_were_prepared_count_as_prepared() {
        let prefetch = Prefetch::default();
        let at = |number, epoch, step| Request { number, epoch, step, ..Request::default() };
        let has_prepared = |request| prefetch.has_prepared(request);
        let go_on_to = |step, unsure| {
            let progress = *prefetch.progress();
            let next = Request { step, ..progress.next };
            prefetch.advance(progress.next, Progress { next, unsure, calls: 0, ..progress });
        };
        // Two workers that begin steps 5 and 6 get here in reverse order.
        assert!(!has_prepared(at(1, 0, 6)) && !has_prepared(at(1, 0, 5)));
        go_on_to(20, 7);
        assert!([7, 8, 19].map(|step| has_prepared(at(1, 0, step))) == [true; 3]);
        assert!([4, 6].map(|step| has_prepared(at(1, 0, step))) == [false; 2]);
        // Another worker is still preparing step 19.
        go_on_to(20, 20);
        assert!(!has_prepared(at(1, 0, 19)));
        // The next epoch, then the last batches of the epoch before.
        assert!(!has_prepared(at(1, 1, 0)) && !has_prepared(at(1, 0, 21)));
        let Progress { next, begun, .. } = *prefetch.progress();
        assert_eq!((next, begun), (at(1, 1, 1), 1));
        // A new request begins at an earlier position, while a worker still serves the old one.
        assert!(!has_prepared(at(2, 0, 3)) && !has_prepared(at(1, 1, 5)));
        assert_eq!(prefetch.progress().next, at(2, 0, 4));
    }
}
