//! What the transfer thread delivers, and how long the consumer waits for it.

use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, never};
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slot::SlotRing;

use crate::compute::{CrossThread, Holder};
use crate::transfer::Delivery;

/// The consumer's end of the pipeline.
pub(crate) struct Deliveries {
    loaded: Receiver<Delivery>,
    slots: SlotRing,
    /// How long a thread that holds every slot waits for another one.
    held_limit: Duration,
    /// The thread that took the last batch.
    taken_on: Option<ThreadId>,
    cross_thread: CrossThread,
}

impl Deliveries {
    pub(crate) fn new(loaded: Receiver<Delivery>, slots: SlotRing, held_limit: Duration) -> Self {
        Self { loaded, slots, held_limit, taken_on: None, cross_thread: CrossThread::default() }
    }

    /// Notes which thread takes the batches; a part of each of them.
    pub(crate) fn holder(&mut self) -> Holder {
        let this = std::thread::current().id();
        if self.taken_on.replace(this).is_some_and(|before| before != this) {
            self.cross_thread.note();
        }
        Holder::new(this, self.cross_thread.clone())
    }

    /// What comes next of any request; `None` when `limit` has passed.
    ///
    /// # Errors
    /// `SlotsHeld`, without a limit only; `cause` once the transfer thread has ended.
    pub(crate) fn receive(
        &self,
        limit: Option<Duration>,
        cause: impl FnOnce() -> Error,
    ) -> Result<Option<Delivery>> {
        loop {
            // A thread that holds every slot waits for itself: without a limit of its own it gets this one.
            let held_limit = self.holds_all_slots().then_some(self.held_limit);
            let received = match limit.or(held_limit) {
                Some(limit) => self.loaded.recv_timeout(limit),
                None => self.loaded.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(item) => return Ok(Some(item)),
                Err(RecvTimeoutError::Disconnected) => return Err(cause()),
                Err(RecvTimeoutError::Timeout) if limit.is_some() => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.holds_all_slots() => return Err(self.held()),
                // Another thread has shown that it holds some of them, or has dropped one.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whether the calling thread holds every slot, as far as can be known.
    fn holds_all_slots(&self) -> bool {
        self.slots.delivered() == self.slots.len() && !self.cross_thread.is_noted()
    }

    fn held(&self) -> Error {
        let why = format!(
            "all {} device slots have been held for {:.1} s by batches that were not dropped: drop one \
             before the next, or raise the depth; where other threads hold them, raise held_limit",
            self.slots.len(),
            self.held_limit.as_secs_f64()
        );
        Error::new(ErrorKind::SlotsHeld, why)
    }

    /// Receives no more: the transfer thread's sends fail instead of waiting.
    pub(crate) fn close(&mut self) {
        self.loaded = never();
    }

    /// In a forked child: leaves the channel as it is, because a lock that its drop takes may be locked for
    /// ever.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.loaded, never()));
    }
}
