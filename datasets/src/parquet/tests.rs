//! Row groups: what they take in memory, and batches of their rows.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch};
use feedline_core::random::splitmix64;
use feedline_core::{Context, Dataset, Layout, Rows};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::*;
use crate::{Fixed, Nulls, Shards};

/// Bytes of a row.
const ROW: usize = 1000;

/// A column of rows.
fn bytes(rows: Range<usize>) -> ArrayRef {
    let values = rows.map(|row| vec![row as u8; ROW]);
    Arc::new(FixedSizeBinaryArray::try_from_iter(values).unwrap())
}

/// A file in row groups of ten rows.
fn write(path: &Path, columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(10))
        .build();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_row_group_takes_the_memory_of_its_own_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.parquet");
    write(&path, [("x", bytes(0..2000))]);
    let file = ParquetFile::open(&path).unwrap();
    assert_eq!(file.row_groups(), 200);
    let (group, bytes) = file.decode(3).unwrap();
    assert_eq!((group.batches.len(), group.rows), (1, 10));
    assert!((10 * ROW as u64..=20 * ROW as u64).contains(&bytes), "{bytes} bytes of ten rows");
}

#[test]
fn batches_of_any_order_are_the_samples_that_are_read_one_by_one() {
    const ROWS: usize = 73;
    let dir = tempfile::tempdir().unwrap();
    // Nulls in one row group alone, and a column whose rows do not lie ready.
    let number = |row: usize| (row / 10 != 3 || !row.is_multiple_of(4)).then_some(row as i64 * 7);
    let numbers = |rows: Range<usize>| -> ArrayRef { Arc::new(Int64Array::from_iter(rows.map(number))) };
    let bits = |rows: Range<usize>| Arc::new(BooleanArray::from_iter(rows.map(|row| Some(row % 3 == 0))));
    let shards = [0..ROWS, 30..30 + ROWS];
    for has_bits in [false, true] {
        let open = |nulls| {
            let shard = |rows: &Range<usize>| -> Box<dyn Reader> {
                let path = dir.path().join(format!("{}-{has_bits}.parquet", rows.start));
                let columns = [("x", bytes(rows.clone())), ("n", numbers(rows.clone()))];
                write(&path, columns.into_iter().chain(has_bits.then(|| ("b", bits(rows.clone()) as _))));
                // The cache holds one row group.
                let options = TableOptions { nulls, cache_bytes: 1, ..TableOptions::default() };
                Box::new(ParquetFile::open_with(path, options).unwrap())
            };
            Fixed::new(Box::new(Shards::new(shards.iter().map(shard).collect()).unwrap())).unwrap()
        };
        let data = open(Nulls::Fill);
        let layout = Layout::new(data.spec(), 16).unwrap();
        let work = |thread: u64| {
            let (mut slab, mut one, mut context) =
                (vec![0; layout.bytes()], vec![0; layout.bytes()], Context::new(0, 0));
            for first in 0..40 {
                // Neighbours, and jumps between row groups and shards.
                let random = |at| splitmix64(thread << 16 | first << 8 | at);
                let id = |at| if first % 2 == 0 { first * 29 + at } else { random(at) };
                let ids = Vec::from_iter((0..16).map(|at| id(at) % data.len()));
                data.read_many(&ids, &mut Rows::new(&layout, &mut slab, 16), &mut context).unwrap();
                let mut rows = Rows::new(&layout, &mut one, 16);
                for (row, &id) in ids.iter().enumerate() {
                    data.read(id, &mut rows.row(row), &mut context).unwrap();
                }
                drop(rows);
                assert_eq!(slab, one, "{ids:?}");
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
        let has = |id| data.reader().decoded(id).unwrap().unwrap().has(id);
        assert!((0..data.len()).all(has));
        // Row 2 of the second shard is row 32 here, and has a null.
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 3);
        let read = open(Nulls::Refuse).read_many(&[74, 76, 75], &mut rows, &mut Context::new(0, 0));
        let (index, error) = read.unwrap_err();
        assert_eq!((index, error.to_string().contains("has a null in row 2")), (2, true), "{error}");
    }
}
