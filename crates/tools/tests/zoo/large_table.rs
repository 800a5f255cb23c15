//! A small Parquet file whose rows take more than 512 MiB when decoded. It is shuffled by blocks, in the same
//! order from memory, a cache and disk, and resumes at random steps.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch};
use bytes::Bytes;
use feedline::dataset::Random;
use feedline::{Cursor, DType, Dataset, ErrorKind, Loader, LoaderBuilder, Sampler, Spec};
use feedline_datasets::{Bounded, OpenOptions, Table, open_with};
use feedline_testkit::{Watchdog, watchdog};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use crate::common::alone_in_parts;

/// Bytes of a row's large column.
const WIDTH: i32 = 1 << 20;
/// Rows of a row group, and row groups.
const BLOCK: u64 = 4;
const GROUPS: u64 = 132;
const LEN: u64 = BLOCK * GROUPS;
/// Half of the row groups that 512 MiB hold.
const WINDOW: u64 = 63 * BLOCK;
const BATCH: usize = 4;

/// A file of equal row groups: their `label` is 0, 1, 2, 3, and `wide` is one value. Written once, and
/// copied.
fn made(dir: &Path) -> PathBuf {
    let value = vec![7; WIDTH as usize];
    let wide = FixedSizeBinaryArray::try_from_iter((0..BLOCK).map(|_| &value)).unwrap();
    let columns: [(&str, ArrayRef); 2] =
        [("wide", Arc::new(wide)), ("label", Arc::new(Int64Array::from_iter_values(0..BLOCK as i64)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.clone())).unwrap();
    writer.write(&batch).unwrap();
    let one = Bytes::from(writer.into_inner().unwrap());
    let reader = SerializedFileReader::new(one.clone()).unwrap();
    let metadata = reader.metadata();
    let path = dir.join("large.parquet");
    let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
    let mut all = SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties.into()).unwrap();
    for _ in 0..GROUPS {
        let mut group = all.next_row_group().unwrap();
        for column in metadata.row_group(0).columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: BLOCK,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(&one, close).unwrap();
        }
        group.close().unwrap();
    }
    all.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 64 << 20);
    path
}

fn options(cache_bytes: u64) -> OpenOptions {
    OpenOptions { cache_bytes, ..Default::default() }
}

fn rows(path: &Path, cache_bytes: u64) -> Bounded {
    Bounded::new(open_with(path, &options(cache_bytes)).unwrap()).unwrap()
}

/// The labels alone, which are read with the rest of their rows: batches are short.
fn labels(data: impl Dataset) -> LoaderBuilder {
    let spec = Spec::new().field("label", DType::I64, []).unwrap();
    let data = data.map(spec, |row, to, _| {
        to.field_mut::<i64>(0)?[0] = row.field::<i64>(1)?[0];
        Ok(())
    });
    Loader::builder(data.unwrap()).batch_size(BATCH)
}

/// A batch: the cursor after it, its ids and its labels.
type Step = (Cursor, Vec<u64>, Vec<i64>);

/// Up to `steps` steps of epoch 0, from its beginning or a cursor.
fn run(builder: LoaderBuilder, from: Option<Cursor>, steps: usize) -> Vec<Step> {
    let mut loader = builder.build_host().unwrap();
    let progress = loader.progress();
    let epoch = match from {
        Some(cursor) => loader.resume(cursor).unwrap(),
        None => loader.epoch(0).unwrap(),
    };
    let step = |batch: feedline::Result<feedline::HostBatch>| {
        let batch = batch.unwrap();
        (progress.cursor(), batch.ids().to_vec(), batch.field::<i64>("label").unwrap().to_vec())
    };
    epoch.take(steps).map(step).collect()
}

#[test]
fn a_large_table_is_shuffled_by_blocks_in_the_same_order_from_memory_cache_and_disk() {
    alone_in_parts(|| {
        let _watchdog = Watchdog::new(watchdog::LIMIT, "a large table");
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        let [memory, cache, disk] = [1 << 30, 64 << 20, 1];
        let held = |cache_bytes| rows(&path, cache_bytes).about().table_rows.map(|(_, is_held)| is_held);
        assert_eq!([memory, cache, disk].map(held), [Some(true), Some(false), Some(false)]);
        for cache_bytes in [memory, cache, disk] {
            assert_eq!(
                rows(&path, cache_bytes).about().plain_shuffle,
                Some((BLOCK, WINDOW)),
                "{cache_bytes} bytes"
            );
        }
        let whole = run(labels(rows(&path, cache)).shuffle().seed(11), None, usize::MAX);
        let mut ids = Vec::from_iter(whole.iter().flat_map(|(_, ids, _)| ids.clone()));
        let all = whole.iter().flat_map(|(_, ids, labels)| ids.iter().zip(labels));
        assert!(all.into_iter().all(|(&id, &label)| label == (id % BLOCK) as i64), "the rows of their ids");
        // The same order, as a sampler that a user states.
        let blocks = Sampler::block(BLOCK, WINDOW).unwrap();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..LEN), "every row once");
        let first = &whole[..20];
        assert!(first == run(labels(rows(&path, cache)).sampler(blocks).seed(11), None, first.len()));
        for cache_bytes in [memory, disk] {
            let other = run(labels(rows(&path, cache_bytes)).shuffle().seed(11), None, first.len());
            assert!(other == first, "{cache_bytes} bytes");
        }
        let in_file = rows(&path, cache).cached_in_file(dir.path().join("kept"), 1 << 30).unwrap();
        for other in [labels(rows(&path, cache).cached(64 << 20).unwrap()), labels(in_file)] {
            let other = run(other.shuffle().seed(11), None, first.len());
            // A cache changes the fingerprint and so the cursor: compare the order alone.
            let order = |steps: &[Step]| {
                Vec::from_iter(steps.iter().map(|(_, ids, labels)| (ids.clone(), labels.clone())))
            };
            assert!(order(&other) == order(first), "a cache around the set");
        }
        let mut random = Random::from_key(46);
        for resume in 0..24 {
            let at = random.below(whole.len() as u64 - 1) as usize;
            let cache_bytes = [cache, disk, memory][resume % 3];
            let workers = feedline::Workers::Count(1 + random.below(4) as usize);
            let builder = labels(rows(&path, cache_bytes)).shuffle().seed(11).workers(workers);
            let have = run(builder, Some(whole[at].0), 3);
            assert!(
                !have.is_empty() && have == whole[at + 1..][..have.len()],
                "after step {at}, {cache_bytes} bytes"
            );
        }
    });
}

#[test]
fn the_chosen_columns_and_all_shards_say_how_a_table_is_shuffled() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        let shuffled = |data: &dyn Dataset| data.about().plain_shuffle;
        let column = |name: &str| OpenOptions { columns: Some(vec![name.into()]), ..options(1) };
        let only = |name: &str| Bounded::new(open_with(&path, &column(name)).unwrap()).unwrap();
        assert_eq!(
            [shuffled(&only("label")), shuffled(&only("wide"))],
            [None, Some((BLOCK, WINDOW + BLOCK))]
        );
        let table = Table::open_with(&path, options(1)).select(["label"]).build().unwrap();
        assert_eq!(shuffled(&table), None);
        let halves = dir.path().join("shards");
        std::fs::create_dir(&halves).unwrap();
        for name in ["a.parquet", "b.parquet"] {
            std::fs::copy(&path, halves.join(name)).unwrap();
        }
        let shards = Bounded::new(open_with(&halves, &options(1 << 40)).unwrap()).unwrap();
        // Two shards have twice the rows and the same window, because a window is a number of bytes.
        assert_eq!((shards.len(), shuffled(&shards)), (2 * LEN, Some((BLOCK, WINDOW))));
        let small = |_| open_with(&path, &column("label")).unwrap();
        let shards = feedline_datasets::shards(Vec::from_iter((0..3).map(small))).unwrap();
        assert_eq!(shuffled(&Bounded::new(Arc::new(shards)).unwrap()), None);
    });
}

#[test]
fn the_report_of_a_large_table_says_how_it_is_shuffled_and_what_to_write() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        let loader = |builder: LoaderBuilder| builder.epochs(1).build_host().unwrap();
        let report =
            |cache_bytes| loader(labels(rows(&path, cache_bytes)).shuffle().seed(11)).report().to_string();
        let at_once = "write sampler(Sampler::Shuffle) in place of shuffle()";
        let line = format!(
            "of {BLOCK} samples, in windows of {WINDOW}, as the set is large; to shuffle all at once, \
             {at_once}"
        );
        let (in_memory, default, small) = (report(1 << 30), report(512 << 20), report(64 << 20));
        for text in [&in_memory, &default, &small] {
            assert!(text.contains(&line), "{text}");
        }
        assert!(in_memory.contains("529 MiB in memory, decoded once"), "{in_memory}");
        assert!(default.contains("OpenOptions::cache_bytes of"), "{default}");
        // A cache for fewer groups than two windows.
        let smaller = "decoded again and again: write sampler(Sampler::block(4, 28)?) in place";
        assert_eq!(
            [&in_memory, &default, &small].map(|text| text.contains(smaller)),
            [false, false, true],
            "{small}"
        );
        // A run of an earlier feedline, which shuffled all samples at once.
        let mut before = loader(labels(rows(&path, 1 << 30)).sampler(Sampler::Shuffle).seed(11));
        let ids = before.epoch(0).unwrap().next().unwrap().unwrap().ids().to_vec();
        let cursor = before.cursor();
        let error = loader(labels(rows(&path, 1 << 30)).shuffle().seed(11)).resume(cursor).unwrap_err();
        assert!(error.kind() == ErrorKind::Cursor && error.to_string().contains(at_once), "{error}");
        let mut same = loader(labels(rows(&path, 64 << 20)).sampler(Sampler::Shuffle).seed(11));
        assert_ne!(same.resume(cursor).unwrap().next().unwrap().unwrap().ids(), ids);
    });
}
