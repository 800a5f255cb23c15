//! A batch on its way to the device: it says which samples it holds, and opens to a stream that waits for it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use feedline_core::{Layout, Replaced, Result, Ticket};
use feedline_device::Stream;
use feedline_device::slot::Loaded;

use crate::Ready;

/// A batch whose copy to the device is queued. Dropped unread, it sends its slot home.
///
/// Its data cannot be reached from here: [`wait_on`](Self::wait_on) is the only way.
#[must_use = "a batch that is dropped unread was decoded and copied for nothing"]
pub struct Batch {
    pub(crate) loaded: Loaded,
    pub(crate) hold: Hold,
}

/// The ticket of a batch, and what goes with it; the last holder sends the ticket home.
pub(crate) struct Hold {
    /// Taken only by the drop.
    ticket: Option<Arc<Ticket>>,
    pub(crate) layout: Arc<Layout>,
    tickets: Sender<Arc<Ticket>>,
}

/// What a hold shows once its ticket is gone, which nobody sees.
static NO_TICKET: Ticket =
    Ticket { run: 0, epoch: 0, step: 0, ids: Vec::new(), due: 0, reached: None, replaced: Vec::new() };

impl Hold {
    pub(crate) fn ticket(&self) -> &Ticket {
        self.ticket.as_deref().unwrap_or(&NO_TICKET)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self { ticket: self.ticket.clone(), layout: self.layout.clone(), tickets: self.tickets.clone() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(mut ticket) = self.ticket.take() else { return };
        // Two last holders on two threads may both see the other one: then the ticket is freed, and a new one made.
        if Arc::get_mut(&mut ticket).is_some() {
            let _ = self.tickets.try_send(ticket);
        }
    }
}

impl Batch {
    /// A batch from its parts; `tickets` takes the ticket back when the batch is done.
    pub fn new(
        ticket: Arc<Ticket>,
        mut loaded: Loaded,
        layout: Arc<Layout>,
        tickets: Sender<Arc<Ticket>>,
    ) -> Self {
        loaded.deliver();
        Self { loaded, hold: Hold { ticket: Some(ticket), layout, tickets } }
    }

    /// Makes `stream` wait, on the device, until the batch has arrived, and opens the batch to it.
    ///
    /// The host does not block. Dropping the result tells the pipeline that the stream's work so far was the last to
    /// read the batch.
    ///
    /// # Errors
    /// `Config` for another device's stream; a device failure.
    pub fn wait_on(self, stream: &Stream) -> Result<Ready> {
        let step = self.step();
        let place =
            |error: feedline_core::Error| error.at_stage(feedline_core::Stage::Compute).at_batch(step);
        let reader = self.loaded.wait_on(stream).map_err(place)?;
        Ok(Ready::new(reader, self.hold))
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        &self.hold.ticket().ids
    }

    /// Rows: the batch size, or less in a short last batch.
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// Whether there are no rows; only a rank without a part of the last batch sees that.
    pub fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.hold.ticket().epoch
    }

    /// The step within the epoch.
    pub fn step(&self) -> u64 {
        self.hold.ticket().step
    }

    /// Rows that are due: those behind repeat samples of the epoch, to fill a last batch.
    pub fn due(&self) -> usize {
        self.hold.ticket().due
    }

    /// Rows whose sample could not be read, in order.
    pub fn replaced(&self) -> &[Replaced] {
        &self.hold.ticket().replaced
    }

    /// Which of the fixed device slots the batch is in: a step captured once for each slot can be replayed.
    pub fn slot(&self) -> usize {
        self.loaded.index()
    }

    /// Whether the copy has ended; never blocks, and is not needed before [`wait_on`](Self::wait_on).
    ///
    /// # Errors
    /// A device failure.
    pub fn arrived(&self) -> Result<bool> {
        self.loaded.arrived()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
