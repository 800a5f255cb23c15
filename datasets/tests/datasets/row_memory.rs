//! Tables with their rows in memory give the same values and errors as tables read row by row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::made::write;
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use feedline_core::{Context, DType, Dataset, Layout, Prefetched, Random};
use feedline_datasets::{Bounded, Missing, Nulls, OpenOptions, Table, open, open_with, shards};
use parquet::file::properties::WriterProperties;
use tempfile::{TempDir, tempdir};

const ROWS: usize = 1200;
const COLUMNS: usize = 20;

/// A table of floats with missing values, a whole number and a text, in each format.
fn made(seed: u64) -> (TempDir, Vec<PathBuf>) {
    let dir = tempdir().unwrap();
    let mut random = Random::from_key(seed);
    let mut number = || (random.below(2001) as f32 - 1000.0) / 8.0;
    let floats: Vec<Vec<f32>> = (0..COLUMNS).map(|_| (0..ROWS).map(|_| number()).collect()).collect();
    let whole: Vec<i64> = (0..ROWS as i64).map(|row| (row * 7919) % 1000).collect();
    let city = |row: usize| ["Rome", "Oslo", "Bern"][row * row % 3];
    // Column 3 lacks values.
    let is_there = |column: usize, row: usize| column != 3 || row % 11 != 5;
    let mut columns: Vec<(String, ArrayRef)> = (0..COLUMNS)
        .map(|column| {
            let values = (0..ROWS).map(|row| is_there(column, row).then_some(floats[column][row]));
            (format!("f{column}"), Arc::new(Float32Array::from_iter(values)) as ArrayRef)
        })
        .collect();
    columns.push(("label".into(), Arc::new(Int64Array::from(whole.clone()))));
    columns.push(("city".into(), Arc::new(StringArray::from_iter_values((0..ROWS).map(city)))));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(170)).build();
    let mut table = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(groups)).unwrap();
    table.write(&batch).unwrap();
    let compression = Some(arrow_ipc::CompressionType::LZ4_FRAME);
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut arrow =
        arrow_ipc::writer::FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    let mut plain = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    for start in (0..ROWS).step_by(250) {
        let part = batch.slice(start, 250.min(ROWS - start));
        arrow.write(&part).unwrap();
        plain.write(&part).unwrap();
    }
    let names: Vec<_> = (0..COLUMNS).map(|column| format!("f{column}")).collect();
    let (mut csv, mut jsonl) = (names.join(",") + ",label,city\n", String::new());
    for row in 0..ROWS {
        let cell = |column: usize| {
            if is_there(column, row) { format!("{:?}", floats[column][row]) } else { String::new() }
        };
        let cells: Vec<_> = (0..COLUMNS).map(cell).collect();
        csv += &format!("{},{},{}\n", cells.join(","), whole[row], city(row));
        let keys = (0..COLUMNS).filter(|&column| is_there(column, row));
        let keys: Vec<_> = keys.map(|column| format!("\"f{column}\": {}", cells[column])).collect();
        jsonl +=
            &format!("{{{}, \"label\": {}, \"city\": \"{}\"}}\n", keys.join(", "), whole[row], city(row));
    }
    let files = vec![
        write(dir.path(), "a.parquet", &table.into_inner().unwrap()),
        write(dir.path(), "lz4.arrow", &arrow.into_inner().unwrap()),
        write(dir.path(), "plain.arrow", &plain.into_inner().unwrap()),
        write(dir.path(), "a.csv", csv.as_bytes()),
        write(dir.path(), "a.jsonl", jsonl.as_bytes()),
    ];
    (dir, files)
}

/// The columns of the batch of these samples, or the row of the first error and its text.
fn batch(data: &dyn Dataset, ids: &[u64]) -> Result<Vec<Vec<u8>>, (usize, String)> {
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    let read = data.read_many(ids, &mut rows, &mut Context::new(7, 0));
    read.map_err(|(row, error)| (row, error.to_string()))?;
    Ok((0..data.spec().fields().len()).map(|field| rows.column_mut(field).to_vec()).collect())
}

fn options(cache_bytes: u64) -> OpenOptions {
    OpenOptions { cache_bytes, ..Default::default() }
}

/// The same table with its rows in memory, and read one by one.
type Both = [Box<dyn Dataset>; 2];

fn steps(path: &Path, cache_bytes: u64) -> Bounded {
    let floats = (0..COLUMNS).map(|column| format!("f{column}"));
    let table = Table::open_with(path, options(cache_bytes)).stack("x", floats);
    table
        .standardize("x")
        .missing("f3", Missing::Mean)
        .category("city")
        .select(["x", "label", "city"])
        .build()
        .unwrap()
}

fn masked(path: &Path, cache_bytes: u64) -> Bounded {
    let table = Table::open_with(path, options(cache_bytes)).select(["label", "f3", "f4"]);
    table.missing("f3", Missing::Mask).cast("label", DType::F64).build().unwrap()
}

/// A missing value is an error of its row.
fn strict(path: &Path, cache_bytes: u64) -> Bounded {
    Table::open_with(path, options(cache_bytes))
        .stack("x", ["f2", "f3"])
        .select(["x", "label"])
        .build()
        .unwrap()
}

fn as_it_is(path: &Path, cache_bytes: u64) -> Bounded {
    let columns = (0..12).map(|column| format!("f{column}")).chain(["label".into()]);
    let options =
        OpenOptions { columns: Some(columns.collect()), nulls: Nulls::Fill, ..options(cache_bytes) };
    Bounded::new(open_with(path, &options).unwrap()).unwrap()
}

#[test]
fn rows_in_memory_have_the_values_and_the_errors_of_rows_that_are_read_one_by_one() {
    let (_dir, files) = made(3);
    let mut random = Random::from_key(9);
    let mut compared = 0;
    for path in &files {
        let both = |make: fn(&Path, u64) -> Bounded| -> Both {
            [Box::new(make(path, 1 << 30)), Box::new(make(path, 0))]
        };
        let plain: Both = [Box::new(as_it_is(path, 1 << 30)), Box::new(as_it_is(path, 0))];
        for [memory, other] in [both(steps), both(masked), both(strict), plain] {
            assert_eq!((memory.spec(), memory.fingerprint()), (other.spec(), other.fingerprint()));
            let (mut errors, name) = (0, path.display());
            for _ in 0..12 {
                let ids: Vec<u64> = (0..32).map(|_| random.below(ROWS as u64)).collect();
                let (got, want) = (batch(&*memory, &ids), batch(&*other, &ids));
                assert_eq!(got, want, "{name}: {ids:?}");
                errors += usize::from(got.is_err());
                compared += 1;
            }
            let lacks = other.spec().fields()[0].name() == "x" && other.spec().fields().len() == 2;
            assert_eq!(errors > 0, lacks, "{name}: {errors} of 12");
            assert_eq!(batch(&*memory, &[0, ROWS as u64]), batch(&*other, &[0, ROWS as u64]), "{name}");
            assert_eq!(memory.about().block_shuffle, None, "{name}");
        }
    }
    assert_eq!(compared, 5 * 4 * 12);
}

#[test]
fn a_group_is_decoded_once_and_dropped_when_its_rows_are_in_memory() {
    let (_dir, files) = made(5);
    let data = as_it_is(&files[0], 1 << 30);
    let ids: Vec<u64> = (0..ROWS as u64).step_by(171).collect();
    let mut prepared = 0;
    // As workers do, group by group.
    while data.storage().prefetch(&ids, &mut Context::new(0, 0)) == Prefetched::Prepared {
        prepared += 1;
    }
    assert_eq!(prepared, 8, "as many groups as the file has");
    assert_eq!(data.storage().prefetch(&ids, &mut Context::new(0, 0)), Prefetched::Never);
    let before = batch(&data, &ids).unwrap();
    // The cache no longer holds the group, so it is decoded anew.
    assert_eq!(data.inner().storage().prefetch(&ids[..1], &mut Context::new(0, 0)), Prefetched::Prepared);
    // Decoded rows no longer need the file.
    std::fs::write(&files[0], b"PAR1").unwrap();
    assert_eq!(batch(&data, &ids).unwrap(), before);
    let layout = Layout::new(data.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    data.read(ids[1], &mut rows.row(0), &mut Context::new(0, 0)).unwrap();
    assert_eq!(rows.column_mut(0)[..], before[0][4..8], "a single row too");
    let other = as_it_is(&files[1], 0);
    assert_eq!(batch(&other, &ids).unwrap(), before, "Arrow has the same rows");
}

#[test]
fn a_table_beyond_the_budget_is_read_by_groups() {
    let (_dir, files) = made(7);
    let row = 12 * 4 + 8;
    let [fits, beyond] = [row * ROWS as u64, row * ROWS as u64 - 1].map(|bytes| as_it_is(&files[0], bytes));
    assert_eq!(
        (fits.about().block_shuffle, fits.about().table_rows),
        (None, Some((row * ROWS as u64, true)))
    );
    assert_eq!(beyond.about().table_rows, Some((row * ROWS as u64, false)));
    assert!(beyond.about().block_shuffle.is_some());
    let ids: Vec<u64> = (0..64).map(|at| at * 17).collect();
    assert_eq!(batch(&fits, &ids), batch(&beyond, &ids));
}

#[test]
fn shards_in_memory_have_their_values() {
    let (_one, first) = made(11);
    let (_two, second) = made(12);
    for (one, two) in first.iter().zip(&second) {
        let columns = Some(vec!["f1".to_owned(), "f5".into(), "f6".into(), "f7".into(), "label".into()]);
        let of = |path: &Path, cache_bytes| {
            open_with(path, &OpenOptions { columns: columns.clone(), ..options(cache_bytes) }).unwrap()
        };
        let set =
            |bytes| Bounded::new(Arc::new(shards(vec![of(one, bytes), of(two, bytes)]).unwrap())).unwrap();
        let ids: Vec<u64> = (0..200).map(|at| (at * 7717) % (2 * ROWS as u64)).collect();
        assert_eq!(batch(&set(1 << 30), &ids).unwrap(), batch(&set(0), &ids).unwrap(), "{}", one.display());
    }
}

#[test]
fn a_damaged_group_is_an_error_of_its_rows_only() {
    let (dir, files) = made(13);
    let mut bytes = std::fs::read(&files[0]).unwrap();
    // The pages of the fourth group.
    let at = bytes.len() * 13 / 32;
    bytes[at..at + 2000].fill(0xA5);
    let path = write(dir.path(), "b.parquet", &bytes);
    assert!(open(&path).is_ok());
    let [memory, other] = [1 << 30, 0].map(|cache| as_it_is(&path, cache));
    let mut failed = 0;
    for start in (0..ROWS as u64).step_by(25) {
        let ids: Vec<u64> = (start..start + 25).collect();
        let (got, want) = (batch(&memory, &ids), batch(&other, &ids));
        assert_eq!(got, want);
        failed += usize::from(got.is_err());
    }
    assert!((1..40).contains(&failed), "{failed} of 48 batches failed");
}
