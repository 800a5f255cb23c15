//! A batch on its way to the device: it says which samples it holds, and opens to a stream that waits for it.

use std::sync::Arc;

use feedline_core::{BatchInfo, Layout, Result, Spec, Substituted};
use feedline_device::Stream;
use feedline_device::slot::Loaded;

use super::holder::Holder;
use crate::Ready;

/// A batch whose copy to the device is queued. Dropped unread, it releases its slot.
///
/// Its data cannot be reached from here: [`wait_on`](Self::wait_on) is the only way.
#[must_use = "a batch that is dropped unread was decoded and copied for nothing"]
pub struct Batch {
    pub(crate) loaded: Loaded,
    pub(crate) layout: Arc<Layout>,
    holder: Holder,
}

impl Batch {
    pub(crate) fn new(mut loaded: Loaded, layout: Arc<Layout>, holder: Holder) -> Self {
        loaded.deliver();
        Self { loaded, layout, holder }
    }

    /// Makes `stream` wait, on the device, until the batch has arrived, and opens the batch to it.
    ///
    /// The host does not block. Dropping the result tells the pipeline that the stream's work so far was the last to
    /// read the batch.
    ///
    /// # Errors
    /// `Config` for another device's stream; a device failure.
    pub fn wait_on(self, stream: &Stream) -> Result<Ready> {
        self.holder.touch();
        let step = self.step();
        let place =
            |error: feedline_core::Error| error.at_stage(feedline_core::Stage::Compute).at_batch(step);
        let reader = self.loaded.wait_on(stream).map_err(place)?;
        Ok(Ready::new(reader, self.layout, self.holder))
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        &self.info().ids
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
        self.info().epoch
    }

    /// The step within the epoch.
    pub fn step(&self) -> u64 {
        self.info().step
    }

    /// Valid rows, the first ones; those behind them repeat samples of the epoch, to pad the last batch.
    pub fn valid_rows(&self) -> usize {
        self.info().valid
    }

    /// Rows whose sample could not be read, in order.
    pub fn substituted(&self) -> &[Substituted] {
        &self.info().substituted
    }

    /// What a sample is.
    pub fn spec(&self) -> &Spec {
        self.layout.spec()
    }

    pub(crate) fn info(&self) -> &BatchInfo {
        self.loaded.info()
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
