//! The fields that a lane writes.

use feedline_core::random::key;
use feedline_core::{BatchInfo, BatchSampler, Element, Error, ErrorKind, Field, Layout, Random, Result};
use feedline_device::ViewMut;
use feedline_device::device_slots::SlotMut;

use crate::decode::position;

/// Separates the random numbers of device maps from those of samples and of `map_batch`.
const STREAM: u64 = u64::from_le_bytes(*b"a device");

/// The output of a lane, in its slot.
pub(super) struct Output<'a> {
    slot: SlotMut<'a>,
    layout: &'a Layout,
    /// Whether each field was handed out.
    written: &'a mut [bool],
    batch_sampler: &'a BatchSampler,
}

impl<'a> Output<'a> {
    /// `written` has an element for each field.
    pub(super) fn new(
        slot: SlotMut<'a>,
        layout: &'a Layout,
        written: &'a mut [bool],
        batch_sampler: &'a BatchSampler,
    ) -> Self {
        written.fill(false);
        Self { slot, layout, written, batch_sampler }
    }

    /// The field `name` of `rows` rows, to write.
    pub(super) fn view_mut<T: Element>(&mut self, name: &str, rows: usize) -> Result<ViewMut<'a, T>> {
        let (index, field) = self.take(name)?;
        if !T::is_of(field.dtype()) {
            return Err(refuse(field, &format!("is {}, not {}", field.dtype(), T::DTYPE)));
        }
        self.slot.view_mut(self.layout.offset(index), field.elements() * rows)
    }

    /// The bytes of the field `name` of `rows` rows, as the destination of a copy of the batch's field `own`.
    pub(super) fn copy_of(&mut self, name: &str, own: &Field, rows: usize) -> Result<ViewMut<'a, u8>> {
        let (index, field) = self.take(name)?;
        if own.as_ragged().is_some() {
            return Err(refuse(own, "is ragged in the batch: read it by ragged or padded"));
        }
        if (own.dtype(), own.shape()) != (field.dtype(), field.shape()) {
            return Err(refuse(field, "has another type or shape in the batch: write it by output"));
        }
        self.slot.view_mut(self.layout.offset(index), field.row_bytes() * rows)
    }

    /// The bytes of the offsets or lengths of the ragged field `name` of `rows` rows, and of its `items`
    /// items, as the destination of a copy from the batch.
    pub(super) fn ragged_copy_of(
        &mut self,
        name: &str,
        rows: usize,
        items: usize,
    ) -> Result<[ViewMut<'a, u8>; 2]> {
        let (index, field) = self.take(name)?;
        if field.as_ragged().is_none() {
            return Err(refuse(field, "is ragged in the batch only: read it by ragged or padded"));
        }
        let offsets = self.slot.view_mut(self.layout.offset(index), (rows + 1) * size_of::<u32>())?;
        let values = self.layout.values(index).start;
        Ok([offsets, self.slot.view_mut(values, items * field.item_bytes())?])
    }

    /// Random numbers for the batch of `info`.
    pub(super) fn random(&self, info: &BatchInfo) -> Random {
        let seed = self.batch_sampler.options().seed;
        Random::from_key(key(&[STREAM, seed, info.epoch, position(self.batch_sampler, info)]))
    }

    /// Hands out a field.
    fn take(&mut self, name: &str) -> Result<(usize, &'a Field)> {
        let index = self.layout.spec().index_of(name)?;
        let field = &self.layout.spec().fields()[index];
        if std::mem::replace(&mut self.written[index], true) {
            return Err(refuse(field, "was handed out before: keep its view, and reborrow it"));
        }
        Ok((index, field))
    }

    /// Refuses a batch with a field that was not written: it would hold elements of an earlier batch.
    pub(super) fn check_written(&self) -> Result<()> {
        let fields = self.layout.spec().fields();
        match fields.iter().zip(&*self.written).find(|(_, written)| !**written) {
            Some((field, _)) => Err(refuse(
                field,
                "is not written by the device map: take it by output or copy, or leave it out of the spec",
            )),
            None => Ok(()),
        }
    }
}

pub(super) fn refuse(field: &Field, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name()))
}
