//! The batch that a device map reads, and the one that it writes.

use feedline_core::{BatchInfo, Element, Random, Result, Spec};
use feedline_device::{Stream, View, ViewMut};

use super::output::Output;
use crate::Ready;
use crate::compute::{PaddedView, RaggedView};

/// A batch on the device, and the batch to make from it; the argument of
/// [`LoaderBuilder::device_map`](crate::LoaderBuilder::device_map).
///
/// All views are for work on [`stream`](Self::stream), and end with the call.
pub struct DeviceBatch<'a> {
    input: &'a Ready,
    output: Output<'a>,
}

impl<'a> DeviceBatch<'a> {
    pub(super) fn new(input: &'a Ready, output: Output<'a>) -> Self {
        Self { input, output }
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

    /// The output field `name` of all rows, to write: `[rows, shape...]`, row-major. It still holds elements
    /// of an earlier batch, so write all of them. A field is handed out once; [`ViewMut::reborrow`] makes a
    /// view for each of several kernels. A `bool` field is written as `u8`, with 0 and 1 only.
    ///
    /// # Errors
    /// `Config` for a name that the spec of the device map does not have, a field of another type, or one
    /// that was handed out before.
    pub fn output<T: Element>(&mut self, name: &str) -> Result<ViewMut<'a, T>> {
        self.output.view_mut(name, self.len())
    }

    /// Passes the field `name` on: queues a copy of it into the output field of that name.
    ///
    /// # Errors
    /// As [`output`](Self::output); `Config` for a field that has another type or shape in the batch, or is
    /// ragged there; a device failure.
    #[track_caller]
    pub fn copy(&mut self, name: &str) -> Result<()> {
        let index = self.spec().index_of(name)?;
        let to = self.output.copy_of(name, &self.spec().fields()[index], self.len())?;
        to.copy_from(self.input.bytes_at(index)?)
    }

    /// Random numbers for this batch. They depend only on the seed, the epoch and the position of the batch
    /// in it, so they are the same on every lane, and after a resume with the same batch size and world.
    pub fn random(&self) -> Random {
        self.output.random(self.input)
    }

    /// As [`Output::check_written`].
    pub(super) fn check_written(&self) -> Result<()> {
        self.output.check_written()
    }
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
