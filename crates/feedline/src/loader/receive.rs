//! The consumer's side: waits for the next batch, and counts it.

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slot::Loaded;

use super::Loader;
use crate::Batch;
use crate::decode::Delivery;
use crate::epoch::TryNext;
use crate::spans::enter;

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
    /// `SlotsHeld`, only without a limit; the first cause once the transfer thread has ended.
    fn next_delivery(&self, limit: Option<Duration>) -> Result<Option<Delivery<Loaded>>> {
        loop {
            // A thread that holds every slot would wait for itself; if the call has no limit, `held_timeout`
            // applies.
            let held_timeout = self.slots.are_all_held_here().then_some(self.held_timeout);
            let received = match limit.or(held_timeout) {
                Some(limit) => self.loaded.recv_timeout(limit),
                None => self.loaded.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(item) => return Ok(Some(item)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.running.cause()),
                Err(RecvTimeoutError::Timeout) if limit.is_some() => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.slots.are_all_held_here() => return Err(self.held()),
                // Another thread holds or has released some of the slots: wait again.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Fails if batches hold every slot: those of the calling thread, or of any if `on_any_thread`.
    ///
    /// # Errors
    /// `SlotsHeld`.
    pub(crate) fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        let are_held = match on_any_thread {
            true => self.slots.delivered() == self.slots.len(),
            false => self.slots.are_all_held_here(),
        };
        if are_held { Err(self.held()) } else { Ok(()) }
    }

    fn held(&self) -> Error {
        let why = format!(
            "all {} device slots have been held for {:.1} s by batches that were not dropped: drop one \
             before the next, or raise the depth; if other threads hold them, raise held_timeout",
            self.slots.len(),
            self.held_timeout.as_secs_f64()
        );
        Error::new(ErrorKind::SlotsHeld, why)
    }
}
