//! The contents of a host slot for zero-copy transfer: the ids of a batch, in gather order.

/// Size of a data set in bytes. Above it, the rows of a batch are read in the order of the data set.
///
/// A GPU reads host memory by 4 KiB pages and caches a limited number of their addresses. On an H200,
/// 784-byte rows of a batch of 4096 random ids arrived at 41.5 GB/s from 512 MiB, 38 from 1 GiB and 31 from 4
/// GiB. Sorted by id, the same rows arrived at 41.4, 41.8 and 34 GB/s. Rows of neighbouring ids arrived at 42
/// GB/s for any size.
const LARGE: usize = 512 << 20;

/// Min rows of a batch to reorder. The rows of smaller batches are all in flight at once, so their order does
/// not matter.
const MIN_ROWS: usize = 256;

/// The max number of buckets. A batch has about one bucket per row. Rows in the same bucket keep the order of
/// the batch, and buckets are in the order of the data set. For 4096 ids this takes 27 us on a Xeon. A full
/// sort takes 97 us, which is longer than the transfer of the rows.
const BUCKETS: usize = 4096;

/// The format of a batch's ids in a host slot, and the order in which the device reads their rows.
///
/// A slot holds the ids (`u64`) in gather order. If that is not the order of the batch, the ids are
/// followed by the batch row of each id (`u32`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherOrder {
    /// The number of bits of an id; `None` for sets that keep the order of the batch.
    bits: Option<u32>,
}

impl GatherOrder {
    /// The order for a set of `len` samples in `bytes` bytes.
    pub fn new(len: u64, bytes: usize) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { bits: (bytes > LARGE).then_some(bits) }
    }

    /// The bytes of a host slot for batches of up to `rows` rows, for any data set.
    pub fn slot_bytes(rows: usize) -> usize {
        let place = if is_reordered(rows) { size_of::<u32>() } else { 0 };
        rows.saturating_mul(size_of::<u64>() + place)
    }

    /// Writes the ids of a batch into a slot. The slot must have at least [`slot_bytes`](Self::slot_bytes)
    /// bytes for this number of rows.
    ///
    /// ```
    /// use feedline_device::zero_copy::GatherOrder;
    ///
    /// let mut slot = vec![0; GatherOrder::slot_bytes(3)];
    /// GatherOrder::default().write(&[7, 1, 4], &mut slot);
    /// assert_eq!(slot, [7_u64, 1, 4].map(u64::to_ne_bytes).concat());
    /// ```
    pub fn write(&self, ids: &[u64], slot: &mut [u8]) {
        match self.bits {
            Some(bits) if is_reordered(ids.len()) => write_reordered(bits, ids, slot),
            _ => {
                for (place, id) in slot.chunks_exact_mut(size_of::<u64>()).zip(ids) {
                    place.copy_from_slice(&id.to_ne_bytes());
                }
            }
        }
    }

    /// The bytes that a batch of `rows` rows uses in a slot.
    pub(crate) fn bytes(&self, rows: usize) -> usize {
        if self.bits.is_some() { Self::slot_bytes(rows) } else { rows.saturating_mul(size_of::<u64>()) }
    }

    /// The offset in a slot of the batch rows of the ids, for a batch of `rows` rows; `None` if the ids are
    /// in the order of the batch.
    pub(crate) fn places(&self, rows: usize) -> Option<usize> {
        (self.bits.is_some() && is_reordered(rows)).then_some(rows * size_of::<u64>())
    }
}

/// Whether a batch of `rows` rows of a large set is reordered.
fn is_reordered(rows: usize) -> bool {
    (MIN_ROWS..=u32::MAX as usize).contains(&rows)
}

/// Writes the ids of a batch in gather order. The upper bits of an id select its bucket. One pass counts the
/// ids per bucket. A second pass places each id after the ids of the earlier buckets.
fn write_reordered(bits: u32, ids: &[u64], slot: &mut [u8]) {
    let buckets = ids.len().next_power_of_two().min(BUCKETS);
    let shift = bits.saturating_sub(buckets.ilog2());
    let bucket = |id: u64| ((id >> shift) as usize).min(buckets - 1);
    let mut next = [0_u32; BUCKETS];
    ids.iter().for_each(|&id| next[bucket(id)] += 1);
    let mut before = 0;
    for count in &mut next[..buckets] {
        before += std::mem::replace(count, before);
    }
    let (ordered, places) = slot.split_at_mut(size_of_val(ids));
    let (ordered, places) = (ordered.as_chunks_mut().0, places.as_chunks_mut().0);
    for (place, &id) in (0_u32..).zip(ids) {
        let visit = &mut next[bucket(id)];
        ordered[*visit as usize] = id.to_ne_bytes();
        places[*visit as usize] = place.to_ne_bytes();
        *visit += 1;
    }
}

#[cfg(test)]
mod tests {
    use feedline_core::random::key;

    use super::*;

    const LEN: u64 = 5_000_000;

    fn shuffled(rows: usize) -> Vec<u64> {
        (0..rows as u64).map(|row| key(&[row]) % LEN).collect()
    }

    /// The ids and places in a slot after a write.
    fn written(gather_order: GatherOrder, ids: &[u64]) -> (Vec<u64>, Option<Vec<usize>>) {
        let mut slot = vec![0; GatherOrder::slot_bytes(ids.len())];
        gather_order.write(ids, &mut slot);
        let (of_ids, of_places) = slot[..gather_order.bytes(ids.len())].split_at(8 * ids.len());
        let places = of_places.as_chunks().0.iter().map(|place| u32::from_ne_bytes(*place) as usize);
        let places = gather_order.places(ids.len()).map(|at| {
            assert_eq!(at, 8 * ids.len());
            places.collect()
        });
        (of_ids.as_chunks().0.iter().map(|id| u64::from_ne_bytes(*id)).collect(), places)
    }

    #[test]
    fn rows_of_a_large_set_are_ordered_by_bucket() {
        let gather_order = GatherOrder::new(LEN, LARGE + 1);
        for rows in [MIN_ROWS, 1000, 4096, 10_000] {
            let ids = shuffled(rows);
            let (visited, places) = written(gather_order, &ids);
            let places = places.expect("a gather order");
            // Each place occurs once, with its own id.
            assert!(visited.iter().zip(&places).all(|(&id, &place)| ids[place] == id));
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..rows));
            // 2^23 is the power of two above the largest id. Rows in the same bucket keep the order of the
            // batch.
            let bucket = (1 << 23) / rows.next_power_of_two().min(BUCKETS) as u64;
            let keys: Vec<_> = visited.iter().zip(places).map(|(&id, place)| (id / bucket, place)).collect();
            assert!(keys.is_sorted());
        }
    }

    #[test]
    fn small_batches_and_sets_keep_the_order_of_the_batch() {
        let (few, many) = (shuffled(MIN_ROWS - 1), shuffled(4096));
        assert_eq!(written(GatherOrder::new(LEN, LARGE + 1), &few), (few, None));
        assert_eq!(written(GatherOrder::new(LEN, LARGE), &many), (many.clone(), None));
        assert_eq!(written(GatherOrder::default(), &[]), (Vec::new(), None));
        assert_eq!(
            (GatherOrder::slot_bytes(MIN_ROWS - 1), GatherOrder::slot_bytes(MIN_ROWS)),
            (8 * (MIN_ROWS - 1), 12 * MIN_ROWS)
        );
        assert_eq!(GatherOrder::slot_bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn ids_of_sets_of_any_length_and_ids_out_of_range_are_kept() {
        for len in [0, 1, 2, 255, 256, 257, 5000, 1 << 40, u64::MAX] {
            let mut ids: Vec<_> =
                (0..MIN_ROWS as u64).map(|row| row.wrapping_mul(len / 7 + 1) % len.max(1)).collect();
            ids[3] = u64::MAX;
            ids[9] = len;
            let (visited, places) = written(GatherOrder::new(len, usize::MAX), &ids);
            assert!(visited.iter().zip(places.expect("a gather order")).all(|(&id, place)| ids[place] == id));
        }
    }
}
