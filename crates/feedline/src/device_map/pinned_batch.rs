//! A filled batch in its pinned slot, and the batch on the device that a lane makes from it.

use feedline_core::ragged::Form;
use feedline_core::{BatchInfo, Element, Extent, Field, Layout, Random, Result, Spec};
use feedline_device::device_slots::PinnedSlot;
use feedline_device::{Stream, ViewMut};

use super::output::{Output, refuse};

/// A filled batch in pinned host memory, and the batch to make from it on the device; the argument of
/// [`LoaderBuilder::produce`](crate::LoaderBuilder::produce).
///
/// All slices and views end with the call. Work queued on [`stream`](Self::stream) may read the memory of the
/// slices later: it is filled again only after that work has ended.
pub struct PinnedBatch<'a> {
    slot: PinnedSlot<'a>,
    info: &'a BatchInfo,
    layout: &'a Layout,
    stream: &'a Stream,
    output: Output<'a>,
    needs_help: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> PinnedBatch<'a> {
    /// For `needs_help` see [`needs_help`](Self::needs_help).
    pub(super) fn new(
        (slot, info, layout): (PinnedSlot<'a>, &'a BatchInfo, &'a Layout),
        stream: &'a Stream,
        output: Output<'a>,
        needs_help: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { slot, info, layout, stream, output, needs_help }
    }

    /// The lane's stream.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The fields of the batch as the workers have filled it.
    pub fn spec(&self) -> &'a Spec {
        self.layout.spec()
    }

    /// The field `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field of another type.
    pub fn field<T: Element>(&self, name: &str) -> Result<&'a [T]> {
        let (index, field) = self.typed::<T>(name)?;
        if field.as_ragged().is_some() {
            return Err(refuse(field, "is ragged: read it by ragged or padded"));
        }
        Ok(self.elements(self.layout.offset(index), field.elements() * self.len()))
    }

    /// The ragged field `name`: the concatenated items of all rows, and `rows + 1` offsets, counted in items.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a field that is not ragged or is padded, or one of
    /// another type.
    pub fn ragged<T: Element>(&self, name: &str) -> Result<(&'a [T], &'a [u32])> {
        let (index, values, form) = self.values(name)?;
        if let Form::Padded(_) = form {
            return Err(refuse(&self.spec().fields()[index], "is padded: read it by padded"));
        }
        Ok((values, self.elements(self.layout.offset(index), self.len() + 1)))
    }

    /// The padded field `name`: `[rows, width, item...]`, row-major, and the length of each row.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a field that is not padded, or one of another type.
    pub fn padded<T: Element>(&self, name: &str) -> Result<(&'a [T], &'a [u32])> {
        let (index, values, form) = self.values(name)?;
        let Form::Padded(_) = form else {
            return Err(refuse(&self.spec().fields()[index], "is not padded: read it by ragged"));
        };
        Ok((values, self.elements(self.layout.offset(index), self.len())))
    }

    /// The output field `name` of all rows, to write; as [`DeviceBatch::output`](super::DeviceBatch::output).
    ///
    /// Work that is queued after the first call of this or of [`copy`](Self::copy) waits for the last use of
    /// the output's slot. So queue work that does not write the output, such as decoding into your own
    /// memory, before it.
    ///
    /// # Errors
    /// As [`DeviceBatch::output`](super::DeviceBatch::output); a device failure.
    pub fn output<T: Element>(&mut self, name: &str) -> Result<ViewMut<'a, T>> {
        self.output.view_mut(name, self.info.len())
    }

    /// Queues a copy of the field `name` into the output field of that name; a ragged field keeps its form.
    ///
    /// # Errors
    /// As [`output`](Self::output); `Config` for a field that has another type or shape in the batch, or is
    /// ragged there and not in the output.
    #[track_caller]
    pub fn copy(&mut self, name: &str) -> Result<()> {
        let index = self.spec().index_of(name)?;
        let offset = self.layout.offset(index);
        let Some(place) = self.layout.ragged_place(index) else {
            let to = self.output.copy_of(name, &self.spec().fields()[index], self.info.len())?;
            return self.slot.copy(offset, to);
        };
        let Extent { items, .. } = self.info.extents.get(place).copied().unwrap_or_default();
        let [offsets, values] = self.output.ragged_copy_of(name, self.info.len(), items)?;
        self.slot.copy(offset, offsets)?;
        self.slot.copy(self.layout.values(index).start, values)
    }

    /// Random numbers for this batch; as [`DeviceBatch::random`](super::DeviceBatch::random).
    pub fn random(&self) -> Random {
        self.output.random(self.info)
    }

    /// Whether the CPU should help the device with this batch: filled batches wait for a lane, so the workers
    /// are ahead, and this lane did not just wait for the consumer, so the lanes are not. The closure may be
    /// called from any thread; its value changes as batches come and go.
    pub fn needs_help(&self) -> &'a (dyn Fn() -> bool + Sync) {
        self.needs_help
    }

    /// As [`Output::check_written`].
    pub(super) fn check_written(&self) -> Result<()> {
        self.output.check_written()
    }

    /// The field called `name`, whose elements are of type `T`, and its index.
    fn typed<T: Element>(&self, name: &str) -> Result<(usize, &'a Field)> {
        let index = self.spec().index_of(name)?;
        let field = &self.spec().fields()[index];
        match T::is_of(field.dtype()) {
            true => Ok((index, field)),
            false => Err(refuse(field, &format!("is {}, not {}", field.dtype(), T::DTYPE))),
        }
    }

    /// The index of a ragged field, its values, and its form.
    fn values<T: Element>(&self, name: &str) -> Result<(usize, &'a [T], Form)> {
        let (index, field) = self.typed::<T>(name)?;
        let (Some(ragged), Some(place)) = (field.as_ragged(), self.layout.ragged_place(index)) else {
            return Err(refuse(field, "is not ragged: read it by field"));
        };
        let Extent { items, .. } = self.info.extents.get(place).copied().unwrap_or_default();
        let elements = items * field.item_bytes() / size_of::<T>();
        Ok((index, self.elements(self.layout.values(index).start, elements), ragged.form()))
    }

    /// `len` elements at byte `offset` of the slot, both from the layout.
    fn elements<T: Element>(&self, offset: usize, len: usize) -> &'a [T] {
        bytemuck::cast_slice(&self.slot.bytes()[offset..][..len * size_of::<T>()])
    }
}

/// The description of the batch.
impl std::ops::Deref for PinnedBatch<'_> {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.info
    }
}

impl std::fmt::Debug for PinnedBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBatch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
