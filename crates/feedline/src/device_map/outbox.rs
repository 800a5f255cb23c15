//! The delivery of finished batches to the consumer, in order, and the end of the stage.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_channel::Sender;
use feedline_core::Result;
use feedline_device::device_slots::SlotRing;

use crate::job::Delivery;
use crate::transfer::Reorder;

/// Delivers the batches of all lanes in order.
///
/// An error belongs to its batch: the batches before it are delivered first. The outcome of the transfer
/// thread comes last, after every batch that it sent.
pub(super) struct Outbox {
    state: Mutex<State>,
    /// The output slots. Closed when nothing more is delivered, so that no lane waits for one.
    slots: Arc<SlotRing>,
    /// The outcome of the transfer thread.
    upstream: Arc<OnceLock<Result<()>>>,
    /// Keeps the first cause for the consumer, which reads it when its channel is closed.
    outcome: Box<dyn Fn(Result<()>) + Send + Sync>,
}

struct State {
    reorder: Reorder<Result<Option<Delivery>>>,
    /// `None` once nothing more is delivered.
    consumer: Option<Sender<Delivery>>,
}

impl Outbox {
    /// Delivers batches in the slots of `slots` to `consumer`.
    pub(super) fn new(
        consumer: Sender<Delivery>,
        slots: Arc<SlotRing>,
        upstream: Arc<OnceLock<Result<()>>>,
        outcome: impl Fn(Result<()>) + Send + Sync + 'static,
    ) -> Self {
        let state = State { reorder: Reorder::new(slots.len()), consumer: Some(consumer) };
        Self { state: Mutex::new(state), slots, upstream, outcome: Box::new(outcome) }
    }

    /// Delivers item `number` after those before it; `Ok(None)` if there is nothing to deliver. Blocks while
    /// the consumer's channel is full. Returns false if nothing more is delivered: after an error, or when
    /// the consumer is gone.
    pub(super) fn put(&self, number: u64, item: Result<Option<Delivery>>) -> bool {
        let mut state = self.state();
        state.reorder.put(number, item);
        while let Some(next) = state.reorder.take() {
            let Some(consumer) = &state.consumer else { break };
            let is_open = match next {
                Ok(None) => true,
                Ok(Some(delivery)) => consumer.send(delivery).is_ok(),
                Err(error) => {
                    (self.outcome)(Err(error));
                    false
                }
            };
            if !is_open {
                self.close(&mut state);
            }
        }
        state.consumer.is_some()
    }

    /// Ends the delivery with an error that belongs to no batch.
    pub(super) fn fail(&self, error: feedline_core::Error) {
        (self.outcome)(Err(error));
        self.close(&mut self.state());
    }

    fn close(&self, state: &mut State) {
        state.consumer = None;
        self.slots.close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // This comes before the sender is dropped, which closes the channel.
        if let Some(Err(error)) = self.upstream.get() {
            (self.outcome)(Err(error.clone()));
        }
    }
}
