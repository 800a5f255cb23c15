//! A batch open to one stream: typed views of its fields, until it is dropped.

use std::sync::Arc;

use feedline_core::{BatchInfo, Element, Error, ErrorKind, Layout, Result, Spec, Substituted};
use feedline_device::slot::Reader;
use feedline_device::{Stream, View};

use super::holder::Holder;

/// A batch that a stream waits for: its fields can be read on that stream.
///
/// Dropped, it records `consumed` on the stream: work given to the stream before the drop may read the batch, later
/// work may not, and the borrow of the views sees to it. The slot is overwritten after all readers of the batch.
///
/// `mem::forget` costs the slot, for good; nothing is ever aliased.
#[must_use = "dropping it at once says that nothing reads the batch"]
pub struct Ready {
    pub(crate) reader: Reader,
    layout: Arc<Layout>,
    holder: Holder,
}

impl Ready {
    pub(crate) fn new(reader: Reader, layout: Arc<Layout>, holder: Holder) -> Self {
        Self { reader, layout, holder }
    }

    /// The field called `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name the spec does not have, or a field of another type.
    pub fn field<T: Element>(&self, name: &str) -> Result<View<'_, T>> {
        let index = self.layout.spec().index_of(name)?;
        self.field_at(index)
    }

    /// The field number `index` of all rows, in the order of the spec; what a hot loop uses.
    ///
    /// # Errors
    /// `Config` for an index the spec does not have, or a field of another type.
    pub fn field_at<T: Element>(&self, index: usize) -> Result<View<'_, T>> {
        let layout = &self.layout;
        let Some(field) = layout.spec().fields().get(index) else {
            let why = format!("no field {index}: the spec has {}", layout.spec().fields().len());
            return Err(Error::new(ErrorKind::Config, why));
        };
        if field.dtype() != T::DTYPE {
            let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.reader.view(layout.offset(index), field.elements() * self.len())
    }

    /// Opens the batch to one more stream; the slot is overwritten only after all its readers.
    ///
    /// # Errors
    /// `Config` for another device's stream, for too many readers, and within a recorded step, whose replay would not open it
    /// again; a device failure.
    pub fn also_on(&self, stream: &Stream) -> Result<Ready> {
        let reader = self.reader.also_on(stream)?;
        Ok(Ready { reader, layout: self.layout.clone(), holder: self.holder.clone() })
    }

    /// The stream that reads.
    pub fn stream(&self) -> &Stream {
        self.reader.stream()
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        &self.info().ids
    }

    /// Rows: the batch size, or less in a short last batch.
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// Whether there are no rows.
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

    fn info(&self) -> &BatchInfo {
        self.reader.info()
    }

    /// Which of the fixed device slots the batch is in.
    pub fn slot(&self) -> usize {
        self.reader.index()
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ready(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
