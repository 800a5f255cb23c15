//! Tests of row groups: their size in memory, and batches of their rows.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch};
use feedline_core::random::splitmix64;
use feedline_core::{Context, Dataset, Layout, Values};
use parquet::arrow::ArrowWriter;
use parquet::basic::BrotliLevel;
use parquet::data_type::{Int32Type, Int96, Int96Type};
use parquet::file::metadata::{FileMetaData, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::{Bounded, Nulls};

/// Bytes of a row.
const ROW: usize = 1000;

/// A column with the rows `rows`.
fn bytes(rows: Range<usize>) -> ArrayRef {
    let values = rows.map(|row| vec![row as u8; ROW]);
    Arc::new(FixedSizeBinaryArray::try_from_iter(values).unwrap())
}

/// Writes a file. Each row group has ten rows.
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
    // One row group has nulls, and the rows of one column are not contiguous.
    let number = |row: usize| (row / 10 != 3 || !row.is_multiple_of(4)).then_some(row as i64 * 7);
    let numbers = |rows: Range<usize>| -> ArrayRef { Arc::new(Int64Array::from_iter(rows.map(number))) };
    let bits = |rows: Range<usize>| Arc::new(BooleanArray::from_iter(rows.map(|row| Some(row % 3 == 0))));
    let shards = [0..ROWS, 30..30 + ROWS];
    for has_bits in [false, true] {
        let open = |nulls| {
            let shard = |rows: &Range<usize>| -> Arc<dyn Dataset> {
                let path = dir.path().join(format!("{}-{has_bits}.parquet", rows.start));
                let columns = [("x", bytes(rows.clone())), ("n", numbers(rows.clone()))];
                write(&path, columns.into_iter().chain(has_bits.then(|| ("b", bits(rows.clone()) as _))));
                // The cache holds one row group.
                let options = TableOptions { nulls, cache_bytes: 1, ..TableOptions::default() };
                Arc::new(ParquetFile::open_with(path, options).unwrap())
            };
            Bounded::new(Arc::new(crate::shards(shards.iter().map(shard).collect()).unwrap())).unwrap()
        };
        let data = open(Nulls::Fill);
        let layout = Layout::new(data.spec(), 16).unwrap();
        let work = |thread: u64| {
            let (mut slab, mut one, mut context) =
                (vec![0; layout.bytes()], vec![0; layout.bytes()], Context::new(0, 0));
            for first in 0..40 {
                // The ids have neighbours, and jumps between row groups and shards.
                let random = |at| splitmix64(thread << 16 | first << 8 | at);
                let id = |at| if first % 2 == 0 { first * 29 + at } else { random(at) };
                let ids = Vec::from_iter((0..16).map(|at| id(at) % data.len()));
                data.read_many(&ids, &mut feedline_core::Rows::new(&layout, &mut slab, 16), &mut context)
                    .unwrap();
                let mut rows = feedline_core::Rows::new(&layout, &mut one, 16);
                for (row, &id) in ids.iter().enumerate() {
                    data.read(id, &mut rows.row(row), &mut context).unwrap();
                }
                drop(rows);
                assert_eq!(slab, one, "{ids:?}");
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
        let has = |id| data.inner().storage().decoded(id).unwrap().unwrap().has(id);
        assert!((0..data.len()).all(has));
        // Row 2 of the second shard is row 32 here. It has a null.
        let mut slab = vec![0; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
        let read = open(Nulls::Refuse).read_many(&[74, 76, 75], &mut rows, &mut Context::new(0, 0));
        let (index, error) = read.unwrap_err();
        assert_eq!((index, error.to_string().contains("has a null in row 2")), (2, true), "{error}");
    }
}

/// A time of 96 bits: the Julian day and nanoseconds.
fn time(day: i32, nanos: u64) -> Int96 {
    let mut time = Int96::new();
    time.set_data(nanos as u32, (nanos >> 32) as u32, day as u32);
    time
}

#[test]
fn a_time_that_64_bits_cannot_hold_is_an_error_of_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("times.parquet");
    let schema = "message m {
        required int32 n; optional int96 t;
        optional group l (LIST) { repeated group list { required int96 element; } }
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    // The times are 1970-01-01, the first and the last nanosecond of 64 bits, and their neighbours.
    let first = || time(2_440_588 - 106_752, 763_145_224_192);
    let last = || time(2_440_588 + 106_751, 85_636_854_775_807);
    let (below, above) =
        (time(2_440_588 - 106_752, 763_145_224_191), time(2_440_588 + 106_751, 85_636_854_775_808));
    let good = time(2_440_588, 5);
    for group in 0..2 {
        let mut rows = writer.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[0, 1, 2, 3, 4, 5], None, None).unwrap();
        column.close().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        let times = if group == 0 { [first(), last(), above, good, good] } else { [good; 5] };
        column.typed::<Int96Type>().write_batch(&times, Some(&[1, 0, 1, 1, 1, 1]), None).unwrap();
        column.close().unwrap();
        // The rows have 1, 0, 2, 1, 1 and 1 items.
        let mut column = rows.next_column().unwrap().unwrap();
        let times = if group == 0 { [good, good, good, good, below, last()] } else { [good; 6] };
        let (defined, repeated) = ([2, 1, 2, 2, 2, 2, 2], [0, 0, 0, 1, 0, 0, 0]);
        column.typed::<Int96Type>().write_batch(&times, Some(&defined), Some(&repeated)).unwrap();
        column.close().unwrap();
        rows.close().unwrap();
    }
    writer.close().unwrap();

    let options = || TableOptions { nulls: Nulls::Fill, ..TableOptions::default() };
    let file = ParquetFile::open_with(&path, options()).unwrap();
    assert_eq!(file.spec().to_string(), "n i32 [], t i64 [], l i64 [?]");
    let (mut values, mut failed) = (Values::new(), Vec::new());
    for sample in 0..12 {
        match values.read(&file, sample) {
            Ok(()) if sample == 0 => assert_eq!(values.fields()[1].bytes, i64::MIN.to_le_bytes()),
            Ok(()) if sample == 2 => assert_eq!(values.fields()[1].bytes, i64::MAX.to_le_bytes()),
            Ok(()) => {}
            Err(error) => failed.push((sample, error.to_string())),
        }
    }
    let [(3, t), (4, l)] = &failed[..] else { panic!("{failed:?}") };
    assert!(t.starts_with("column \"t\" has a time in row 3 that 64 bits cannot hold"), "{t}");
    assert!(l.starts_with("column \"l.list.element\" has a time in row 4"), "{l}");
    // The other columns can be read, and batches see the same errors.
    let only = TableOptions { columns: Some(vec!["n".into(), "t".into()]), ..options() };
    let data = Bounded::new(Arc::new(ParquetFile::open_with(&path, only).unwrap())).unwrap();
    let layout = Layout::new(data.spec(), 6).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 6);
    let read = data.read_many(&[0, 1, 2, 3, 4, 5], &mut rows, &mut Context::new(0, 0));
    let (index, error) = read.unwrap_err();
    assert!(index == 3 && error.to_string().contains("that 64 bits cannot hold"), "{index}: {error}");
    // Batches without a missing value copy their rows. They see the same errors.
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
    let (index, error) = data.read_many(&[2, 3, 5], &mut rows, &mut Context::new(0, 0)).unwrap_err();
    assert!(index == 1 && error.to_string().contains("that 64 bits cannot hold"), "{index}: {error}");
}

#[test]
fn a_codec_that_is_not_read_is_refused_at_the_opening_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    write(&path, [("x", bytes(0..10)), ("y", bytes(0..10))]);
    // The writer lacks this codec. So only the metadata is changed to name it.
    let bytes = std::fs::read(&path).unwrap();
    let file = ParquetFile::open(&path).unwrap();
    let metadata = file.metadata.metadata();
    let mut groups = metadata.row_groups().to_vec();
    let mut columns = groups[0].columns().to_vec();
    for codec in [Compression::BROTLI(BrotliLevel::default()), Compression::LZO] {
        columns[1] = columns[1].clone().into_builder().set_compression(codec).build().unwrap();
        groups[0] = groups[0].clone().into_builder().set_column_metadata(columns.clone()).build().unwrap();
        let about: FileMetaData = metadata.file_metadata().clone();
        let changed = ParquetMetaData::new(about, groups.clone());
        let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
        let mut file = bytes[..bytes.len() - 8 - length].to_vec();
        ParquetMetaDataWriter::new(&mut file, &changed).finish().unwrap();
        std::fs::write(&path, file).unwrap();
        let error = ParquetFile::open(&path).unwrap_err();
        let name = if codec == Compression::LZO { "LZO" } else { "BROTLI" };
        let why = format!("column \"y\" is compressed by {name}, which is not read: write the file with");
        assert!(error.to_string().starts_with(&why), "{error}");
        assert_eq!(error.path(), Some(&*path));
        let only = TableOptions { columns: Some(vec!["x".into()]), ..TableOptions::default() };
        assert!(Values::new().read(&ParquetFile::open_with(&path, only).unwrap(), 9).is_ok());
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_open_is_not_a_damaged_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    write(&path, [("x", bytes(0..100))]);
    let file = ParquetFile::open(&path).unwrap();
    Values::new().read(&file, 0).unwrap();
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.set_len(9000).unwrap();
    let error = Values::new().read(&file, 99).unwrap_err().to_string();
    assert!(error.starts_with("the file was cut while it was in use"), "{error}");
    assert_eq!(error.matches("x.parquet").count(), 1, "{error}");
    // Replace the pages by zeros. The error must say changed, not damaged.
    writer.set_len(200_000).unwrap();
    let error = Values::new().read(&file, 99).unwrap_err().to_string();
    assert!(error.starts_with("the file was written to while it was in use"), "{error}");
}
