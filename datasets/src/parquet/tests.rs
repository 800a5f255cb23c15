//! What a decoded row group takes in memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::*;

/// Bytes of a row.
const ROW: usize = 1000;

/// A file of `rows` rows in row groups of ten.
fn write(path: &Path, rows: usize) {
    let values = (0..rows).map(|row| vec![row as u8; ROW]);
    let column: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(values).unwrap());
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
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
    write(&path, 2000);
    let file = ParquetFile::open(&path).unwrap();
    assert_eq!(file.row_groups(), 200);
    let (group, bytes) = file.decode(3).unwrap();
    assert_eq!((group.batches.len(), group.rows), (1, 10));
    assert!((10 * ROW as u64..=20 * ROW as u64).contains(&bytes), "{bytes} bytes of ten rows");
}
