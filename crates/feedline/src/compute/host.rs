//! The data of a batch on the host: copied from any device, or read in place on the host device.

use feedline_core::{BatchInfo, Element, Error, ErrorKind, Result, Spec};

use crate::{Ready, View};

impl Ready {
    /// The field `name` of all rows, copied to the host: `[rows, shape...]`, row-major. Works on any device.
    ///
    /// Blocks until all work submitted to the stream so far, and the copy after it, have ended. For tests and
    /// for looking at data: a loop that computes on the host is faster with
    /// [`build_host`](crate::LoaderBuilder::build_host).
    ///
    /// ```
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// # struct Squares(Spec);
    /// # impl Dataset for Squares {
    /// #     fn len(&self) -> u64 { 10 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = Squares(Spec::new().field("square", DType::I64, [])?);
    /// let device = Device::best()?;
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(data).batch_size(4).build(&device)?;
    /// for batch in loader.epoch(0)?.take(1) {
    ///     let batch = batch?.wait_on(&compute)?;
    ///     assert_eq!(batch.to_vec::<i64>("square")?, [0, 1, 4, 9]);
    /// }
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`field`](Self::field); `Config` while the stream is being recorded; a device failure.
    pub fn to_vec<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        let field = self.field::<T>(name)?;
        self.wait_until_copied()?;
        field.to_vec()
    }

    /// The batch with its fields as slices, which are read in place. For the host device.
    ///
    /// Blocks until all work submitted to the stream so far has ended, so that the slices show its results.
    ///
    /// ```
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// # struct Squares(Spec);
    /// # impl Dataset for Squares {
    /// #     fn len(&self) -> u64 { 10 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = Squares(Spec::new().field("square", DType::I64, [])?);
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(data).batch_size(4).build(&device)?;
    /// let mut sum = 0;
    /// for batch in loader.epoch(0)? {
    ///     let batch = batch?.wait_on(&compute)?;
    ///     sum += batch.into_host()?.field::<i64>("square")?.iter().sum::<i64>();
    /// }
    /// assert_eq!(sum, 285);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` on a device with memory of its own, and while the stream is being recorded; a device failure.
    pub fn into_host(self) -> Result<HostBatch> {
        let batch = HostBatch::new(self)?;
        batch.ready.stream().synchronize()?;
        Ok(batch)
    }
}

/// # For loaders
///
/// What the bridges call. It may change in any release.
impl Ready {
    /// The elements of a view of `batch`, read in place. For the host device. Blocks until the batch has
    /// arrived, not for other work on its stream: a batch can only be read.
    ///
    /// # Errors
    /// `Config` on a device with memory of its own, and for a view of another batch; a device failure.
    pub fn read_in_place<T: Element>(&self, view: &View<'_, T>) -> Result<&[T]> {
        let bytes = self.reader.host_bytes()?;
        // On the host an address is a pointer.
        let first = view.address().0.checked_sub(bytes.as_ptr().addr() as u64);
        let part = first.and_then(|first| bytes.get(first as usize..)?.get(..view.len() * size_of::<T>()));
        part.and_then(|part| bytemuck::try_cast_slice(part).ok())
            .ok_or_else(|| Error::new(ErrorKind::Config, "the view is one of another batch"))
    }
}

/// A batch on the host: its fields are slices. Dropping it releases its slot.
///
/// Created by [`HostEpoch`](crate::HostEpoch).
#[must_use = "a batch that is dropped unread was decoded for nothing"]
pub struct HostBatch {
    ready: Ready,
}

impl HostBatch {
    /// Blocks until the batch has arrived.
    pub(crate) fn new(ready: Ready) -> Result<Self> {
        ready.reader.host_bytes()?;
        Ok(Self { ready })
    }

    /// The field `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field of another type; the loss of the device,
    /// after a panic in work on one of its streams.
    pub fn field<T: Element>(&self, name: &str) -> Result<&[T]> {
        self.field_at(self.spec().index_of(name)?)
    }

    /// Field number `index` of the spec, of all rows; avoids the lookup by name in a hot loop.
    ///
    /// # Errors
    /// As [`field`](Self::field), for an index that the spec does not have.
    pub fn field_at<T: Element>(&self, index: usize) -> Result<&[T]> {
        self.ready.read_in_place(&self.ready.field_at(index)?)
    }

    /// The ragged field `name`: the items of all rows, and `rows + 1` offsets; see [`Ready::ragged`].
    ///
    /// # Errors
    /// As [`Ready::ragged`].
    pub fn ragged<T: Element>(&self, name: &str) -> Result<(&[T], &[u32])> {
        let ragged = self.ready.ragged::<T>(name)?;
        Ok((self.ready.read_in_place(&ragged.values)?, self.ready.read_in_place(&ragged.offsets)?))
    }

    /// Items of the longest row of the ragged field `name`, or the largest summand of running sums; see
    /// [`Ready::longest`].
    ///
    /// # Errors
    /// As [`Ready::longest`].
    pub fn longest(&self, name: &str) -> Result<usize> {
        self.ready.longest(name)
    }

    /// The padded field `name`: `[rows, width, item...]`, and the length of each row; see [`Ready::padded`].
    ///
    /// # Errors
    /// As [`Ready::padded`].
    pub fn padded<T: Element>(&self, name: &str) -> Result<(&[T], &[u32])> {
        let padded = self.ready.padded::<T>(name)?;
        Ok((self.ready.read_in_place(&padded.values)?, self.ready.read_in_place(&padded.lengths)?))
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &Spec {
        self.ready.spec()
    }
}

/// The description of the batch.
impl std::ops::Deref for HostBatch {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        &self.ready
    }
}

impl std::fmt::Debug for HostBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostBatch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
