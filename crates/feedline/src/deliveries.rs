//! The consumer's end of the channel from the transfer thread, and the limits of its waits.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, never};
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slot::{Loaded, SlotRing};

use crate::decode::Delivery;

/// The consumer's end of the pipeline.
pub(crate) struct Deliveries {
    loaded: Receiver<Delivery<Loaded>>,
    slots: SlotRing,
    /// How long a thread that holds every slot waits for a free one.
    held_limit: Duration,
}

impl Deliveries {
    pub(crate) fn new(loaded: Receiver<Delivery<Loaded>>, slots: SlotRing, held_limit: Duration) -> Self {
        Self { loaded, slots, held_limit }
    }

    /// The next delivery, of any request; `None` once `limit` has passed.
    ///
    /// # Errors
    /// `SlotsHeld`, only without a limit; `cause` once the transfer thread has ended.
    pub(crate) fn receive(
        &self,
        limit: Option<Duration>,
        cause: impl FnOnce() -> Error,
    ) -> Result<Option<Delivery<Loaded>>> {
        loop {
            // A thread that holds every slot would wait for itself: without a limit it gets `held_limit`.
            let held_limit = self.slots.are_all_held_here().then_some(self.held_limit);
            let received = match limit.or(held_limit) {
                Some(limit) => self.loaded.recv_timeout(limit),
                None => self.loaded.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(item) => return Ok(Some(item)),
                Err(RecvTimeoutError::Disconnected) => return Err(cause()),
                Err(RecvTimeoutError::Timeout) if limit.is_some() => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.slots.are_all_held_here() => return Err(self.held()),
                // Another thread holds or has released some of them: wait again.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
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
