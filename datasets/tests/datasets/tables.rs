//! Arrow and Parquet files of every type, as pyarrow wrote them, and damaged ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::described::{describe, hex};
use crate::made::{read, write};
use feedline_core::{Dataset, Values};
use feedline_datasets::labelled::{Labelled, LabelledOptions};
use feedline_datasets::{
    ArrowFile, ArrowTable, Bounded, Missing, Nulls, OpenOptions, ParquetFile, Split, Table, TableOptions,
    open, open_with, shards,
};
use proptest::prelude::*;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tempfile::tempdir;

/// The values that pyarrow reads from each file of `golden/tables`; `golden/make.py` made both.
const GOLDEN: &str = include_str!("../golden/tables.json");

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tables").join(name)
}

/// The checksum of every sample, in this order.
fn checksum(reader: &dyn Dataset, samples: impl Iterator<Item = u64>) -> String {
    let (mut values, mut hash) = (Values::new(), Sha256::new());
    for sample in samples {
        values.read(reader, sample).unwrap();
        values.fields().iter().for_each(|value| hash.update(&value.bytes));
    }
    hex(&hash.finalize())
}

#[test]
fn tables_of_every_type_are_read_as_pyarrow_reads_them() {
    let golden_entries: BTreeMap<String, Json> = serde_json::from_str(GOLDEN).unwrap();
    assert!(golden_entries.len() >= 12);
    for (name, mut expected) in golden_entries {
        let all = expected.as_object_mut().unwrap().remove("all").unwrap();
        for limit in [u64::MAX, 0] {
            let reader = open_with(golden(&name), &OpenOptions::with_memory_limit(limit)).unwrap();
            assert_eq!(describe(&*reader), expected, "{name}, limit {limit}");
            assert_eq!(checksum(&*reader, 0..reader.len()), all, "{name}, limit {limit}");
        }
    }
}

#[test]
fn a_cache_that_holds_one_part_gives_the_same_samples_in_any_order() {
    let options = || TableOptions { cache_bytes: 1, ..TableOptions::default() };
    let whole: [Arc<dyn Dataset>; 2] =
        [open(golden("snappy.parquet")).unwrap(), open(golden("zstd.arrow")).unwrap()];
    let small: [Arc<dyn Dataset>; 2] = [
        Arc::new(ParquetFile::open_with(golden("snappy.parquet"), options()).unwrap()),
        Arc::new(
            ArrowFile::open_with(golden("zstd.arrow"), TableOptions { memory_limit: 0, ..options() })
                .unwrap(),
        ),
    ];
    for (whole, small) in whole.iter().zip(&small) {
        // Each sample is in another part than the one before.
        let jumps = || (0..90).map(|step| (step * 37) % 90);
        assert_eq!(checksum(&**whole, jumps()), checksum(&**small, jumps()));
        assert_eq!(small.about().groups.map(|groups| groups.largest), Some(40));
        std::thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || {
                    for sample in (first..90).step_by(4) {
                        assert_eq!(read(&**whole, sample), read(&**small, sample));
                    }
                });
            }
        });
    }
}

#[test]
fn row_groups_are_ranges_of_samples() {
    let file = ParquetFile::open(golden("none.parquet")).unwrap();
    assert_eq!((file.row_groups(), file.len()), (3, 90));
    assert_eq!([0, 1, 2].map(|group| file.row_group(group)), [0..40, 40..80, 80..90]);
}

#[test]
fn a_file_that_does_not_fit_its_cache_says_how_to_shuffle_it() {
    let open = |cache_bytes| {
        let columns = Some(vec!["f16".into(), "words".into()]);
        let options = TableOptions { columns, cache_bytes, ..TableOptions::default() };
        ParquetFile::open_with(golden("none.parquet"), options).unwrap()
    };
    let all = open(u64::MAX);
    assert_eq!(
        (all.about().block_shuffle, all.about().groups.map(|groups| groups.largest)),
        (None, Some(40))
    );
    // Blocks of a row group, in windows of half as many as the cache holds.
    assert_eq!(open(1).about().block_shuffle, Some((40, 40)));
    let decoded = (1..100_000).find(|&bytes| open(bytes).about().block_shuffle.is_none()).unwrap();
    assert_eq!(open(decoded - 1).about().block_shuffle, Some((40, 40)));
    let set = shards(vec![Arc::new(open(u64::MAX)), Arc::new(open(1))]).unwrap();
    assert_eq!(Bounded::limited(Arc::new(set), 100).unwrap().about().block_shuffle, Some((40, 40)));
    let table = Table::new(Arc::new(open(1))).select(["f16"]).missing("f16", Missing::Number(0.0));
    assert!(table.build().unwrap_err().to_string().contains("no field \"f16.present\""));
    let table = Table::new(Arc::new(open(1))).select(["f16"]).build().unwrap();
    let spec = table.spec().clone();
    assert_eq!(table.map(spec, |_, _, _| Ok(())).unwrap().about().block_shuffle, Some((40, 40)));
    let columns = Some(vec!["three".into(), "class".into()]);
    let options = TableOptions { columns, cache_bytes: 1, ..TableOptions::default() };
    let file = Arc::new(ParquetFile::open_with(golden("none.parquet"), options).unwrap());
    let fields = LabelledOptions { input: Some("three".into()), label: Some("class".into()), classes: 10 };
    assert_eq!(Labelled::new(file, &fields).unwrap().about().block_shuffle, Some((40, 40)));
}

#[test]
fn shards_of_other_units_of_time_are_refused() {
    use std::sync::Arc;

    use arrow_array::{
        Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int8Array, LargeListArray, ListArray,
        RecordBatch, TimestampMicrosecondArray, TimestampMillisecondArray,
    };
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;
    let dir = tempdir().unwrap();
    let file = |name: &str, column: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("at", column)]).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        write(dir.path(), name, &writer.into_inner().unwrap())
    };
    let first = file("0.arrow", Arc::new(TimestampMillisecondArray::from(vec![1500, -1])));
    assert_eq!(open(dir.path()).unwrap().spec().fields()[0].ticks_per_day(), Some(86_400_000));
    let seconds = Table::open(&first).seconds("at").build().unwrap();
    assert_eq!((seconds.len(), open(&first).unwrap().spec().to_string()), (2, "at i64 []".into()));
    let other = file("1.arrow", Arc::new(TimestampMicrosecondArray::from(vec![1_500_000])));
    let error = open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("\"at\" has another unit of time than in the first"), "{error}");
    assert_eq!(error.path(), Some(&*other));
    // Units are compared within lists of any kind, and within dictionaries.
    let item = |times: &ArrayRef| Arc::new(Field::new("item", times.data_type().clone(), true));
    let lists: [fn(ArrayRef, Arc<Field>) -> ArrayRef; 5] = [
        |times, item| Arc::new(FixedSizeListArray::new(item, 1, times, None)),
        |times, item| Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 1]), times, None)),
        |times, item| Arc::new(LargeListArray::new(item, OffsetBuffer::from_lengths([1, 1]), times, None)),
        |times, _| Arc::new(DictionaryArray::new(Int8Array::from(vec![0, 1]), times)),
        |times, item| {
            let inner: ArrayRef = Arc::new(FixedSizeListArray::new(item, 1, times, None));
            let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
            Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 1]), inner, None))
        },
    ];
    for (number, list) in lists.into_iter().enumerate() {
        let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1500, -1]));
        let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_500_000, -1]));
        let first = file("0.arrow", list(millis.clone(), item(&millis)));
        assert_eq!(
            open(&first).unwrap().spec().fields()[0].ticks_per_day(),
            Some(86_400_000),
            "list {number}"
        );
        let other = file("1.arrow", list(micros.clone(), item(&micros)));
        let error = open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("\"at\" has another unit of time"), "list {number}: {error}");
        assert_eq!(error.path(), Some(&*other));
        // A saved description is compared in the same way.
        let saved = dir.path().join("s.json");
        Table::open(&first).saved(&saved).rows().unwrap();
        let error = Table::open(&other).fitted(&saved).rows().unwrap_err();
        let why = "column \"at\" has microseconds, and had milliseconds in the saved table";
        assert!(error.to_string().contains(why), "list {number}: {error}");
        std::fs::remove_file(&saved).unwrap();
    }
}

#[test]
fn chosen_columns_are_read_and_unknown_ones_refused() {
    let options = |names: &[&str]| {
        let columns = Some(names.iter().map(|name| name.to_string()).collect());
        TableOptions { columns, memory_limit: 0, ..TableOptions::default() }
    };
    let open = |names: &[&str]| -> [Result<Arc<dyn Dataset>, feedline_core::Error>; 2] {
        [
            ArrowFile::open_with(golden("lz4.stream"), options(names)).map(|file| Arc::new(file) as _),
            ParquetFile::open_with(golden("delta.parquet"), options(names)).map(|file| Arc::new(file) as _),
        ]
    };
    for reader in open(&["at.in", "words", "f16"]) {
        let reader = reader.unwrap();
        let fields = "f16 f16 [], words text [?], words.lengths i64 [?], at.in.y f64 [], at.in.on bool []";
        assert_eq!(reader.spec().to_string(), fields);
        // Row 3: three times "row 3", without the spaces.
        let lengths = [3i64, 4, 4, 1].map(i64::to_le_bytes).concat();
        let expected =
            [vec![0, 0x42], b"row3row3row3".to_vec(), lengths, 1.5f64.to_le_bytes().into(), vec![1]];
        assert_eq!(read(&*reader, 3), expected);
    }
    for error in open(&["none"]) {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("no column \"none\"") && error.path().is_some(), "{error}");
    }
}

#[test]
fn two_columns_of_one_name_are_refused_unless_others_are_chosen() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StructArray};
    use arrow_schema::{DataType, Field, Fields, Schema};
    let dir = tempdir().unwrap();
    let numbers: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![1, 2]));
    let inner = Fields::from(vec![Field::new("x", DataType::Int64, false)]);
    let table = |columns: Vec<(&str, ArrayRef)>| {
        let fields =
            columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), false));
        let schema = std::sync::Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, columns.into_iter().map(|(_, column)| column).collect()).unwrap()
    };
    let structs: ArrayRef = std::sync::Arc::new(StructArray::new(inner, vec![numbers.clone()], None));
    for (batch, name) in [
        (table(vec![("a", numbers.clone()), ("b", numbers.clone()), ("a", numbers.clone())]), "a"),
        (table(vec![("s", structs), ("s.x", numbers.clone()), ("b", numbers.clone())]), "s.x"),
    ] {
        let mut arrow = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        arrow.write(&batch).unwrap();
        let mut parquet = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        parquet.write(&batch).unwrap();
        let arrow = write(dir.path(), "x.arrow", &arrow.into_inner().unwrap());
        let parquet = write(dir.path(), "x.parquet", &parquet.into_inner().unwrap());
        for path in [&arrow, &parquet] {
            let error = open(path).unwrap_err();
            let why = format!("two columns or arrays \"{name}\": rename one");
            assert!(error.to_string().contains(&why) && error.path() == Some(path), "{error}");
        }
        let only = || TableOptions { columns: Some(vec!["b".into()]), ..Default::default() };
        assert_eq!(read(&ArrowFile::open_with(&arrow, only()).unwrap(), 1), [2i64.to_le_bytes()]);
        assert_eq!(read(&ParquetFile::open_with(&parquet, only()).unwrap(), 1), [2i64.to_le_bytes()]);
    }
}

#[test]
fn one_batch_of_fixed_columns_in_memory_is_ready_for_zero_copy() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny.arrow");
    let data = Bounded::new(open(&tiny).unwrap()).unwrap();
    let column = data.storage().column(0).unwrap();
    assert_eq!((column.rows(), column.row(2)), (3, Some(&9i32.to_le_bytes()[..])));
    // The whole file is named, so that it is pinned once.
    assert_eq!(column.bytes().len() as u64, std::fs::metadata(&tiny).unwrap().len());
    assert!(open_with(&tiny, &OpenOptions::with_memory_limit(0)).unwrap().storage().column(0).is_none());
    // A file with several batches, or with columns of varying length, has no column.
    assert!((0..16).all(|field| open(golden("plain.arrow")).unwrap().storage().column(field).is_none()));
}

#[test]
fn files_that_are_cut_are_refused_with_the_byte() {
    let dir = tempdir().unwrap();
    for name in ["plain.arrow", "plain.stream", "none.parquet"] {
        let bytes = std::fs::read(golden(name)).unwrap();
        for cut in [bytes.len() - 1, bytes.len() / 2, 100, 9, 5] {
            // The end of a stream is a mark of eight bytes that many writers leave out.
            let path = write(dir.path(), name, &bytes[..cut]);
            let error = open(&path).and_then(|reader| Values::new().read(&*reader, reader.len() - 1));
            if name == "plain.stream" && cut == bytes.len() - 1 {
                // The mark at the end is cut.
                assert!(error.unwrap_err().to_string().contains("cut short"));
                continue;
            }
            let error = error.unwrap_err();
            assert!(error.path() == Some(&path) && !error.to_string().contains('\n'), "{cut}: {error}");
        }
    }
}

#[test]
fn nulls_are_an_error_of_their_row_or_filled() {
    let fill = TableOptions { nulls: Nulls::Fill, memory_limit: 0, ..TableOptions::default() };
    let bytes = arrow_with_nulls();
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "nulls.stream", &bytes);
    let reader = open(&path).unwrap();
    assert_eq!(read(&*reader, 0), [1.5f32.to_le_bytes()]);
    let error = Values::new().read(&*reader, 1).unwrap_err();
    assert!(error.to_string().contains("column \"x\" has a null in row 1"), "{error}");
    assert_eq!((error.sample(), error.path()), (Some(1), Some(path.as_path())));
    let filled = ArrowFile::open_with(&path, fill).unwrap();
    let nan = f32::from_le_bytes(read(&filled, 1)[0][..].try_into().unwrap());
    let by_format = open_with(&path, &OpenOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
    assert_eq!(read(&*by_format, 1), read(&filled, 1));
    assert!(nan.is_nan() && read(&filled, 2) == [2.5f32.to_le_bytes()]);
    // A column with nulls is not ready.
    assert!(filled.storage().column(0).is_none());
}

/// The table of a stream.
fn in_memory(stream: &[u8]) -> ArrowTable {
    let reader = arrow_ipc::reader::StreamReader::try_new(stream, None).unwrap();
    ArrowTable::new(reader.schema(), reader.map(Result::unwrap).collect()).unwrap()
}

#[test]
fn a_table_in_memory_is_as_its_stream() {
    let options = || OpenOptions { nulls: Nulls::Fill, ..Default::default() };
    for name in ["plain.stream", "lz4.stream", "zstd.stream"] {
        let bytes = std::fs::read(golden(name)).unwrap();
        let file = open_with(golden(name), &options()).unwrap();
        let table = in_memory(&bytes);
        let all = |reader: &dyn Dataset| checksum(reader, 0..file.len());
        let rows = open_with(table.clone(), &options()).unwrap();
        assert_eq!((rows.spec(), rows.len()), (file.spec(), file.len()), "{name}");
        assert_eq!(all(&*rows), all(&*file), "{name}");
        assert!(Values::new().read(&*rows, rows.len()).unwrap_err().to_string().contains("no sample"));
        let select = || OpenOptions { columns: Some(vec!["words".into(), "price".into()]), ..options() };
        let (rows, file) =
            (open_with(table, &select()).unwrap(), open_with(golden(name), &select()).unwrap());
        assert_eq!((rows.spec(), all(&*rows)), (file.spec(), all(&*file)), "{name}");
    }
}

#[test]
fn a_table_in_memory_is_read_in_place() {
    use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("x", column.clone())]).unwrap();
    let table = ArrowTable::new(batch.schema(), vec![batch.slice(10, 50)]).unwrap();
    let rows = open_with(table, &OpenOptions::default()).unwrap();
    let address = column.to_data().buffers()[0].as_ptr();
    let first = rows.storage().slice(0, 0).unwrap();
    assert_eq!((first.as_ptr(), first), (address.wrapping_add(80), &10i64.to_le_bytes()[..]));
    assert_eq!(rows.storage().column(0).unwrap().bytes().as_ptr(), first.as_ptr());
    // Of several batches there is no column, and a batch may be empty.
    let parts = vec![batch.slice(0, 0), batch.slice(0, 7), batch.slice(7, 0), batch.slice(7, 93)];
    let rows = open_with(ArrowTable::new(batch.schema(), parts).unwrap(), &OpenOptions::default()).unwrap();
    assert!(rows.storage().column(0).is_none() && rows.storage().slice(100, 0).is_none());
    assert_eq!(rows.storage().slice(99, 0).unwrap().as_ptr(), address.wrapping_add(99 * 8));
    let whole =
        open_with(ArrowTable::new(batch.schema(), vec![batch.clone()]).unwrap(), &OpenOptions::default());
    assert_eq!(rows.fingerprint(), whole.unwrap().fingerprint());
    let other = RecordBatch::try_from_iter([("y", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    let wider = RecordBatch::try_from_iter([("x", column.clone()), ("y", column)]).unwrap();
    let error = ArrowTable::new(batch.schema(), vec![other, wider]).unwrap_err();
    assert!(error.to_string().contains("record batch 1 has other columns"), "{error}");
}

/// A stream of one column `x` of `f32`: 1.5, a null, 2.5.
fn arrow_with_nulls() -> Vec<u8> {
    use arrow_array::{Float32Array, RecordBatch};
    let column = Float32Array::from(vec![Some(1.5), None, Some(2.5)]);
    let batch = RecordBatch::try_from_iter([("x", std::sync::Arc::new(column) as _)]).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn a_codec_that_is_not_read_is_refused_at_the_opening() {
    let dir = tempdir().unwrap();
    let mut bytes = std::fs::read(golden("zstd.arrow")).unwrap();
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // After the magic bytes come four bytes 0xFF, the length of the metadata, the metadata, and the body.
    let mut start = 8;
    let codec = loop {
        let metadata = start + 8..start + 8 + number(&bytes, start + 4);
        let message = arrow_ipc::root_as_message(&bytes[metadata.clone()]).unwrap();
        match message.header_as_record_batch().and_then(|batch| batch.compression()) {
            Some(compression) => {
                let table = compression._tab;
                let offset = table.vtable().get(arrow_ipc::BodyCompression::VT_CODEC);
                assert_ne!(offset, 0, "the codec is written");
                break metadata.start + table.loc() + offset as usize;
            }
            None => start = metadata.end + message.bodyLength() as usize,
        }
    };
    bytes[codec] = 7;
    let path = write(dir.path(), "x.arrow", &bytes);
    for memory_limit in [u64::MAX, 0] {
        let options = TableOptions { memory_limit, ..Default::default() };
        let error = ArrowFile::open_with(&path, options).unwrap_err();
        assert!(error.to_string().contains("compressed by codec 7, which is not read"), "{error}");
        assert_eq!((error.path(), error.offset()), (Some(&*path), Some(start as u64)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_table_is_read_or_refused(
        file in 0..6usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        near_the_end: bool,
        in_memory: bool,
    ) {
        let names =
            ["plain.arrow", "zstd.arrow", "lz4.stream", "delta.parquet", "gzip.parquet", "none.parquet"];
        let mut bytes = std::fs::read(golden(names[file])).unwrap();
        for (at, byte) in changes {
            // Sizes and types are in the last kilobytes of files.
            let first = if near_the_end { bytes.len() - 4000 } else { 0 };
            let at = first + at.index(bytes.len() - first);
            bytes[at] = byte;
        }
        let dir = tempdir().unwrap();
        let path = write(dir.path(), names[file], &bytes);
        let options = OpenOptions::with_memory_limit(if in_memory { u64::MAX } else { 0 });
        let read = open_with(&path, &options).and_then(|reader| {
            let mut values = Values::new();
            (0..reader.len().min(200)).try_for_each(|sample| values.read(&*reader, sample))
        });
        if let Err(error) = read {
            let line = error.to_string();
            prop_assert!(error.path() == Some(&path) && !line.contains('\n'), "{line}");
        }
    }
}

#[test]
fn a_folder_that_save_to_disk_wrote_is_one_set() {
    let dir = tempdir().unwrap();
    let stream = std::fs::read(golden("plain.stream")).unwrap();
    let one = open(golden("plain.stream")).unwrap();
    for (set, files) in [("train", 2), ("validation", 1)] {
        let names = (0..files).map(|at| format!("data-{at:05}-of-{files:05}.arrow"));
        let names: Vec<String> = names.collect();
        names.iter().for_each(|name| drop(write(dir.path(), &format!("{set}/{name}"), &stream)));
        let listed: Vec<Json> = names.iter().map(|name| serde_json::json!({ "filename": name })).collect();
        let state = serde_json::json!({ "_data_files": listed, "_split": set }).to_string();
        write(dir.path(), &format!("{set}/state.json"), state.as_bytes());
        write(dir.path(), &format!("{set}/dataset_info.json"), b"{}");
        let read = open(dir.path().join(set)).unwrap();
        assert_eq!((read.about().format, read.len()), ("arrow", files * one.len()));
        assert_eq!(checksum(&*read, read.len() - one.len()..read.len()), checksum(&*one, 0..one.len()));
    }
    write(dir.path(), "dataset_dict.json", br#"{"splits": ["train", "validation"]}"#);
    let of = |split| open_with(dir.path(), &OpenOptions { split, ..Default::default() });
    assert_eq!(of(Some(Split::Train)).unwrap().len(), 2 * one.len());
    // Without a test set, the validation set is used.
    for split in [Split::Validation, Split::Test] {
        assert_eq!(of(Some(split)).unwrap().len(), one.len());
    }
    let error = of(None).unwrap_err().to_string();
    assert!(error.contains("several sets, train and validation") && error.contains("OpenOptions::split"));

    // Paths listed in the files are opened in this folder only.
    for (name, content, words) in [
        (
            "state.json",
            r#"{"_data_files": [{"filename": "../train/data-00000-of-00002.arrow"}]}"#,
            "_data_files",
        ),
        ("state.json", r#"{"_data_files": []}"#, "_data_files"),
        ("state.json", "[", "not JSON"),
        ("dataset_dict.json", r#"{"splits": ["/"]}"#, "splits"),
        ("dataset_dict.json", r#"{"splits": 1}"#, "splits"),
    ] {
        let path = write(dir.path(), &format!("bad/{name}"), content.as_bytes());
        let error = open(dir.path().join("bad")).unwrap_err();
        assert_eq!(error.path(), Some(path.as_path()));
        assert!(error.to_string().contains(words), "{error}");
        std::fs::remove_dir_all(dir.path().join("bad")).unwrap();
        write(dir.path(), "bad/x", b"x");
    }
}

#[test]
fn a_repository_of_the_hub_is_its_parquet_shards() {
    let dir = tempdir().unwrap();
    let shard = std::fs::read(golden("zstd.parquet")).unwrap();
    let one = open(golden("zstd.parquet")).unwrap().len();
    for name in ["train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"] {
        write(dir.path(), &format!("set/data/{name}.parquet"), &shard);
    }
    write(dir.path(), "set/README.md", b"# A set\n");
    write(dir.path(), "set/.gitattributes", b"*.parquet lfs\n");
    for (split, len) in [(Split::Train, 2 * one), (Split::Test, one)] {
        let options = OpenOptions { split: Some(split), ..Default::default() };
        let reader = open_with(dir.path().join("set"), &options).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("parquet", len));
    }
    let error = open(dir.path().join("set")).unwrap_err();
    assert!(error.to_string().contains("several sets, train-00000-of-00002.parquet and test-"), "{error}");
    let options = OpenOptions { split: Some(Split::Validation), ..Default::default() };
    let error = open_with(dir.path().join("set"), &options).unwrap_err();
    assert!(error.to_string().contains("there is no validation set"), "{error}");

    // Shards with a description beside them. Any other file is an error.
    write(dir.path(), "flat/README.md", b"# A set\n");
    write(dir.path(), "flat/0.parquet", &shard);
    assert_eq!(open(dir.path().join("flat")).unwrap().len(), one);
    write(dir.path(), "flat/1.csv", b"a,b\n1,2\n");
    let error = open(dir.path().join("flat")).unwrap_err();
    assert!(
        error.to_string().contains("the shards differ") && error.to_string().contains("1.csv"),
        "{error}"
    );
}

#[test]
fn every_flipped_bit_of_a_page_is_found_by_its_checksum() {
    let dir = tempdir().unwrap();
    for version in ["1", "2"] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/checksums/{version}.parquet"));
        let good = std::fs::read(&path).unwrap();
        let samples = open(&path).unwrap();
        let expected = checksum(&*samples, 0..300);
        let footer = u32::from_le_bytes(*good[good.len() - 8..].first_chunk().unwrap()) as usize;
        let (mut damaged, mut same) = (0, 0);
        // The headers of the pages have no checksum: a flip there is an error, or changes no value.
        for at in 4..good.len() - 8 - footer {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            let path = write(dir.path(), "x.parquet", &bytes);
            let outcome = open(&path).and_then(|reader| {
                let mut values = Values::new();
                (0..reader.len()).try_for_each(|row| values.read(&*reader, row))?;
                Ok(checksum(&*reader, 0..300))
            });
            match outcome {
                Ok(found) => {
                    assert_eq!(found, expected, "version {version}, byte {at}");
                    same += 1;
                }
                Err(error) => {
                    assert_eq!(error.path(), Some(path.as_path()), "{error}");
                    damaged += 1;
                }
            }
        }
        assert!(damaged > 2700 && same < 100, "version {version}: {damaged} found, {same} without a change");
    }
}
