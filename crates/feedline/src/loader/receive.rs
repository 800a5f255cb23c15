//! The consumer's side: waits for the next batch, and counts it.

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use feedline_core::{Error, ErrorKind, Result, named};
use feedline_device::slot::{Held, Loaded};

use super::Loader;
use crate::Batch;
use crate::epoch::TryNext;
use crate::job::Delivery;
use crate::spans::enter;

/// The factor by which slots may be held longer while another thread seems to work with a batch.
const OTHER_THREADS: u32 = 30;

impl Loader {
    /// The next batch of the current request. Blocks for at most `limit`.
    pub(crate) fn receive(&mut self, limit: Option<Duration>) -> Result<TryNext> {
        self.running.check_process()?;
        self.running.check_stopped()?;
        let _span = enter!("next");
        self.ledger.ask(self.slots.take_host_waits());
        let start = limit.map(|_| Instant::now());
        loop {
            let left = limit.zip(start).map(|(limit, start)| limit.saturating_sub(start.elapsed()));
            let delivery = match self.next_delivery(left) {
                Ok(Some(delivery)) => delivery,
                none_or_error => {
                    self.ledger.nothing();
                    return none_or_error.map(|_| TryNext::NotYet);
                }
            };
            let Some(at) = &mut self.current else { continue };
            match delivery {
                // Dropping the batches of an abandoned request releases their slots.
                Delivery::Batch(loaded) if loaded.info().request != at.number => {}
                Delivery::EpochEnd { request, .. } if request != at.number => {}
                Delivery::EpochEnd { source_position, .. } => {
                    *at = at.next_epoch();
                    self.progress.end_epoch(source_position);
                    self.ledger.nothing();
                    return Ok(TryNext::Over);
                }
                Delivery::Batch(loaded) => {
                    let batch = Batch::new(loaded, self.delivered.clone());
                    let (now, waited) = self.ledger.deliver(&batch, self.layout.used_bytes(batch.len()));
                    if let Some((tuner, workers)) = &mut self.tuning
                        && let Some(tuning) =
                            tuner.delivered(now, waited, &batch.timeline, || self.ledger.reporter().service())
                    {
                        workers.set(tuning.workers);
                        self.ledger.reporter().set_tuning(tuning);
                    }
                    debug_assert_eq!(
                        (batch.epoch(), batch.step()),
                        (at.epoch, at.step),
                        "batch out of order"
                    );
                    at.step += 1;
                    let is_last = match batch.source_position {
                        Some(source_position) => {
                            self.batch_sampler.steps(at.epoch, source_position.position) == 0
                        }
                        None => at.step == self.batch_sampler.steps(at.epoch, at.start),
                    };
                    if is_last {
                        *at = at.next_epoch();
                    }
                    self.progress.count(&batch, &self.batch_sampler, self.bad_samples)?;
                    return Ok(TryNext::Batch(batch));
                }
            }
        }
    }

    /// The next delivery, of any request; `None` once `limit` has passed.
    ///
    /// # Errors
    /// `SlotsHeld`, not with a `limit` of zero; the first cause once the transfer thread has ended.
    fn next_delivery(&mut self, limit: Option<Duration>) -> Result<Option<Delivery<Loaded>>> {
        let start = limit.map(|_| Instant::now());
        loop {
            // Only this thread takes batches, so slots that are held now stay held by the same batches.
            let held = self.slots.held();
            if held != self.held.0 {
                self.held = (held, Duration::ZERO);
            }
            let longest = match held {
                Held::Free => None,
                Held::Idle => Some(self.held_timeout),
                Held::InUse => Some(self.held_timeout.saturating_mul(OTHER_THREADS)),
            };
            // Checks again earlier: another thread may have begun to work with a batch, or finished.
            let look = longest.map(|longest| longest.saturating_sub(self.held.1).min(self.held_timeout / 4));
            let left = limit.zip(start).map(|(limit, start)| limit.saturating_sub(start.elapsed()));
            let wait = left.into_iter().chain(look).min();
            // A ready batch costs no wait, and a poll does not wait.
            let is_waiting = wait != Some(Duration::ZERO) && self.loaded.is_empty();
            if is_waiting {
                self.requests.set_waited_for(true);
            }
            let received = match wait {
                Some(wait) => self.loaded.recv_timeout(wait),
                None => self.loaded.recv().map_err(RecvTimeoutError::from),
            };
            if is_waiting {
                self.requests.set_waited_for(false);
            }
            match received {
                Ok(item) => {
                    self.held.1 = Duration::ZERO;
                    return Ok(Some(item));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.running.cause()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let wait = wait.unwrap_or_default();
            // Only the time of waits counts: between two calls the caller may release a batch.
            self.held.1 = self.held.1.saturating_add(wait);
            if longest.is_some_and(|longest| self.held.1 >= longest)
                && left != Some(Duration::ZERO)
                && self.slots.held() == held
            {
                return Err(self.slots_held());
            }
            if left.is_some_and(|left| left <= wait) {
                return Ok(None);
            }
        }
    }

    /// Fails if batches of the calling thread hold every slot; with `on_any_thread`, batches of any thread.
    ///
    /// # Errors
    /// `SlotsHeld`.
    pub(crate) fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        let held = self.slots.held();
        let are_held = held == Held::Idle || (on_any_thread && held == Held::InUse);
        if are_held { Err(self.slots_held()) } else { Ok(()) }
    }

    fn slots_held(&self) -> Error {
        let why = format!(
            "all {} device slots have been held for {:.1} s by batches that were not dropped: drop one \
             before the next, or raise the {}; if another thread drops them later, raise held_timeout",
            self.slots.len(),
            self.held.1.as_secs_f64(),
            named("depth", "prefetch")
        );
        Error::new(ErrorKind::SlotsHeld, why)
    }
}
