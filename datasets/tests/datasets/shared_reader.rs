//! A pointer to a reader answers as the reader does.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{DType, Prefetched, Result, StridedColumn};
use feedline_datasets::{Decoded, DecodedRows, ElementType, Reader, Schema, SchemaField, Values, Visit};

/// Each answer differs from the default of its method.
#[derive(Debug)]
struct Odd {
    schema: Schema,
    classes: Vec<String>,
    column: Vec<u8>,
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct NoRows;

impl DecodedRows for NoRows {
    fn slice(&self, _: usize, _: usize) -> Option<&[u8]> {
        None
    }
}

impl Reader for Odd {
    fn format(&self) -> &'static str {
        "odd"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        4
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        values.begin(1)[0].set_bytes(&[sample as u8]);
        Ok(())
    }

    fn visit(&self, sample: u64, _: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        to(7, &[sample as u8 + 100])
    }

    fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
        StridedColumn::new(&self.column, 0, 1, 4, 1).ok()
    }

    fn slice(&self, _: u64, _: usize) -> Option<&[u8]> {
        Some(b"slice")
    }

    fn together(&self) -> Option<u64> {
        Some(3)
    }

    fn block_shuffle(&self) -> Option<(u64, u64)> {
        Some((5, 6))
    }

    fn decoded_bytes(&self) -> u64 {
        7
    }

    fn ticks_per_day(&self, _: usize) -> Option<u64> {
        Some(8)
    }

    fn decoded(&self, _: u64) -> Result<Option<Decoded>> {
        Ok(Some(Decoded::new(1..3, Arc::new(NoRows))))
    }

    fn neighbours(&self, _: u64) -> Range<u64> {
        0..4
    }

    fn forget(&self, sample: u64) {
        self.forgotten.store(sample, Ordering::Relaxed);
    }

    fn row_memory(&self) -> u64 {
        9
    }

    fn prefetch(&self, _: &[u64]) -> Prefetched {
        Prefetched::Pending
    }

    fn classes(&self) -> Option<&[String]> {
        Some(&self.classes)
    }

    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok(Some(vec![vec![1, 2]]))
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(Path::new("path"))
    }

    fn field_path(&self, _: u64, _: usize) -> Option<&Path> {
        Some(Path::new("of a field"))
    }

    fn fingerprint(&self) -> u64 {
        11
    }
}

#[test]
fn a_shared_reader_answers_as_the_reader_itself() {
    let fields = vec![SchemaField::fixed("x", ElementType::Number(DType::U8), &[])];
    let (schema, classes) = (Schema::new(fields), vec!["ant".to_owned()]);
    let odd = Arc::new(Odd { schema, classes, column: vec![1; 4], forgotten: 0.into() });
    let inside: Arc<dyn Reader> = odd.clone();
    let shared: Box<dyn Reader> = Box::new(inside);
    let (mut values, mut visited) = (Values::new(), Vec::new());
    shared.read(2, &mut values).unwrap();
    let mut visit = |field: usize, bytes: &[u8]| {
        visited.push((field, bytes.to_vec()));
        Ok(())
    };
    shared.visit(2, &mut values, &mut visit).unwrap();
    assert_eq!((values.fields()[0].bytes[0], visited), (2, vec![(7, vec![102])]));
    assert_eq!((shared.format(), shared.len(), shared.is_empty()), ("odd", 4, true));
    assert_eq!(shared.schema(), odd.schema());
    assert!(shared.column(0).is_some());
    assert_eq!(shared.slice(0, 0), Some(&b"slice"[..]));
    assert_eq!((shared.together(), shared.block_shuffle()), (Some(3), Some((5, 6))));
    assert_eq!(shared.decoded_bytes(), 7);
    assert_eq!((shared.ticks_per_day(0), shared.neighbours(1), shared.row_memory()), (Some(8), 0..4, 9));
    assert_eq!(shared.decoded(0).unwrap().unwrap().samples(), 1..3);
    shared.forget(3);
    assert_eq!(odd.forgotten.load(Ordering::Relaxed), 3);
    assert_eq!((shared.prefetch(&[]), shared.classes()), (Prefetched::Pending, odd.classes()));
    assert_eq!(shared.lengths().unwrap(), Some(vec![vec![1, 2]]));
    assert_eq!((shared.path(0), shared.field_path(0, 0)), (odd.path(0), odd.field_path(0, 0)));
    assert_eq!(shared.fingerprint(), 11);
}
