//! The columns of a data set that the device reads itself, and the work that gathers their rows into a
//! slot.

use std::sync::Arc;

use feedline_core::{DType, Dataset, Error, ErrorKind, Layout, Result, StableDataset, StridedColumn};

use crate::Device;
use crate::backend::{Address, Gather, GatherField};
use crate::stream::StreamCore;
use crate::zero_copy::gather_order::GatherOrder;
use crate::zero_copy::registered::Registered;
use crate::zero_copy::resident::{Resident, fitting};
use crate::zero_copy::rest::Rest;

/// A strided column for each field of a data set, readable by the device while this value lives. The rows are
/// in the set's own memory, which is kept alive, or in a copy on the device.
///
/// Dropping it blocks until the stream that reads it has drained.
pub struct StridedColumns {
    blocks: Vec<Block>,
    fields: Vec<Field>,
    gather_order: GatherOrder,
    /// The samples that are kept on the device; `None` if all are.
    rest: Option<Rest>,
    /// The layout of a slot that holds a batch.
    layout: Layout,
}

/// Memory that the device reads rows from.
enum Block {
    /// Memory of the data set.
    Registered(Registered),
    /// A copy of the set, or of its first samples, in device memory.
    Resident(Resident),
}

/// The source and destination of one field's rows.
struct Field {
    /// The index of the block.
    block: usize,
    first: usize,
    stride: usize,
    rows: usize,
    row_bytes: usize,
}

impl StridedColumns {
    /// Makes the columns of `dataset` readable by the device, for batches of up to `capacity` samples.
    /// Registers at most `room` bytes of host memory, which count as pinned in the device's
    /// [`DeviceStats`](crate::DeviceStats).
    ///
    /// On a GPU this blocks for about 20 ms per GiB. For a mapped file that is not in memory, it also blocks
    /// for the time to read the file.
    ///
    /// # Errors
    /// `Config` for a field without a column, `Budget` for more than `room` bytes, `Unavailable` if this
    /// device cannot read the memory; a device failure. The message is one line.
    pub fn new(device: &Device, dataset: &Arc<StableDataset>, capacity: usize, room: usize) -> Result<Self> {
        let mut blocks: Vec<*const [u8]> = Vec::new();
        let mut fields = Vec::new();
        for index in 0..dataset.spec().fields().len() {
            let column = column(dataset, index)?;
            let bytes: *const [u8] = column.bytes();
            let block = blocks.iter().position(|&block| std::ptr::eq(block, bytes)).unwrap_or_else(|| {
                blocks.push(bytes);
                blocks.len() - 1
            });
            fields.push(Field {
                block,
                first: column.first(),
                stride: column.stride(),
                rows: column.rows(),
                row_bytes: column.row_bytes(),
            });
        }
        let layout = Layout::new(dataset.spec(), capacity)?;
        let asked = blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.len()));
        if asked > room {
            let why = format!("the set has {asked} bytes, the budget of pinned memory has {room} left");
            return Err(Error::new(ErrorKind::Budget, why));
        }
        let register = |bytes| {
            // SAFETY: `Storage::column` lends the bytes while the set is borrowed. The set is behind an
            // `Arc`, of which `Registered` keeps a clone, so it is only ever borrowed shared.
            let registered = unsafe { Registered::new(device.core(), dataset.clone(), bytes) }?;
            let registered = registered.map(Block::Registered);
            let cannot = || {
                Error::new(ErrorKind::Unavailable, format!("{} cannot read the set's memory", device.name()))
            };
            registered.ok_or_else(cannot)
        };
        let blocks = blocks.into_iter().map(register).collect::<Result<_>>()?;
        let gather_order = GatherOrder::new(dataset.len(), asked);
        Ok(Self { blocks, fields, gather_order, rest: None, layout })
    }

    /// Copies the samples of `dataset` to the device, for batches of up to `capacity` samples. If the samples
    /// exceed `budget` bytes, copies only the first samples that fit beside the rows of a batch
    /// ([`rest`](Self::rest)). Reads each sample once, on `threads` threads. The memory counts as device
    /// memory in the device's [`DeviceStats`](crate::DeviceStats).
    ///
    /// Blocks until the samples are on the device.
    ///
    /// # Errors
    /// `Budget` if not one sample fits. `Config` for an empty set, or a set whose reads use random numbers or
    /// the epoch. `Sample` or `Panic` for a sample that cannot be read. A device failure, for example if the
    /// device is out of memory.
    pub fn resident(
        device: &Device,
        dataset: &StableDataset,
        capacity: usize,
        budget: usize,
        threads: usize,
    ) -> Result<Self> {
        let len = dataset.len();
        let kept = fitting(dataset.spec(), len, capacity as u64, budget)?;
        let layout = Layout::new(dataset.spec(), capacity)?;
        let rest = (kept < len).then_some(Rest { kept, samples: len });
        let more = if rest.is_some() { capacity as u64 } else { 0 };
        let resident = Resident::new(device, dataset, (kept, more, capacity as u64), threads.max(1))?;
        let fields = layout.spec().fields().iter().enumerate().map(|(index, field)| Field {
            block: 0,
            first: resident.offset(index),
            stride: field.row_bytes(),
            rows: (kept + more) as usize,
            row_bytes: field.row_bytes(),
        });
        Ok(Self {
            fields: fields.collect(),
            blocks: vec![Block::Resident(resident)],
            gather_order: GatherOrder::default(),
            rest,
            layout,
        })
    }

    /// The number of registered bytes of host memory.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::host_bytes).sum()
    }

    /// The number of bytes of device memory that hold the set.
    pub fn device_bytes(&self) -> usize {
        self.blocks.iter().map(Block::device_bytes).sum()
    }

    /// The samples that workers have to read; `None` if every sample has a row in the columns.
    pub fn rest(&self) -> Option<Rest> {
        self.rest
    }

    /// The layout of a batch in a device slot.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The order in which the ids of a batch are stored in a host slot.
    pub fn gather_order(&self) -> GatherOrder {
        self.gather_order
    }

    /// Returns an error if the batch or a slot does not fit the columns, or if the stream is not that of the
    /// first batch.
    pub(crate) fn accepts(
        &self,
        stream: &Arc<StreamCore>,
        rows: usize,
        host_bytes: usize,
        slot_bytes: usize,
    ) -> Result<()> {
        let ids = self.ids_at() + self.gather_order.bytes(rows);
        let (capacity, needed) = (self.layout.capacity(), self.layout.bytes());
        if rows > capacity || slot_bytes < needed || host_bytes < ids {
            let why = format!(
                "{rows} rows do not fit: a batch has at most {capacity} rows, needs {needed} bytes in the \
                 device slot and {ids} for its ids; the device slot has {slot_bytes} bytes, the host slot \
                 {host_bytes}"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.blocks.iter().try_for_each(|block| block.accepts(stream))
    }

    /// Each field, with its offset in a slot.
    fn fields(&self) -> impl Iterator<Item = (&Field, usize)> {
        self.fields.iter().enumerate().map(|(index, field)| (field, self.layout.offset(index)))
    }

    /// The offset of the ids in a host slot. They come after the rows that workers have read.
    fn ids_at(&self) -> usize {
        if self.rest.is_some() { self.layout.bytes() } else { 0 }
    }

    /// Submits to `stream` the copies of the rows that workers have read. Each copy goes from the host slot
    /// at `from` to the space after the samples on the device.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_rest(&self, stream: &StreamCore, rest: Rest, ids: &[u64], from: *const u8) -> Result<()> {
        let rows = rest.missing(ids);
        if rows == 0 {
            return Ok(());
        }
        for (field, offset) in self.fields() {
            // In device memory a field has no gaps between its rows.
            let to = self.blocks[field.block].device(field.first + rest.kept as usize * field.row_bytes);
            let from = from.wrapping_add(offset);
            // SAFETY: a host slot has a column of `capacity` rows at the field's offset, and the column on
            // the device has `capacity` rows behind the samples (`resident`); `accepts` has checked that
            // there are not more. One stream writes and reads them, in order. The rest is the caller's
            // contract.
            unsafe { stream.device.backend.copy_to_device(stream.id(), from, to, rows * field.row_bytes) }?;
        }
        Ok(())
    }

    /// Submits to `stream` the work that copies the rows `ids` into the slot at `to`. If the rows are
    /// contiguous, the copy engine copies them. Otherwise a gather reads the same ids in the host slot at
    /// `from`, as written by `GatherOrder` or `Rest`.
    ///
    /// # Safety
    /// `accepts` returned Ok. The host slot stays valid until the work has ended, and no unordered
    /// access touches the slot.
    pub(crate) unsafe fn send(
        &self,
        stream: &StreamCore,
        ids: &[u64],
        from: *const u8,
        to: Address,
    ) -> Result<()> {
        if let Some(first) = self.contiguous(ids) {
            for (field, offset) in self.fields() {
                let Some(from) = self.blocks[field.block].host(field.first + first * field.stride) else {
                    return Err(Error::new(ErrorKind::Config, "contiguous rows are copied from host memory"));
                };
                let (to, bytes) = (Address(to.0 + offset as u64), ids.len() * field.row_bytes);
                // SAFETY: the rows are rows of the column (`contiguous`), which `StridedColumn::new` has
                // checked to lie in its bytes, and `Registered` keeps those until the stream is drained;
                // the rest is the caller's contract.
                unsafe { stream.device.backend.copy_to_device(stream.id(), from, to, bytes) }?;
            }
            return Ok(());
        }
        let field = |(field, offset): (&Field, usize)| GatherField {
            src: self.blocks[field.block].device(field.first),
            stride: field.stride,
            rows: field.rows,
            to: Address(to.0 + offset as u64),
            row_bytes: field.row_bytes,
        };
        if let Some(rest) = self.rest {
            // SAFETY: the caller's contract.
            unsafe { self.send_rest(stream, rest, ids, from) }?;
        }
        let at = |offset| Address(from as u64 + (self.ids_at() + offset) as u64);
        let gather = match &self.blocks[..] {
            [Block::Resident(resident)] => {
                let room = resident.ids(ids.len());
                if let Some(room) = room {
                    let (from, bytes) = (from.wrapping_add(self.ids_at()), size_of_val(ids));
                    // SAFETY: the host slot has the ids there (`accepts`), and the memory has room for those
                    // of a batch (`Resident::new`). One stream writes and reads them, in order. The rest is
                    // the caller's contract.
                    unsafe { stream.device.backend.copy_to_device(stream.id(), from, room, bytes) }?;
                }
                let gather = Gather::new(room.unwrap_or(at(0)), None, ids.len(), self.fields().map(field))?;
                let gather = gather.from_device();
                if room.is_some() { gather.with_device_ids() } else { gather }
            }
            _ => {
                let places = self.gather_order.places(ids.len()).map(at);
                Gather::new(at(0), places, ids.len(), self.fields().map(field))?
            }
        };
        // SAFETY: every row of a column lies in its bytes (`StridedColumn::new`, `Resident::new`), which the
        // block keeps until the stream is drained. Other ids read nothing (`GatherField::rows`), and other
        // places write nothing (`Gather::new`). The rest is the caller's contract.
        unsafe { stream.device.backend.gather(stream.id(), &gather) }
    }

    /// The first of `ids`, if the ids are consecutive and the rows of every field are contiguous in host
    /// memory.
    fn contiguous(&self, ids: &[u64]) -> Option<usize> {
        let (&first, &last) = (ids.first()?, ids.last()?);
        let consecutive = ids.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        let whole = |field: &Field| {
            let is_host = matches!(self.blocks[field.block], Block::Registered(_));
            is_host && field.stride == field.row_bytes && last < field.rows as u64
        };
        (consecutive && self.fields.iter().all(whole)).then_some(first as usize)
    }
}

impl Block {
    fn accepts(&self, stream: &Arc<StreamCore>) -> Result<()> {
        match self {
            Self::Registered(registered) => registered.accepts(stream),
            Self::Resident(resident) => resident.accepts(stream),
        }
    }

    /// The host address of byte `offset`, if the block is host memory.
    fn host(&self, offset: usize) -> Option<*const u8> {
        match self {
            Self::Registered(registered) => Some(registered.host(offset)),
            Self::Resident(_) => None,
        }
    }

    /// The device address of byte `offset`.
    fn device(&self, offset: usize) -> Address {
        match self {
            Self::Registered(registered) => registered.device(offset),
            Self::Resident(resident) => resident.device(offset),
        }
    }

    fn host_bytes(&self) -> usize {
        match self {
            Self::Registered(registered) => registered.bytes().len(),
            Self::Resident(_) => 0,
        }
    }

    fn device_bytes(&self) -> usize {
        match self {
            Self::Registered(_) => 0,
            Self::Resident(resident) => resident.bytes(),
        }
    }
}

/// The column of field `index`, checked against the length and the spec.
fn column(dataset: &StableDataset, index: usize) -> Result<StridedColumn<'_>> {
    let (len, field) = (dataset.len(), &dataset.spec().fields()[index]);
    let refuse = |why: String| Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name()));
    if field.as_ragged().is_some() {
        return Err(refuse("varies in length: only rows of one size can be read in place".to_owned()));
    }
    let column = dataset.storage().column(index).ok_or_else(|| refuse("has no column".to_owned()))?;
    if column.row_bytes() != field.row_bytes() || (column.rows() as u64) < len {
        return Err(refuse(format!(
            "has a column of {} rows of {} bytes, the set has {len} rows of {}",
            column.rows(),
            column.row_bytes(),
            field.row_bytes()
        )));
    }
    // The device reads the rows directly, so no worker can check them.
    let row_of = |id| column.row(id).unwrap_or_default();
    if field.dtype() == DType::Bool
        && let Some(id) = (0..len).find(|&id| !DType::Bool.accepts(row_of(id)))
    {
        return Err(refuse(format!("is bool, and sample {id} has a byte that is neither 0 nor 1")));
    }
    Ok(column)
}

impl std::fmt::Debug for StridedColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StridedColumns({} fields, {} bytes)", self.fields.len(), self.bytes())
    }
}
