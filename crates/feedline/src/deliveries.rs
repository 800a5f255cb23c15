//! The consumer's end of the channel from the transfer thread, and the limits of its waits.

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
    /// How long a thread that holds every slot waits for a free one.
    held_limit: Duration,
    /// The thread that took the last batch.
    taken_on: Option<ThreadId>,
    cross_thread: CrossThread,
}

impl Deliveries {
    pub(crate) fn new(loaded: Receiver<Delivery>, slots: SlotRing, held_limit: Duration) -> Self {
        Self { loaded, slots, held_limit, taken_on: None, cross_thread: CrossThread::default() }
    }

    /// The holder of the next batch. Notes which thread takes it.
    pub(crate) fn holder(&mut self) -> Holder {
        let this = std::thread::current().id();
        if self.taken_on.replace(this).is_some_and(|before| before != this) {
            self.cross_thread.note();
        }
        Holder::new(this, self.cross_thread.clone())
    }

    /// The next delivery, of any request; `None` once `limit` has passed.
    ///
    /// # Errors
    /// `SlotsHeld`, only without a limit; `cause` once the transfer thread has ended.
    pub(crate) fn receive(
        &self,
        limit: Option<Duration>,
        cause: impl FnOnce() -> Error,
    ) -> Result<Option<Delivery>> {
        loop {
            // A thread that holds every slot would wait for itself: without a limit it gets `held_limit`.
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
                // Another thread holds or has released some of them: wait again.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whether the calling thread holds every slot, as far as is known.
    fn holds_all_slots(&self) -> bool {
        self.slots.delivered() == self.slots.len() && !self.cross_thread.is_noted()
    }

    fn held(&self) -> Error {
        let why = format!(
            "all {} device slots have been held for {:.1} s by batches that were not dropped: drop one \
             before the next, or raise the depth; if other threads hold them, raise held_limit",
            self.slots.len(),
            self.held_limit.as_secs_f64()
        );
        Error::new(ErrorKind::SlotsHeld, why)
    }

    /// Closes the channel: the transfer thread's sends fail instead of blocking.
    pub(crate) fn close(&mut self) {
        self.loaded = never();
    }

    /// In a forked child: leaks the channel, because dropping it takes a lock that may stay locked for ever.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.loaded, never()));
    }
}
