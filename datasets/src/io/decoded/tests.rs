//! Tests which parts workers hold while they read batches. The cache holds one part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::random::splitmix64;
use feedline_core::{
    Context, DType, Dataset, Decoded, DecodedRows, ElementType, Field, Layout, ReadError, Row, Spec, Storage,
};

use super::*;
use crate::Bounded;
use crate::error::data;
use crate::io::cache::Cache;

const PARTS: u64 = 64;
/// Samples of a part.
const ROWS: u64 = 8;
const THREADS: usize = 4;
const BATCH: usize = 64;

/// A sample has its number, and a text of varying length.
#[derive(Debug)]
struct Parts {
    schema: Spec,
    cache: Cache<Part>,
    bad: Option<u64>,
    /// The number of parts in memory.
    live: Arc<AtomicUsize>,
    most: AtomicUsize,
}

#[derive(Debug)]
struct Part {
    rows: Vec<[Vec<u8>; 2]>,
    live: Arc<AtomicUsize>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn fields(sample: u64) -> [Vec<u8>; 2] {
    [sample.to_le_bytes().into(), vec![sample as u8; sample as usize % 7]]
}

impl Parts {
    /// If `is_fixed` is true, samples have only the number. Decoding part `bad` fails.
    fn new(is_fixed: bool, bad: Option<u64>) -> Self {
        let number = Field::fixed("number", ElementType::Number(DType::I64), &[]);
        let text = Field::variable("text", ElementType::Bytes);
        let schema = Spec::of_fields([number, text].into_iter().take(if is_fixed { 1 } else { 2 }));
        let (live, most) = Default::default();
        Self { schema, cache: Cache::new(PARTS as usize, 1), bad, live, most }
    }

    fn part(&self, number: u64) -> feedline_core::Result<Arc<Part>> {
        self.cache.get(number as usize, || {
            if self.bad == Some(number) {
                return Err(data("a bad part"));
            }
            self.most.fetch_max(self.live.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let rows = (number * ROWS..(number + 1) * ROWS).map(fields).collect();
            Ok((Part { rows, live: self.live.clone() }, 1))
        })
    }
}

impl DecodedRows for Part {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        // Row 5 has no slice, so it is read alone.
        (row != 5).then(|| &self.rows[row][field][..])
    }
}

impl Dataset for Parts {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        PARTS * ROWS
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let part = self.part(sample / ROWS)?;
        let mut fields = part.rows[(sample % ROWS) as usize].iter().enumerate();
        Ok(fields.try_for_each(|(field, bytes)| row.put(field, bytes))?)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Parts {
    fn decoded(&self, sample: u64) -> feedline_core::Result<Option<Decoded>> {
        let number = sample / ROWS;
        Ok(Some(Decoded::new(number * ROWS..(number + 1) * ROWS, self.part(number)?)))
    }
}

/// Ids that jump between all parts, and runs of ids within one part.
fn batch(seed: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.len() < BATCH {
        let random = splitmix64(seed << 32 | ids.len() as u64);
        let run = if random & 1 == 0 { 1 } else { 1 + (random >> 1) % 15 };
        ids.extend((0..run).map(|step| (random >> 8) % PARTS * ROWS + (step * 3 + (random >> 40)) % ROWS));
    }
    ids.truncate(BATCH);
    ids
}

fn check(data: &dyn Dataset, parts: &Parts) {
    let layout = Layout::new(data.spec(), BATCH).unwrap();
    let work = |thread: u64| {
        let (mut slab, mut context) = (vec![0; layout.bytes()], Context::new(0, 0));
        for turn in 0..30 {
            let ids = batch(thread << 16 | turn);
            data.read_many(&ids, &mut feedline_core::Rows::new(&layout, &mut slab, BATCH), &mut context)
                .unwrap();
            for (row, &id) in ids.iter().enumerate() {
                let [number, text] = fields(id);
                assert_eq!(slab[layout.offset(0) + row * 8..][..8], number, "sample {id}");
                if data.spec().fields().len() == 2 {
                    assert_eq!(layout.row_values(&slab, 1, row), text, "sample {id}");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS as u64).for_each(|thread| drop(scope.spawn(move || work(thread))))
    });
    // The cache holds one part. A worker holds the parts that it reads, and one that the cache has evicted.
    let most = parts.most.load(Ordering::SeqCst);
    assert!(most <= 1 + (MAX_HELD + 1) * THREADS, "{most} parts in memory at a time");
    assert_eq!(parts.live.load(Ordering::SeqCst), 1, "parts in memory after the batches");
}

#[test]
fn a_worker_holds_four_parts_at_a_time_and_none_after_a_batch() {
    let parts = Arc::new(Parts::new(true, None));
    check(&Bounded::new(Arc::new(parts.clone())).unwrap(), &parts);
    let parts = Arc::new(Parts::new(false, None));
    check(&Bounded::limited(Arc::new(parts.clone()), 8).unwrap(), &parts);
}

#[test]
fn a_part_that_cannot_be_decoded_fails_at_its_first_sample() {
    let sets: [Box<dyn Dataset>; 2] = [
        Box::new(Bounded::new(Arc::new(Parts::new(true, Some(3)))).unwrap()),
        Box::new(Bounded::limited(Arc::new(Parts::new(false, Some(3))), 8).unwrap()),
    ];
    for data in sets {
        let layout = Layout::new(data.spec(), 6).unwrap();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 6);
        let ids = [1, 2, 30 * ROWS + 1, 1, 3 * ROWS + 2, 4];
        let (index, error) = data.read_many(&ids, &mut rows, &mut Context::new(0, 0)).unwrap_err();
        assert_eq!((index, error.to_string().contains("a bad part")), (4, true), "{error}");
        drop(rows);
        let written = |row: usize| &slab[layout.offset(0) + row * 8..][..8];
        (0..4).for_each(|row| assert_eq!(written(row), ids[row].to_le_bytes()));
    }
}
