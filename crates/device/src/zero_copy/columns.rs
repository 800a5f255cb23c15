//! A data set that the device reads itself: its tables, made readable, and the work that brings rows of them into a slot.

use std::sync::Arc;

use feedline_backend::{Address, Gather, GatherField};
use feedline_core::{Dataset, Error, ErrorKind, Layout, Result, StridedColumn};

use crate::Device;
use crate::stream::StreamCore;
use crate::zero_copy::gather_order::GatherOrder;
use crate::zero_copy::registered::Registered;

/// A table for every field of a data set, readable by the device as long as this lives, which keeps the set.
///
/// Dropping it waits for the stream that reads it.
pub struct StridedColumns {
    blocks: Vec<Registered>,
    fields: Vec<Field>,
    gather_order: GatherOrder,
    capacity: usize,
    /// Bytes of a slot that takes a batch.
    slot_bytes: usize,
}

/// Where the rows of one field lie, and where they go.
struct Field {
    /// Which of the blocks.
    block: usize,
    first: usize,
    stride: usize,
    rows: usize,
    row_bytes: usize,
    /// In a slot.
    offset: usize,
}

impl StridedColumns {
    /// Makes the tables of `dataset` readable, for batches of `layout`; at most `room` bytes of host memory, which count as
    /// page-locked in the device's [`DeviceStats`](crate::DeviceStats).
    ///
    /// Blocks for about 20 ms a GiB on a GPU, and for the disk where a mapped file is not in memory.
    ///
    /// # Errors
    /// Why it cannot be, in one line: `Config` for a field that has no table, `Budget` for tables beyond `room`, `Unavailable`
    /// when this device cannot read them. A device failure.
    pub fn new(device: &Device, dataset: &Arc<dyn Dataset>, layout: &Layout, room: usize) -> Result<Self> {
        let mut blocks: Vec<*const [u8]> = Vec::new();
        let mut fields = Vec::new();
        // Asked once: a set that breaks its promise may give another length at each call.
        let len = dataset.len();
        for index in 0..layout.spec().fields().len() {
            let column = column(&**dataset, len, layout, index)?;
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
                offset: layout.offset(index),
            });
        }
        let asked = blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.len()));
        if asked > room {
            let why = format!("the set has {asked} bytes, the budget of pinned memory has {room} left");
            return Err(Error::new(ErrorKind::Budget, why));
        }
        let register = |bytes| {
            // SAFETY: `Dataset::column` lent the bytes for as long as the set is borrowed, and a set that stands behind an `Arc`,
            // of which `Registered` keeps a clone, is only ever lent out shared.
            let registered = unsafe { Registered::new(device.core(), dataset.clone(), bytes) }?;
            let cannot = || {
                Error::new(ErrorKind::Unavailable, format!("{} cannot read the set's memory", device.name()))
            };
            registered.ok_or_else(cannot)
        };
        let blocks = blocks.into_iter().map(register).collect::<Result<_>>()?;
        let gather_order = GatherOrder::new(len, asked);
        Ok(Self { blocks, fields, gather_order, capacity: layout.capacity(), slot_bytes: layout.bytes() })
    }

    /// Bytes of host memory that the device can read.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes().len()).sum()
    }

    /// The number of samples that every field has a row of. A row of a sample beyond it would be zeros, so a
    /// plan of more samples must be refused.
    pub fn samples(&self) -> u64 {
        self.fields.iter().map(|field| field.rows as u64).min().unwrap_or(0)
    }

    /// How the ids of a batch stand in a host slot.
    pub fn gather_order(&self) -> GatherOrder {
        self.gather_order
    }

    /// Refuses another stream than that of the first batch, and batches and slots of another layout.
    pub(crate) fn accepts(
        &self,
        stream: &Arc<StreamCore>,
        rows: usize,
        host_bytes: usize,
        slot_bytes: usize,
    ) -> Result<()> {
        let ids = self.gather_order.bytes(rows);
        if rows > self.capacity || slot_bytes < self.slot_bytes || host_bytes < ids {
            let why = format!(
                "{rows} rows do not fit: {} are a batch of {} bytes, their ids {ids}; the host slot has {host_bytes}, the \
                 device slot {slot_bytes}",
                self.capacity, self.slot_bytes
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.blocks.iter().try_for_each(|block| block.accepts(stream))
    }

    /// Gives `stream` the work that brings rows `ids` into the slot at `to`: the copy engine, where they lie in one piece,
    /// else a gather that reads the same ids at `visits_at`, where `GatherOrder` has put them.
    ///
    /// # Safety
    /// `accepts` was asked. What stands at `visits_at` stays until the work has ended, and nothing unordered uses the slot.
    pub(crate) unsafe fn send(
        &self,
        stream: &StreamCore,
        ids: &[u64],
        visits_at: *const u8,
        to: Address,
    ) -> Result<()> {
        if let Some(first) = self.in_one_piece(ids) {
            for field in &self.fields {
                let from = self.blocks[field.block].host(field.first + first * field.stride);
                let (to, bytes) = (Address(to.0 + field.offset as u64), ids.len() * field.row_bytes);
                // SAFETY: the rows are some of the table's (`in_one_piece`), which `StridedColumn::new` has checked to lie in its
                // bytes, and `Registered` keeps them until the stream is drained; the rest is the caller's promise.
                unsafe { stream.device.backend.copy_to_device(stream.id(), from, to, bytes) }?;
            }
            return Ok(());
        }
        let field = |field: &Field| GatherField {
            src: self.blocks[field.block].device(field.first),
            stride: field.stride,
            rows: field.rows,
            to: Address(to.0 + field.offset as u64),
            row_bytes: field.row_bytes,
        };
        let at = |offset| Address(visits_at as u64 + offset as u64);
        let places = self.gather_order.places(ids.len()).map(at);
        let gather = Gather::new(at(0), places, ids.len(), self.fields.iter().map(field))?;
        // SAFETY: every row of a table lies in its bytes (`StridedColumn::new`), which `Registered` keeps until the stream is
        // drained; other ids are not read for (`GatherField::rows`), and other places are not written to (`Gather::places`); the
        // rest is the caller's promise.
        unsafe { stream.device.backend.gather(stream.id(), &gather) }
    }

    /// The first of `ids`, when they are one after the other and all fields' rows too, without gaps.
    fn in_one_piece(&self, ids: &[u64]) -> Option<usize> {
        let (&first, &last) = (ids.first()?, ids.last()?);
        let consecutive = ids.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        let whole = |field: &Field| field.stride == field.row_bytes && last < field.rows as u64;
        (consecutive && self.fields.iter().all(whole)).then_some(first as usize)
    }
}

/// The table of field `index`, if it is what the layout says.
fn column<'a>(
    dataset: &'a dyn Dataset,
    len: u64,
    layout: &Layout,
    index: usize,
) -> Result<StridedColumn<'a>> {
    let field = &layout.spec().fields()[index];
    let refuse = |why: String| Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name()));
    let column = dataset.column(index).ok_or_else(|| refuse("has no table".to_owned()))?;
    if column.row_bytes() != field.row_bytes() || (column.rows() as u64) < len {
        return Err(refuse(format!(
            "has a table of {} rows of {} bytes, the set is {len} of {}",
            column.rows(),
            column.row_bytes(),
            field.row_bytes()
        )));
    }
    Ok(column)
}

impl std::fmt::Debug for StridedColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StridedColumns({} fields, {} bytes)", self.fields.len(), self.bytes())
    }
}
