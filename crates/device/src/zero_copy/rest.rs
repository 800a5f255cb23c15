//! The contents of a host slot for a set that is partly on the device.

use feedline_core::Layout;

use super::GatherOrder;

/// The samples of a set that is partly on the device. The first samples are on the device, and workers read
/// the others.
///
/// A slot first holds the rows of a batch that workers have read, in the order of the batch, as the first
/// rows of the layout. The ids to gather follow. A sample on the device keeps its id. Every other sample is
/// copied to a row after the samples on the device, and its id is the number of this row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Samples below this id are on the device.
    pub(crate) kept: u64,
    /// Samples of the set.
    pub(crate) samples: u64,
}

impl Rest {
    /// Number of samples on the device. They have the smallest ids.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The number of samples of the set.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The bytes of a host slot for batches of `layout`.
    pub fn slot_bytes(layout: &Layout) -> usize {
        layout.bytes().saturating_add(GatherOrder::slot_bytes(layout.capacity()))
    }

    /// The number of `ids` that are not on the device.
    pub(crate) fn missing(&self, ids: &[u64]) -> usize {
        ids.iter().filter(|&&id| id >= self.kept).count()
    }

    /// Prepares `slot` for the copy. Moves the rows that workers have read to the front, and writes the ids
    /// to gather.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use feedline_core::{Dataset, InMemory, StableDataset};
    /// # use feedline_device::{Device, zero_copy::{Rest, StridedColumns}};
    /// // Two of eight samples fit, beside the rows of a batch.
    /// let set = InMemory::new().field("x", [256], vec![7_u8; 8 * 256])?;
    /// let set = StableDataset::new(Arc::new(set));
    /// let columns = StridedColumns::resident(&Device::new_host(), &set, 3, 5 * 256, 1)?;
    /// let layout = columns.layout();
    /// let rest = columns.rest().expect("a part is left");
    /// assert_eq!((rest.kept(), rest.samples()), (2, 8));
    /// let mut slot = vec![0; Rest::slot_bytes(layout)];
    /// slot[2 * 256] = 9; // row 2, sample 3
    /// rest.pack(layout, &[1, 0, 3], &mut slot);
    /// assert_eq!(slot[0], 9);
    /// assert_eq!(slot[layout.bytes()..][..24], [1_u64, 0, 2].map(u64::to_ne_bytes).concat());
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn pack(&self, layout: &Layout, ids: &[u64], slot: &mut [u8]) {
        let (rows, places) = slot.split_at_mut(layout.bytes());
        let mut missing = 0;
        for (row, (&id, place)) in ids.iter().zip(places.as_chunks_mut().0).enumerate() {
            if id < self.kept {
                *place = id.to_ne_bytes();
                continue;
            }
            *place = (self.kept + missing as u64).to_ne_bytes();
            for (index, field) in layout.spec().fields().iter().enumerate() {
                let (first, bytes) = (layout.offset(index), field.row_bytes());
                // Rows only move towards the front, because `missing` is at most `row`.
                rows.copy_within(first + row * bytes..first + (row + 1) * bytes, first + missing * bytes);
            }
            missing += 1;
        }
    }
}
