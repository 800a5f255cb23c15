//! A delivered batch, and the same batch open to one stream: typed views of its fields, until it is dropped.

use std::sync::Arc;

use feedline_core::ragged::Form;
use feedline_core::{BatchInfo, Element, Error, ErrorKind, Extent, HostRows, Layout, Result, Spec, Stage};
use feedline_device::device_slots::{Loaded, Reader};
use feedline_device::{Stream, View};

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
        let place = |error: Error| error.at_stage(Stage::Compute).at_batch(step);
        let reader = self.loaded.wait_on(stream).map_err(place)?;
        Ok(Ready::new(reader, self.layout))
    }

    /// The index of the device slot that holds the batch. Slots have fixed addresses, so a step
    /// captured once per slot can be replayed.
    pub fn slot(&self) -> usize {
        self.loaded.index()
    }
}

/// # For loaders
///
/// What tests call. It may change in any release.
impl Batch {
    /// The description of the batch.
    /// Whether the copy of `batch` has finished; never blocks.
    ///
    /// # Errors
    /// A device failure.
    pub fn is_copied(&self) -> Result<bool> {
        self.loaded.is_copied()
    }
}

impl std::ops::Deref for Batch {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.loaded.info()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}

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
}

/// A ragged field of a batch, on the device; from [`Ready::ragged`].
#[derive(Clone, Copy, Debug)]
pub struct RaggedView<'a, T: Element> {
    /// The items of all rows, one after another.
    pub values: View<'a, T>,
    /// `rows + 1` offsets, counted in items: row `i` has the items from offset `i` to offset `i + 1`.
    pub offsets: View<'a, u32>,
}

/// A padded field of a batch, on the device; from [`Ready::padded`].
#[derive(Clone, Copy, Debug)]
pub struct PaddedView<'a, T: Element> {
    /// `[rows, width, item...]`, row-major.
    pub values: View<'a, T>,
    /// The items of each row that are not padding.
    pub lengths: View<'a, u32>,
    /// Items per row; at least 1, or 0 in a batch without rows.
    pub width: usize,
    /// Items of padding in the whole batch.
    pub padding: usize,
}

impl Ready {
    pub(crate) fn new(reader: Reader, layout: Arc<Layout>) -> Self {
        Self { reader, layout }
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
        if !T::is_of(field.dtype()) {
            let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::Config, why));
        }
        if field.as_ragged().is_some() {
            let why = format!("field \"{}\" is ragged: read it by ragged or padded", field.name());
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.reader.view(layout.offset(index), field.elements() * self.len())
    }

    /// The bytes of field number `index`, which is not ragged, of all rows.
    ///
    /// # Errors
    /// As [`field_at`](Self::field_at).
    pub(crate) fn bytes_at(&self, index: usize) -> Result<View<'_, u8>> {
        let bytes = self.layout.spec().fields()[index].row_bytes() * self.len();
        self.reader.view(self.layout.offset(index), bytes)
    }

    /// The ragged field `name`: the concatenated items of all rows, and `rows + 1` offsets.
    ///
    /// The host knows the number of items without waiting: the length of the values, divided by the elements
    /// of an item.
    ///
    /// ```
    /// use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    ///
    /// struct Names(Spec);
    /// impl Dataset for Names {
    ///     fn len(&self) -> u64 { 3 }
    ///     fn spec(&self) -> &Spec { &self.0 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         let name = ["Ada", "Grace", "Al"][id as usize];
    ///         Ok(row.write_ragged(0, name.as_bytes())?)
    ///     }
    /// }
    /// let names = Names(Spec::new().ragged("name", DType::U8, [], 100)?);
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(names).batch_size(3).build(&device)?;
    /// for batch in loader.epoch(0)? {
    ///     let batch = batch?.wait_on(&compute)?;
    ///     let names = batch.ragged::<u8>("name")?; // offsets 0, 3, 8, 10, for kernels on `compute`
    ///     assert_eq!((names.values.len(), names.offsets.len()), (10, 4));
    /// }
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a field that is not ragged or is padded, or one of
    /// another type.
    pub fn ragged<T: Element>(&self, name: &str) -> Result<RaggedView<'_, T>> {
        let (values, index, extent, form) = self.values(name)?;
        if let Form::Padded(_) = form {
            let why = format!("field \"{name}\" is padded: read it by padded");
            return Err(Error::new(ErrorKind::Config, why));
        }
        debug_assert_eq!(extent.padding, 0);
        Ok(RaggedView { values, offsets: self.reader.view(self.layout.offset(index), self.len() + 1)? })
    }

    /// The padded field `name`: `[rows, width, item...]`, row-major, and the length of each row.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a field that is not padded, or one of another type.
    pub fn padded<T: Element>(&self, name: &str) -> Result<PaddedView<'_, T>> {
        let (values, _, extent, _) = self.values(name)?;
        let lengths = self.lengths(name)?;
        let width = extent.items.checked_div(self.len()).unwrap_or(0);
        Ok(PaddedView { values, lengths, width, padding: extent.padding })
    }

    /// The length of each row of the padded field `name`, in items; the field may have any type.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field that is not padded.
    pub fn lengths(&self, name: &str) -> Result<View<'_, u32>> {
        let index = self.layout.spec().index_of(name)?;
        let ragged = self.layout.spec().fields()[index].as_ragged();
        let Some(Form::Padded(_)) = ragged.map(|ragged| ragged.form()) else {
            let why = format!("field \"{name}\" is not padded: read it by ragged, or pad it in the builder");
            return Err(Error::new(ErrorKind::Config, why));
        };
        self.reader.view(self.layout.offset(index), self.len())
    }

    /// Items of the longest row of the ragged field `name`. For running sums, such as `cu_seqlens`, the
    /// largest summand: the `max_seqlen` of attention kernels. Does not wait for the device.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, or a field that is not ragged.
    pub fn longest(&self, name: &str) -> Result<usize> {
        let index = self.layout.spec().index_of(name)?;
        let Some(place) = self.layout.ragged_place(index) else {
            let why = format!("field \"{name}\" is not ragged: every sample has the same length");
            return Err(Error::new(ErrorKind::Config, why));
        };
        Ok(self.extents.get(place).map_or(0, |extent| extent.longest))
    }

    /// The rows of field `name` that the host keeps. Does not wait for the device.
    ///
    /// # Errors
    /// `Config` for a field that [`keep_on_host`](crate::LoaderBuilder::keep_on_host) does not name.
    pub fn host_rows(&self, name: &str) -> Result<&HostRows> {
        self.reader.info().host_rows.iter().find(|rows| &*rows.field == name).ok_or_else(|| {
            let why =
                format!("field \"{name}\" is not kept on the host: name it by keep_on_host in the builder");
            Error::new(ErrorKind::Config, why)
        })
    }

    /// The values of a ragged field, its index, and its extent in the batch.
    fn values<T: Element>(&self, name: &str) -> Result<(View<'_, T>, usize, Extent, Form)> {
        let index = self.layout.spec().index_of(name)?;
        let field = &self.layout.spec().fields()[index];
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, format!("field \"{name}\" {why}")));
        let (Some(ragged), Some(place)) = (field.as_ragged(), self.layout.ragged_place(index)) else {
            return refuse("is not ragged: read it by field".to_owned());
        };
        if !T::is_of(field.dtype()) {
            return refuse(format!("is {}, not {}", field.dtype(), T::DTYPE));
        }
        let extent = self.extents.get(place).copied().unwrap_or_default();
        let elements = extent.items * field.item_bytes() / size_of::<T>();
        let values = self.reader.view(self.layout.values(index).start, elements)?;
        Ok((values, index, extent, ragged.form()))
    }

    /// Opens the batch to one more stream. The slot is overwritten only after all readers.
    ///
    /// # Errors
    /// `Config` for another device's stream, for too many readers, and while a step is being recorded,
    /// because its replay would not open the batch again; a device failure.
    #[track_caller]
    pub fn also_on(&self, stream: &Stream) -> Result<Ready> {
        let reader = self.reader.also_on(stream)?;
        Ok(Ready { reader, layout: self.layout.clone() })
    }

    /// Blocks until the copy of the batch has ended. Does not wait for other work of the stream. There is no
    /// need to call it before work on the stream.
    ///
    /// The [`report`](crate::Progress::report) counts the time as a wait for data, as it does for every other
    /// method that blocks until a batch has arrived. Call it before you block for the stream; otherwise the
    /// wait counts as your own time.
    ///
    /// # Errors
    /// `Config` while the stream is being recorded; a device failure.
    pub fn wait_until_copied(&self) -> Result<()> {
        self.reader.wait_until_copied()
    }

    /// The stream that the batch is open to.
    pub fn stream(&self) -> &Stream {
        self.reader.stream()
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &Spec {
        self.layout.spec()
    }

    /// The index of the device slot that holds the batch.
    pub fn slot(&self) -> usize {
        self.reader.index()
    }
}

/// The description of the batch.
impl std::ops::Deref for Ready {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.reader.info()
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ready(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.len())
    }
}
