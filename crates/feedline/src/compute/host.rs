//! The data of a batch on the host: copied from any device, or read in place on the host device.

use feedline_core::{Element, Result, Spec, Substituted};

use crate::Ready;

impl Ready {
    /// The field `name` of all rows, copied to the host: `[rows, shape...]`, row-major. Works on any device.
    ///
    /// Blocks until all work that the stream has so far, and the copy behind it, have ended. For tests and
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

    /// Calls `work` on this thread with the fields of the batch as slices, which are read in place. For the
    /// host device.
    ///
    /// Blocks until all work that the stream has so far has ended, so that `work` sees its results. `work`
    /// may borrow what it likes. A panic in it goes on to the caller; the batch can be used afterwards.
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
    /// let device = Device::host();
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(data).batch_size(4).build(&device)?;
    /// let mut sum = 0;
    /// for batch in loader.epoch(0)? {
    ///     let batch = batch?.wait_on(&compute)?;
    ///     batch.with_host(|fields| -> feedline::Result<()> {
    ///         sum += fields.field::<i64>("square")?.iter().sum::<i64>();
    ///         Ok(())
    ///     })??;
    /// }
    /// assert_eq!(sum, 285);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` on a device with memory of its own, and while the stream is being recorded; a device failure.
    pub fn with_host<R>(&self, work: impl FnOnce(HostFields<'_>) -> R) -> Result<R> {
        let fields = self.host_fields()?;
        self.stream().synchronize()?;
        Ok(work(fields))
    }

    /// Blocks until the batch's copy has ended, but not for other work.
    fn host_fields(&self) -> Result<HostFields<'_>> {
        Ok(HostFields { bytes: self.reader.host_bytes()?, batch: self })
    }
}

/// The fields of a batch on the host device, as slices; see [`Ready::with_host`].
#[derive(Clone, Copy, Debug)]
pub struct HostFields<'a> {
    batch: &'a Ready,
    /// The whole slot.
    bytes: &'a [u8],
}

impl<'a> HostFields<'a> {
    /// The field `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field of another type.
    pub fn field<T: Element>(&self, name: &str) -> Result<&'a [T]> {
        self.field_at(self.batch.spec().index_of(name)?)
    }

    /// Field number `index` of the spec, of all rows; avoids the lookup by name in a hot loop.
    ///
    /// # Errors
    /// `Config` for an index that the spec does not have, or a field of another type.
    pub fn field_at<T: Element>(&self, index: usize) -> Result<&'a [T]> {
        let elements = self.batch.field_at::<T>(index)?.len();
        let bytes = &self.bytes[self.batch.offset(index)..][..elements * size_of::<T>()];
        // Cannot fail: slots and the fields in them are 256-byte aligned.
        Ok(bytemuck::cast_slice(bytes))
    }

    /// The ragged field `name`: the items of all rows, and `rows + 1` offsets; see [`Ready::ragged`].
    ///
    /// # Errors
    /// As [`Ready::ragged`].
    pub fn ragged<T: Element>(&self, name: &str) -> Result<(&'a [T], &'a [u32])> {
        let ragged = self.batch.ragged::<T>(name)?;
        self.parts(name, ragged.values.len(), ragged.offsets.len())
    }

    /// The padded field `name`: `[rows, width, item...]`, and the length of each row; see [`Ready::padded`].
    ///
    /// # Errors
    /// As [`Ready::padded`].
    pub fn padded<T: Element>(&self, name: &str) -> Result<(&'a [T], &'a [u32])> {
        let padded = self.batch.padded::<T>(name)?;
        self.parts(name, padded.values.len(), padded.lengths.len())
    }

    fn parts<T: Element>(&self, name: &str, values: usize, numbers: usize) -> Result<(&'a [T], &'a [u32])> {
        let index = self.batch.spec().index_of(name)?;
        let (at, numbers_at) = (self.batch.values_at(index), self.batch.offset(index));
        // Cannot fail, as above.
        let values = bytemuck::cast_slice(&self.bytes[at..][..values * size_of::<T>()]);
        Ok((values, bytemuck::cast_slice(&self.bytes[numbers_at..][..numbers * size_of::<u32>()])))
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
        ready.host_fields()?;
        Ok(Self { ready })
    }

    /// The field `name` of all rows: `[rows, shape...]`, row-major.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field of another type; the loss of the device,
    /// after a panic in work on one of its streams.
    pub fn field<T: Element>(&self, name: &str) -> Result<&[T]> {
        self.ready.host_fields()?.field(name)
    }

    /// Field number `index` of the spec, of all rows; avoids the lookup by name in a hot loop.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn field_at<T: Element>(&self, index: usize) -> Result<&[T]> {
        self.ready.host_fields()?.field_at(index)
    }

    /// The ragged field `name`: the items of all rows, and `rows + 1` offsets; see [`Ready::ragged`].
    ///
    /// # Errors
    /// As [`Ready::ragged`].
    pub fn ragged<T: Element>(&self, name: &str) -> Result<(&[T], &[u32])> {
        self.ready.host_fields()?.ragged(name)
    }

    /// The padded field `name`: `[rows, width, item...]`, and the length of each row; see [`Ready::padded`].
    ///
    /// # Errors
    /// As [`Ready::padded`].
    pub fn padded<T: Element>(&self, name: &str) -> Result<(&[T], &[u32])> {
        self.ready.host_fields()?.padded(name)
    }

    /// The sample ids, row by row.
    pub fn ids(&self) -> &[u64] {
        self.ready.ids()
    }

    /// Number of rows: the batch size, or less in a short last batch.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.ready.epoch()
    }

    /// The step within the epoch.
    pub fn step(&self) -> u64 {
        self.ready.step()
    }

    /// Number of valid rows, at the front. The rows after them repeat samples of the epoch to pad the
    /// last batch.
    pub fn valid_rows(&self) -> usize {
        self.ready.valid_rows()
    }

    /// Rows whose sample could not be read, with their substitutes, in row order.
    pub fn substituted(&self) -> &[Substituted] {
        self.ready.substituted()
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &Spec {
        self.ready.spec()
    }
}

impl std::fmt::Debug for HostBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostBatch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
