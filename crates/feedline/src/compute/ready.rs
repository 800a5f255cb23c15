//! A batch open to one stream: typed views of its fields, until it is dropped.

use std::sync::Arc;

use feedline_core::{BatchInfo, Element, Error, ErrorKind, Layout, Result, Spec, Substituted};
use feedline_device::slot::Reader;
use feedline_device::{Stream, View};

use super::holder::Holder;

/// A batch that is open to a stream: work on that stream can read its fields.
///
/// Dropping it records an event on the stream. Work queued before the drop may read the batch, later
/// work may not; the lifetime of the views enforces it. The slot is overwritten only after all readers
/// of the batch.
///
/// `mem::forget` loses the slot for good, but never lets it be overwritten while it is read.
#[must_use = "dropping it at once tells the loader that nothing reads the batch"]
pub struct Ready {
    pub(crate) reader: Reader,
    layout: Arc<Layout>,
    holder: Holder,
}

impl Ready {
    pub(crate) fn new(reader: Reader, layout: Arc<Layout>, holder: Holder) -> Self {
        Self { reader, layout, holder }
    }

    /// The field `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field of another type.
    pub fn field<T: Element>(&self, name: &str) -> Result<View<'_, T>> {
        let index = self.layout.spec().index_of(name)?;
        self.field_at(index)
    }

    /// Field number `index` of the spec, of all rows; avoids the lookup by name in a hot loop.
    ///
    /// # Errors
    /// `Config` for an index that the spec does not have, or a field of another type.
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

    /// Opens the batch to one more stream. The slot is overwritten only after all readers.
    ///
    /// # Errors
    /// `Config` for another device's stream, for too many readers, and while a step is being recorded,
    /// because its replay would not open the batch again; a device failure.
    pub fn also_on(&self, stream: &Stream) -> Result<Ready> {
        let reader = self.reader.also_on(stream)?;
        Ok(Ready { reader, layout: self.layout.clone(), holder: self.holder.clone() })
    }

    /// The stream that the batch is open to.
    pub fn stream(&self) -> &Stream {
        self.reader.stream()
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        &self.info().ids
    }

    /// Number of rows: the batch size, or less in a short last batch.
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

    /// The offset of field `index` in the slot, in bytes.
    pub(crate) fn offset(&self, index: usize) -> usize {
        self.layout.offset(index)
    }

    fn info(&self) -> &BatchInfo {
        self.reader.info()
    }

    /// The index of the device slot that holds the batch.
    pub fn slot(&self) -> usize {
        self.reader.index()
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ready(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
