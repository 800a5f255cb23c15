//! The batch that a device map reads, and the one that it writes.

use feedline_core::random::key;
use feedline_core::{
    BatchInfo, BatchSampler, Element, Error, ErrorKind, Field, Layout, Random, Result, Spec,
};
use feedline_device::slot::SlotMut;
use feedline_device::{Stream, View, ViewMut};

use crate::Ready;
use crate::compute::{PaddedView, RaggedView};
use crate::decode::position;

/// Keeps the random numbers of device maps apart from those of samples and of `map_batch`.
const STREAM: u64 = u64::from_le_bytes(*b"a device");

/// A batch on the device, and the batch to make of it; the argument of
/// [`LoaderBuilder::device_map`](crate::LoaderBuilder::device_map).
///
/// All views are for work on [`stream`](Self::stream), and end with the call.
pub struct DeviceBatch<'a> {
    input: &'a Ready,
    output: SlotMut<'a>,
    layout: &'a Layout,
    /// Whether each output field was handed out.
    written: &'a mut [bool],
    batch_sampler: &'a BatchSampler,
}

impl<'a> DeviceBatch<'a> {
    /// `written` has an element for each output field.
    pub(super) fn new(
        input: &'a Ready,
        (output, layout): (SlotMut<'a>, &'a Layout),
        written: &'a mut [bool],
        batch_sampler: &'a BatchSampler,
    ) -> Self {
        written.fill(false);
        Self { input, output, layout, written, batch_sampler }
    }

    /// The lane's stream.
    pub fn stream(&self) -> &'a Stream {
        self.input.stream()
    }

    /// The fields of the batch as it was copied.
    pub fn spec(&self) -> &'a Spec {
        self.input.spec()
    }

    /// The field `name` of all rows as it was copied: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// As [`Ready::field`].
    pub fn field<T: Element>(&self, name: &str) -> Result<View<'a, T>> {
        self.input.field(name)
    }

    /// The ragged field `name` as it was copied.
    ///
    /// # Errors
    /// As [`Ready::ragged`].
    pub fn ragged<T: Element>(&self, name: &str) -> Result<RaggedView<'a, T>> {
        self.input.ragged(name)
    }

    /// The padded field `name` as it was copied.
    ///
    /// # Errors
    /// As [`Ready::padded`].
    pub fn padded<T: Element>(&self, name: &str) -> Result<PaddedView<'a, T>> {
        self.input.padded(name)
    }

    /// The output field `name` of all rows, to write: `[rows, shape...]`, row-major. Its elements are those of
    /// an earlier batch, so write all of them. A field is handed out once; [`ViewMut::reborrow`] makes a view
    /// for each of several kernels. A `bool` field is written as `u8`, with 0 and 1 only.
    ///
    /// # Errors
    /// `Config` for a name that the spec of the device map does not have, a field of another type, or one that
    /// was handed out before.
    pub fn output<T: Element>(&mut self, name: &str) -> Result<ViewMut<'a, T>> {
        let (index, field) = self.take(name)?;
        if !T::is_of(field.dtype()) {
            return Err(refuse(field, &format!("is {}, not {}", field.dtype(), T::DTYPE)));
        }
        self.output.view_mut(self.layout.offset(index), field.elements() * self.len())
    }

    /// Passes the field `name` on: queues a copy of it into the output field of that name.
    ///
    /// # Errors
    /// As [`output`](Self::output); `Config` for a field that has another type or shape in the batch, or is
    /// ragged there; a device failure.
    #[track_caller]
    pub fn copy(&mut self, name: &str) -> Result<()> {
        let (index, field) = self.take(name)?;
        let at = self.spec().index_of(name)?;
        let own = &self.spec().fields()[at];
        if own.as_ragged().is_some() {
            return Err(refuse(own, "is ragged in the batch: read it by ragged or padded"));
        }
        if (own.dtype(), own.shape()) != (field.dtype(), field.shape()) {
            return Err(refuse(field, "has another type or shape in the batch: write it by output"));
        }
        let bytes = field.row_bytes() * self.len();
        let to = self.output.view_mut::<u8>(self.layout.offset(index), bytes)?;
        to.copy_from(self.input.bytes_at(at)?)
    }

    /// Random numbers for this batch. They depend on the seed, the epoch and the position of the batch in the
    /// epoch only, so they are the same on every lane, and after a resume with the same batch size and world.
    pub fn random(&self) -> Random {
        let seed = self.batch_sampler.options().seed;
        let at = position(self.batch_sampler, self.input);
        Random::from_key(key(&[STREAM, seed, self.epoch(), at]))
    }

    /// Hands out an output field.
    fn take(&mut self, name: &str) -> Result<(usize, &'a Field)> {
        let layout: &'a Layout = self.layout;
        let index = layout.spec().index_of(name)?;
        let field = &layout.spec().fields()[index];
        if std::mem::replace(&mut self.written[index], true) {
            return Err(refuse(field, "was handed out before: keep its view, and reborrow it"));
        }
        Ok((index, field))
    }

    /// Refuses a batch of which a field was not written: it holds the elements of an earlier batch.
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

fn refuse(field: &Field, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name()))
}

/// The description of the batch.
impl std::ops::Deref for DeviceBatch<'_> {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.input
    }
}

impl std::fmt::Debug for DeviceBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBatch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
