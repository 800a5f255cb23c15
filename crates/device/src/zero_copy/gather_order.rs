//! What a host slot of the direct road holds: the ids of a batch, and the order in which their rows are visited.

/// Bytes of a set beyond which the rows of a batch are visited in the order in which they lie.
///
/// A GPU reads host memory by 4 KiB pages, and knows the addresses of so many only. On an H200, 784-byte rows by a batch of
/// 4096 random ids came at 41.5 GB/s from 512 MiB, 38 from 1 GiB, 31 from 4 GiB; by the same ids sorted at 41.4, 41.8 and 34;
/// by ids near each other at 42 from any length.
const FAR: usize = 512 << 20;

/// Fewer rows than these are on their way all at once, in whatever order.
const ROWS: usize = 256;

/// The most buckets of a batch, which has about one for each row: rows of one bucket are visited in the order of the batch, rows
/// of different ones as they lie. 4096 ids take 27 us so on a Xeon, and 97 by a whole sort: longer than their rows take on the
/// wire.
const BUCKETS: usize = 4096;

/// How the ids of a batch stand in a host slot, and in which order the device visits their rows.
///
/// A slot holds the ids, each a `u64`, in the order of the visits. Behind them, where that is not the order of the batch, stands
/// the row of the batch that each belongs to, a `u32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherOrder {
    /// Bits of an id; `None` for sets that are visited in the order of the batch.
    bits: Option<u32>,
}

impl GatherOrder {
    /// For a set of `len` samples that lie in `bytes` bytes.
    pub fn new(len: u64, bytes: usize) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { bits: (bytes > FAR).then_some(bits) }
    }

    /// Bytes of a host slot for batches of up to `rows`, whatever the set.
    pub fn slot_bytes(rows: usize) -> usize {
        let place = if ordered(rows) { size_of::<u32>() } else { 0 };
        rows.saturating_mul(size_of::<u64>() + place)
    }

    /// Writes a batch into a slot: at least [`slot_bytes`](Self::slot_bytes) of so many rows.
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
            Some(bits) if ordered(ids.len()) => write_ordered(bits, ids, slot),
            _ => {
                for (place, id) in slot.chunks_exact_mut(size_of::<u64>()).zip(ids) {
                    place.copy_from_slice(&id.to_ne_bytes());
                }
            }
        }
    }

    /// Bytes of a batch of `rows` in a slot.
    pub(crate) fn bytes(&self, rows: usize) -> usize {
        if self.bits.is_some() { Self::slot_bytes(rows) } else { rows.saturating_mul(size_of::<u64>()) }
    }

    /// Where in a slot the rows of a batch of `rows` stand to which its ids belong, when they are not in the batch's order.
    pub(crate) fn places(&self, rows: usize) -> Option<usize> {
        (self.bits.is_some() && ordered(rows)).then_some(rows * size_of::<u64>())
    }
}

/// Whether a batch of `rows` of a set that lies far apart has an order of its own.
fn ordered(rows: usize) -> bool {
    (ROWS..=u32::MAX as usize).contains(&rows)
}

/// An id's upper bits are its bucket. One pass counts the ids of each bucket, one puts every id behind those of the buckets
/// before its own.
fn write_ordered(bits: u32, ids: &[u64], slot: &mut [u8]) {
    let buckets = ids.len().next_power_of_two().min(BUCKETS);
    let shift = bits.saturating_sub(buckets.ilog2());
    let bucket = |id: u64| ((id >> shift) as usize).min(buckets - 1);
    let mut next = [0_u32; BUCKETS];
    ids.iter().for_each(|&id| next[bucket(id)] += 1);
    let mut before = 0;
    for count in &mut next[..buckets] {
        before += std::mem::replace(count, before);
    }
    let (gather_order, places) = slot.split_at_mut(size_of_val(ids));
    let (gather_order, places) = (gather_order.as_chunks_mut().0, places.as_chunks_mut().0);
    for (place, &id) in (0_u32..).zip(ids) {
        let visit = &mut next[bucket(id)];
        gather_order[*visit as usize] = id.to_ne_bytes();
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

    /// The ids and places that a slot holds.
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
    fn rows_of_a_long_set_are_visited_bucket_by_bucket() {
        let gather_order = GatherOrder::new(LEN, FAR + 1);
        for rows in [ROWS, 1000, 4096, 10_000] {
            let ids = shuffled(rows);
            let (visited, places) = written(gather_order, &ids);
            let places = places.expect("an order");
            // Each place once, and its own id there.
            assert!(visited.iter().zip(&places).all(|(&id, &place)| ids[place] == id));
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..rows));
            // Of 2^23 ids, the next power; within a bucket, the order is the batch's.
            let bucket = (1 << 23) / rows.next_power_of_two().min(BUCKETS) as u64;
            let keys: Vec<_> = visited.iter().zip(places).map(|(&id, place)| (id / bucket, place)).collect();
            assert!(keys.is_sorted());
        }
    }

    #[test]
    fn short_batches_and_sets_are_visited_in_the_order_of_the_batch() {
        let (few, many) = (shuffled(ROWS - 1), shuffled(4096));
        assert_eq!(written(GatherOrder::new(LEN, FAR + 1), &few), (few, None));
        assert_eq!(written(GatherOrder::new(LEN, FAR), &many), (many.clone(), None));
        assert_eq!(written(GatherOrder::default(), &[]), (Vec::new(), None));
        assert_eq!(
            (GatherOrder::slot_bytes(ROWS - 1), GatherOrder::slot_bytes(ROWS)),
            (8 * (ROWS - 1), 12 * ROWS)
        );
        assert_eq!(GatherOrder::slot_bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn sets_of_any_length_have_their_buckets_and_ids_that_are_none_the_last() {
        for len in [0, 1, 2, 255, 256, 257, 5000, 1 << 40, u64::MAX] {
            let mut ids: Vec<_> =
                (0..ROWS as u64).map(|row| row.wrapping_mul(len / 7 + 1) % len.max(1)).collect();
            ids[3] = u64::MAX;
            ids[9] = len;
            let (visited, places) = written(GatherOrder::new(len, usize::MAX), &ids);
            assert!(visited.iter().zip(places.expect("an order")).all(|(&id, place)| ids[place] == id));
        }
    }
}
