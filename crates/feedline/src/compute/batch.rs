//! A batch whose copy to the device is queued: it says which samples it holds, and opens to a stream.

use std::sync::Arc;

use feedline_core::{BatchInfo, Layout, Result, Spec, Substituted};
use feedline_device::Stream;
use feedline_device::slot::Loaded;

use crate::Ready;

/// A batch whose copy to the device is queued. Dropping it releases its slot.
///
/// [`wait_on`](Self::wait_on) is the only way to its data.
#[must_use = "a batch that is dropped unread was decoded and copied for nothing"]
pub struct Batch {
    pub(crate) loaded: Loaded,
    pub(crate) layout: Arc<Layout>,
}

impl Batch {
    pub(crate) fn new(mut loaded: Loaded, layout: Arc<Layout>) -> Self {
        loaded.deliver();
        Self { loaded, layout }
    }

    /// Makes `stream` wait, on the device, until the batch has arrived, and opens the batch to the stream.
    ///
    /// The host does not block. Drop the result once all work that reads the batch is queued on the stream.
    ///
    /// # Errors
    /// `Config` for another device's stream; a device failure.
    #[track_caller]
    pub fn wait_on(self, stream: &Stream) -> Result<Ready> {
        let step = self.step();
        let place =
            |error: feedline_core::Error| error.at_stage(feedline_core::Stage::Compute).at_batch(step);
        let reader = self.loaded.wait_on(stream).map_err(place)?;
        Ok(Ready::new(reader, self.layout))
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        &self.info().ids
    }

    /// Number of rows: the batch size, or less in a short last batch.
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// Whether there are no rows; happens only on a rank without a part of the last batch.
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

    /// Number of valid rows, at the front. The rows after them repeat samples of the epoch to pad the
    /// last batch.
    pub fn valid_rows(&self) -> usize {
        self.info().valid
    }

    /// Rows whose sample could not be read, with their substitutes, in row order.
    pub fn substituted(&self) -> &[Substituted] {
        &self.info().substituted
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &Spec {
        self.layout.spec()
    }

    pub(crate) fn info(&self) -> &BatchInfo {
        self.loaded.info()
    }

    /// The index of the device slot that holds the batch. Slots have fixed addresses, so a step
    /// captured once per slot can be replayed.
    #[doc(hidden)] // `Ready::slot` is where it is needed.
    pub fn slot(&self) -> usize {
        self.loaded.index()
    }

    /// Whether the copy has finished; never blocks. There is no need to ask before
    /// [`wait_on`](Self::wait_on).
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
