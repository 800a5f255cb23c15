//! Samples that say who they are.

use feedline_core::{Context, DType, Dataset, Layout, ReadError, Result, Row, Spec};

use crate::pattern;

/// Samples of an id and self-describing bytes: field 0 `id` (i64, scalar), field 1 `bytes` (u8, `[row_bytes]`).
///
/// The bytes depend on seed, epoch and id, so a row of an earlier epoch is told from one of this.
#[derive(Clone, Debug)]
pub struct Fine {
    spec: Spec,
    len: u64,
    seed: u64,
}

impl Fine {
    /// The field of ids.
    pub const ID: usize = 0;
    /// The field of bytes.
    pub const BYTES: usize = 1;

    /// `len` samples of `row_bytes` bytes beside their id.
    ///
    /// # Errors
    /// `Config` when `row_bytes` is zero.
    pub fn new(len: u64, row_bytes: usize) -> Result<Self> {
        let spec = Spec::new().field("id", DType::I64, [])?.field("bytes", DType::U8, [row_bytes])?;
        Ok(Self { spec, len, seed: 0 })
    }

    /// The same samples with other bytes.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The key of the bytes in `epoch`, for [`pattern`] and the kernel that checks on the device.
    pub fn key(&self, epoch: u64) -> u64 {
        pattern::part_key(self.seed, epoch, Self::BYTES as u64)
    }

    /// Checks the first `rows` rows of a batch in `slab`, and returns their ids.
    ///
    /// # Errors
    /// The first wrong byte, with the position of its row in the batch.
    pub fn check(
        &self,
        epoch: u64,
        layout: &Layout,
        rows: usize,
        slab: &[u8],
    ) -> Result<Vec<u64>, (usize, pattern::Wrong)> {
        let width = self.spec.fields()[Self::BYTES].row_bytes();
        let ids = slab[layout.offset(Self::ID)..].chunks_exact(8);
        let bytes = slab[layout.offset(Self::BYTES)..].chunks_exact(width);
        ids.zip(bytes)
            .take(rows)
            .enumerate()
            .map(|(row, (id, bytes))| {
                let id = id.iter().rev().fold(0, |id, &byte| id << 8 | u64::from(byte));
                pattern::check(bytes, self.key(epoch), id).map(|()| id).map_err(|wrong| (row, wrong))
            })
            .collect()
    }
}

impl Dataset for Fine {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(Self::ID)?[0] = id as i64;
        pattern::fill(row.bytes_mut(Self::BYTES), self.key(context.epoch()), id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use feedline_core::Rows;

    use super::*;

    fn batch(fine: &Fine, epoch: u64, ids: &[u64]) -> (Layout, Vec<u8>) {
        let layout = Layout::new(fine.spec(), ids.len()).unwrap();
        let mut slab = vec![0; layout.bytes()];
        let mut context = Context::new(0, epoch);
        fine.read_many(ids, &mut Rows::new(&layout, &mut slab, ids.len()), &mut context).unwrap();
        (layout, slab)
    }

    #[test]
    fn a_batch_is_known_by_its_bytes() {
        let fine = Fine::new(1000, 37).unwrap().seed(5);
        let (layout, slab) = batch(&fine, 3, &[900, 2, 77]);
        assert_eq!(fine.check(3, &layout, 3, &slab), Ok(vec![900, 2, 77]));
    }

    #[test]
    fn swapped_stale_and_torn_rows_are_found() {
        let fine = Fine::new(10, 16).unwrap();
        let (layout, good) = batch(&fine, 0, &[1, 2, 3]);
        let at = layout.offset(Fine::BYTES);

        let mut swapped = good.clone();
        swapped.copy_within(at + 16..at + 32, at);
        assert_eq!(fine.check(0, &layout, 3, &swapped).unwrap_err().0, 0);

        assert_eq!(fine.check(1, &layout, 3, &good).unwrap_err().0, 0, "a batch of the epoch before");

        let mut torn = good;
        torn[at + 40] ^= 4;
        let (row, wrong) = fine.check(0, &layout, 3, &torn).unwrap_err();
        assert_eq!((row, wrong.id, wrong.byte, wrong.count), (2, 3, 8, 1));
    }
}
