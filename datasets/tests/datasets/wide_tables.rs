//! Tables with as many columns as gene expression has: a name is looked up once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use feedline_core::{Dataset, Layout};
use feedline_datasets::{Missing, OpenOptions, Table, open, open_with};
use feedline_testkit::cpu_time;
use tempfile::tempdir;

use crate::made::write;

const COLUMNS: usize = 20_000;
const ROWS: usize = 3;

/// Time of a processor for five openings of a table. Looking up each name among all others takes minutes.
const LIMIT: Duration = Duration::from_secs(20);

fn value(row: usize, column: usize) -> f32 {
    (row * COLUMNS + column) as f32 / 4.0
}

fn batch(names: &[&str], rows: usize) -> RecordBatch {
    let column = |at: usize| -> ArrayRef {
        Arc::new(Float32Array::from_iter_values((0..rows).map(|row| value(row, at))))
    };
    RecordBatch::try_from_iter(names.iter().enumerate().map(|(at, name)| (*name, column(at)))).unwrap()
}

/// Writes a Parquet file of `f32`.
pub(crate) fn parquet(path: &Path, names: &[&str], rows: usize) {
    let batch = batch(names, rows);
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    std::fs::write(path, writer.into_inner().unwrap()).unwrap();
}

fn arrow(path: &Path, names: &[&str]) {
    let batch = batch(names, ROWS);
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    std::fs::write(path, writer.into_inner().unwrap()).unwrap();
}

/// The same table in each format, and as two shards.
fn tables(dir: &Path, names: &[&str]) -> Vec<PathBuf> {
    let row = |row: usize| (0..COLUMNS).map(move |at| format!("{:?}", value(row, at)));
    let csv = |rows: std::ops::Range<usize>| {
        let rows = rows.map(|at| row(at).collect::<Vec<_>>().join(","));
        [names.join(",")].into_iter().chain(rows).map(|line| line + "\n").collect::<String>()
    };
    let object = |at| names.iter().zip(row(at)).map(|(name, value)| format!("\"{name}\": {value}"));
    let line = |at| format!("{{{}}}\n", object(at).collect::<Vec<_>>().join(", "));
    write(dir, "csv/0.csv", csv(0..2).as_bytes());
    write(dir, "csv/1.csv", csv(2..ROWS).as_bytes());
    write(dir, "jsonl/0.jsonl", (0..2).map(line).collect::<String>().as_bytes());
    write(dir, "jsonl/1.jsonl", (2..ROWS).map(line).collect::<String>().as_bytes());
    parquet(&dir.join("a.parquet"), names, ROWS);
    arrow(&dir.join("a.arrow"), names);
    vec![
        write(dir, "a.csv", csv(0..ROWS).as_bytes()),
        write(dir, "a.jsonl", (0..ROWS).map(line).collect::<String>().as_bytes()),
        dir.join("a.parquet"),
        dir.join("a.arrow"),
        dir.join("csv"),
        dir.join("jsonl"),
    ]
}

fn rows(data: &dyn Dataset) -> Vec<f32> {
    let layout = Layout::new(data.spec(), ROWS).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ROWS);
    let mut context = feedline_core::Context::new(0, 0);
    data.read_many(&[0, 1, 2], &mut rows, &mut context).unwrap();
    drop(rows);
    let field = &slab[layout.offset(0)..][..ROWS * COLUMNS * 4];
    field.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn twenty_thousand_columns_are_one_field_in_every_format() {
    let dir = tempdir().unwrap();
    let names: Vec<String> = (0..COLUMNS).map(|at| format!("g{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let expected: Vec<f32> = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |at| value(row, at))).collect();
    for path in tables(dir.path(), &names) {
        let start = cpu_time();
        let what = path.display();
        assert_eq!(open(&path).unwrap().spec().fields().len(), COLUMNS, "{what}");
        let all: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let asked = OpenOptions { columns: Some(all.clone()), masks: all, ..Default::default() };
        assert_eq!(open_with(&path, &asked).unwrap().spec().fields().len(), 2 * COLUMNS, "{what}");
        let table = || Table::open(&path).stack("x", names.iter().copied());
        let data = table().build().unwrap();
        assert_eq!(data.spec().fields().len(), 1, "{what}");
        assert_eq!(rows(&data), expected, "{what}");
        let filled = table().missing("x", Missing::Mean).standardize("x").select(["x"]).build().unwrap();
        let scaled = rows(&filled);
        // Three numbers at equal distances: -1, 0 and 1 times the root of 3/2.
        assert!((scaled[0] + 1.5f32.sqrt()).abs() < 1e-5 && scaled[COLUMNS].abs() < 1e-5, "{what}");
        let each = names.iter().fold(table(), |table, name| table.standardize(name));
        assert_eq!(rows(&each.build().unwrap()), scaled, "{what}");
        let took = cpu_time() - start;
        println!("{what}: {took:?}");
        assert!(took < LIMIT, "{what} took {took:?}");
    }
}
