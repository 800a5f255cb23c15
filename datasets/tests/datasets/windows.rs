//! Windows of time of a table equal those of a direct loop, for any order of the file, from memory and from
//! the file. Also gaps, parts by time, statistics of the training rows only, resumes, and errors.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::made::write;
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use feedline_core::{Context, DType, Dataset, ErrorKind, Layout, Random, Rows};
use feedline_datasets::{FitOn, Missing, OpenOptions, Table, TableWindows};
use parquet::file::properties::WriterProperties;
use tempfile::{TempDir, tempdir};

/// A row of the table; times of a group have gaps.
#[derive(Clone, Debug)]
struct Sale {
    shop: &'static str,
    item: i64,
    day: i64,
    sold: f32,
    price: f32,
}

/// Rows of 24 groups, in a random order.
fn sales(seed: u64) -> Vec<Sale> {
    let mut random = Random::from_key(seed);
    let mut rows = Vec::new();
    for shop in ["Oslo", "Bern", "Ürgüp", "Rome"] {
        for item in [7, -3, 11, 40, 2, 9] {
            let mut day = random.below(30) as i64 - 10;
            for _ in 0..random.below(40) {
                let [sold, price] = [0; 2].map(|_| (random.below(2001) as f32 - 1000.0) / 8.0);
                rows.push(Sale { shop, item, day, sold, price });
                day += if random.below(9) == 0 { 3 } else { 1 };
            }
        }
    }
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.below(at as u64 + 1) as usize);
    }
    rows
}

/// The rows as CSV, JSON Lines and Parquet.
fn files(dir: &Path, rows: &[Sale]) -> Vec<PathBuf> {
    let (mut csv, mut jsonl) = ("shop,item,day,sold,price\n".to_owned(), String::new());
    for Sale { shop, item, day, sold, price } in rows {
        csv += &format!("{shop},{item},{day},{sold:?},{price:?}\n");
        jsonl += &format!(
            "{{\"shop\": \"{shop}\", \"item\": {item}, \"day\": {day}, \"sold\": {sold:?}, \"price\": \
             {price:?}}}\n"
        );
    }
    let columns = [
        ("shop", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.shop))) as ArrayRef),
        ("item", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.item)))),
        ("day", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.day)))),
        ("sold", Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.sold)))),
        ("price", Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.price)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(61)).build();
    let mut table = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(groups)).unwrap();
    table.write(&batch).unwrap();
    vec![
        write(dir, "a.csv", csv.as_bytes()),
        write(dir, "a.jsonl", jsonl.as_bytes()),
        write(dir, "a.parquet", &table.into_inner().unwrap()),
    ]
}

/// The bytes of each field of these samples; the first error otherwise.
fn batch(data: &dyn Dataset, ids: &[u64]) -> Result<Vec<Vec<u8>>, String> {
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, ids.len());
    let mut context = Context::new(7, 0);
    data.read_many(ids, &mut rows, &mut context).map_err(|(_, error)| error.to_string())?;
    let many = columns(data, &mut rows);
    let mut slab = vec![0x11; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, ids.len());
    for (at, &id) in ids.iter().enumerate() {
        data.read(id, &mut rows.row(at), &mut context).map_err(|error| error.to_string())?;
    }
    assert_eq!(columns(data, &mut rows), many, "read and read_many differ");
    Ok(many)
}

fn columns(data: &dyn Dataset, rows: &mut Rows<'_>) -> Vec<Vec<u8>> {
    (0..data.spec().fields().len()).map(|field| rows.column_mut(field).to_vec()).collect()
}

fn all(data: &dyn Dataset) -> Vec<Vec<u8>> {
    batch(data, &Vec::from_iter(0..data.len())).unwrap()
}

fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

/// The fields of all windows, by a loop over the rows of each group; and the windows over a gap.
fn direct(rows: &[Sale], inputs: usize, targets: usize, stride: usize, max_gap: i64) -> (Vec<Vec<u8>>, u64) {
    let mut groups: BTreeMap<(&str, i64), Vec<&Sale>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry((row.shop, row.item)).or_default().push(row));
    let keys = Vec::from_iter(groups.keys().cloned());
    let mut shops: Vec<_> = keys.iter().map(|(shop, _)| *shop).collect();
    let mut items: Vec<_> = keys.iter().map(|(_, item)| *item).collect();
    shops.sort();
    shops.dedup();
    items.sort();
    items.dedup();
    let (mut fields, mut gaps) = (vec![Vec::new(); 4], 0);
    for ((shop, item), mut rows) in groups {
        rows.sort_by_key(|row| row.day);
        let mut start = 0;
        while start + inputs + targets <= rows.len() {
            let window = &rows[start..start + inputs + targets];
            start += stride;
            if window.windows(2).any(|pair| pair[1].day - pair[0].day > max_gap) {
                gaps += 1;
                continue;
            }
            let (x, y) = window.split_at(inputs);
            fields[0].extend(bytes(x.iter().flat_map(|row| [row.sold, row.price]).map(f32::to_le_bytes)));
            fields[1].extend(bytes(y.iter().map(|row| row.sold.to_le_bytes())));
            let shop = shops.iter().position(|own| *own == shop).unwrap() as i64;
            let item = items.iter().position(|own| *own == item).unwrap() as i64;
            fields[2].extend(bytes([shop.to_le_bytes(), item.to_le_bytes()]));
            fields[3].extend(window[0].day.to_le_bytes());
        }
    }
    (fields, gaps)
}

fn opened(path: &Path, cache_bytes: u64) -> Table {
    Table::open_with(path, OpenOptions { cache_bytes, ..Default::default() })
}

fn windows(table: Table, (inputs, targets, stride): (usize, usize, usize)) -> feedline_datasets::Windows {
    let windows = table.windows(inputs, targets, stride).group("shop").group("item").order_by("day");
    windows.x(["sold", "price"]).y(["sold"])
}

#[test]
fn windows_are_those_of_a_direct_loop_in_any_order_of_the_file_and_beyond_the_budget() {
    let dir = tempdir().unwrap();
    let rows = sales(3);
    let mut left_out = 0;
    for (number, path) in files(dir.path(), &rows).iter().enumerate() {
        for (inputs, targets, stride, max_gap) in
            [(5, 2, 1, 1), (4, 3, 3, 2), (1, 1, 2, 100), (12, 1, 1, 1), (3, 9, 7, 3)]
        {
            for cache_bytes in [512 << 20, 1] {
                let data = windows(opened(path, cache_bytes), (inputs, targets, stride));
                let data = data.max_gap(max_gap as f64).build().unwrap();
                assert_eq!(data.about().table_rows.unwrap().1, cache_bytes > 1);
                let (wanted, gaps) = direct(&rows, inputs, targets, stride, max_gap);
                let what = format!("file {number}: {inputs}, {targets}, {stride}, {max_gap}");
                assert_eq!(data.len() as usize, wanted[3].len() / 8, "{what}");
                assert!(all(&data) == wanted, "{what}: other values");
                let fate = data.fate();
                assert_eq!((fate.windows, fate.over_gaps), (data.len(), gaps), "{what}");
                left_out += gaps;
                // The windows are read in another order.
                let ids: Vec<_> = (0..data.len()).rev().step_by(3).collect();
                let x = inputs * 8;
                let picked: Vec<u8> =
                    ids.iter().flat_map(|&id| &wanted[0][id as usize * x..][..x]).copied().collect();
                assert!(batch(&data, &ids).unwrap()[0] == picked, "{what}");
            }
        }
    }
    assert!(left_out > 100, "{left_out} windows over gaps");
}

#[test]
fn shapes_types_and_groups_are_as_stated() {
    let dir = tempdir().unwrap();
    let csv = "t,id,x,kind\n0.5,b,1,Rome\n0.25,b,2,Oslo\n0.75,b,3,Rome\n-1.5,a,4,Oslo\n-0.5,a,5,Oslo\n";
    let path = write(dir.path(), "a.csv", csv.as_bytes());
    let table = || Table::open(&path).category("kind").cast("x", DType::F64);
    let data = table().windows(2, 0, 1).group("id").order_by("t").x(["x", "kind"]).build().unwrap();
    let fields: Vec<_> =
        data.spec().fields().iter().map(|field| (field.name(), field.dtype(), field.shape())).collect();
    let wanted: [(_, _, &[usize]); 3] =
        [("x", DType::F64, &[2, 2]), ("group", DType::I64, &[]), ("start", DType::F64, &[])];
    assert_eq!(fields, wanted);
    assert_eq!(data.classes("id").unwrap(), ["a", "b"]);
    let x = [4.0, 0.0, 5.0, 0.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0f64];
    let (group, start) = ([0, 1, 1i64], [-1.5, 0.25, 0.5f64]);
    let wanted = [
        bytes(x.map(f64::to_le_bytes)),
        bytes(group.map(i64::to_le_bytes)),
        bytes(start.map(f64::to_le_bytes)),
    ];
    assert_eq!(all(&data), wanted);
    // One series, and times that are texts.
    let path = write(dir.path(), "b.csv", b"t,x\n2024-03-01,2\n2024-02-29,1\n2024-03-02,3\n");
    let data = Table::open(&path).days("t").windows(1, 1, 1).order_by("t").x(["x"]).y(["x"]).build().unwrap();
    assert_eq!(data.spec().index_of("start").unwrap(), 2, "x, y and start");
    let days = [19782, 19783i32].map(i32::to_le_bytes);
    assert_eq!(
        all(&data),
        [bytes([1f32, 2.0].map(f32::to_le_bytes)), bytes([2f32, 3.0].map(f32::to_le_bytes)), bytes(days)]
    );
    assert_eq!(
        data.fate().to_string(),
        "2 windows of 1 groups; 0 over gaps are left out, and 0 groups are shorter than a window"
    );
}

/// A table whose later rows are far larger, so that a mean that includes them is noticed.
fn fold() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let rows = (0..10).map(|day| format!("{day},{},A\n", if day < 6 { day * 2 } else { 1000 * day }));
    let path = write(dir.path(), "a.csv", ("t,x,g\n".to_owned() + &rows.collect::<String>()).as_bytes());
    (dir, path)
}

fn series(table: Table) -> feedline_core::Result<TableWindows> {
    table.windows(2, 1, 1).group("g").order_by("t").x(["x"]).y(["x"]).build()
}

#[test]
fn numbers_are_those_of_the_training_rows_alone_and_a_fold_has_a_file_of_its_own() {
    let (dir, path) = fold();
    let saved = dir.path().join("fold.json");
    let table = |end: f64| Table::open(&path).standardize("x").fit_on(FitOn::between("t", ..end));
    let data = series(table(6.0).saved(&saved)).unwrap();
    let numbers: Vec<f64> = (0..6).map(|day| f64::from(day * 2)).collect();
    let mean = numbers.iter().sum::<f64>() / 6.0;
    let std = (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 6.0).sqrt();
    let x = |day: usize| ((if day < 6 { day * 2 } else { 1000 * day }) as f64 - mean) / std;
    let wanted = (0..8).flat_map(|start| [x(start) as f32, x(start + 1) as f32]);
    assert_eq!(all(&data)[0], bytes(wanted.map(f32::to_le_bytes)));
    // Splits the windows by the times of their targets.
    let (train, val) = (data.targets_in(..6.0).unwrap(), data.targets_in(6.0..).unwrap());
    assert_eq!((train.ids(), val.ids()), (&[0, 1, 2, 3][..], &[4, 5, 6, 7][..]));
    assert_eq!(data.targets_in(4.0..=5.0).unwrap().ids(), [2, 3]);
    // The file belongs to these rows: it is used for them again, and refused for others.
    assert_eq!(all(&series(table(6.0).saved(&saved)).unwrap()), all(&data));
    for (table, why) in [
        (
            table(7.0).saved(&saved),
            "fitted on rows with \"t\" in ..6.0, and this one is to be fitted on rows with \"t\" in ..7.0",
        ),
        (
            Table::open(&path).standardize("x").saved(&saved),
            "to be fitted on all rows: give each fold a file of its own",
        ),
        (table(7.0).fitted(&saved), "fitted on rows with \"t\" in ..6.0"),
        (Table::open(&path).standardize("x").fit_on(0..6).fitted(&saved), "is to be fitted on rows 0..6"),
    ] {
        let error = series(table).unwrap_err();
        assert!(error.kind() == ErrorKind::Data && error.path() == Some(&*saved), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(all(&series(table(6.0).fitted(&saved)).unwrap()), all(&data));
    // Other data uses the saved numbers, unless it says that it is the training data.
    let other = write(dir.path(), "b.csv", b"t,x,g\n0,5,A\n1,5,A\n2,5,A\n");
    let of_other = || Table::open(&other).standardize("x").fitted(&saved);
    let wanted = bytes([(5.0 - mean) / std; 2].map(|x| (x as f32).to_le_bytes()));
    assert_eq!(all(&series(of_other()).unwrap())[0], wanted);
    let error = series(of_other().fit_on(FitOn::between("t", ..6.0))).unwrap_err();
    assert!(error.to_string().contains("the saved table was made of other data"), "{error}");
}

#[test]
fn windows_whose_numbers_are_of_all_rows_are_not_parted_by_time() {
    let (_dir, path) = fold();
    for table in [Table::open(&path).standardize("x"), Table::open(&path).missing("x", Missing::Mean)] {
        let error = series(table).unwrap().targets_in(..6.0).unwrap_err();
        let why = "means of these windows are made of all rows, also of those to validate on";
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(why), "{error}");
    }
    let data = series(Table::open(&path)).unwrap();
    assert_eq!(data.targets_in(..6.0).unwrap().len(), 4, "without means nothing leaks");
    for range in [f64::NAN..9.0, 100.0..200.0] {
        let error = data.targets_in(range).unwrap_err().to_string();
        assert!(error.contains("no window has its targets in"), "{error}");
    }
}

#[test]
fn a_table_is_fitted_on_rows_ranges_and_times() {
    let (_dir, path) = fold();
    let mean = |fit: Option<FitOn>| {
        let table = Table::open(&path).select(["x"]).standardize("x");
        let table = if let Some(fit) = fit { table.fit_on(fit) } else { table };
        let data = table.build()?;
        Ok::<_, feedline_core::Error>((data.fingerprint(), batch(&data, &[2]).unwrap()))
    };
    let first = mean(Some((0..6).into())).unwrap();
    assert_eq!(first.1, mean(Some(vec![5, 4, 3, 2, 1, 0].into())).unwrap().1);
    assert_eq!(first.1, mean(Some(FitOn::between("t", ..=5.0))).unwrap().1);
    let fits =
        [None, Some((0..6).into()), Some((0..7).into()), Some(vec![0, 1].into()), Some(vec![0, 2].into())];
    let fingerprints: HashSet<_> = fits.into_iter().map(|fit| mean(fit).unwrap().0).collect();
    assert_eq!(fingerprints.len(), 5, "a cursor of another fold is refused");
    for (fit, why) in [
        (FitOn::from(0..11), "fit_on names row 10, and the table has 10"),
        (FitOn::from(vec![]), "fit_on names no rows"),
        (
            FitOn::between("t", 50.0..),
            "fit_on names no row of the table, which has no rows with \"t\" in 50.0..",
        ),
        (FitOn::between("u", 50.0..), "there is no column \"u\""),
        (FitOn::between("g", 50.0..), "fit_on names column \"g\", which is text and not one number"),
    ] {
        let error = mean(Some(fit)).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(why), "{error}");
    }
}

/// How a test makes windows of a table.
type Change = fn(Table) -> feedline_datasets::Windows;

#[test]
fn each_bad_input_is_one_error_that_names_rows_and_columns() {
    let dir = tempdir().unwrap();
    let build = |csv: &str, change: Change| {
        let path = write(dir.path(), "a.csv", ("t,x,g\n".to_owned() + csv).as_bytes());
        change(Table::open(path)).build()
    };
    let plain = plain_of;
    let rows = "1,1,A\n2,2,A\n";
    let cases: [(&str, Change, ErrorKind, &str); 23] = [
        ("1,1,A\nnan,2,A\n", plain, ErrorKind::Data, "row 1 has a time that is not a finite number"),
        ("1.5,1,A\ninf,2,A\n", plain, ErrorKind::Data, "row 1 has a time that is not a finite number"),
        ("1,1,A\n,2,A\n", plain, ErrorKind::Data, "column \"t\" has a null in row 1"),
        ("1,1,\n2,2,A\n", plain, ErrorKind::Data, "column \"g\" has a null in row 0"),
        (
            "1,1,A\n3,1,B\n1,1,B\n3,2,B\n",
            plain,
            ErrorKind::Data,
            "rows 1 and 3 have the same time, 3 of group \"B\"",
        ),
        (
            "1,1,A\n1,2,B\n",
            plain,
            ErrorKind::Data,
            "longer than every group: the longest of group \"B\" has 1 rows",
        ),
        (
            "1,1,A\n9,2,A\n",
            |table| plain_of(table).max_gap(2.0),
            ErrorKind::Data,
            "each of the 1 windows of 2 rows is over a gap",
        ),
        (rows, |table| plain_of(table).order_by("u"), ErrorKind::Config, "there is no column \"u\""),
        (rows, |table| plain_of(table).x(["u", "v"]), ErrorKind::Config, "there are no columns \"u\", \"v\""),
        (rows, |table| plain_of(table).group("w"), ErrorKind::Config, "there is no column \"w\""),
        (
            rows,
            |table| table.windows(1, 0, 1).order_by("t").x(["g"]),
            ErrorKind::Config,
            "of the stack \"x\" is text, not one number",
        ),
        (rows, |table| plain_of(table).order_by("g"), ErrorKind::Config, "a column of the group"),
        (rows, |table| plain_of(table.standardize("t")), ErrorKind::Config, "which a step changes"),
        (
            "a,1,A\nb,2,A\n",
            plain,
            ErrorKind::Config,
            "order_by names \"t\", which is text and not one number",
        ),
        (rows, |table| table.windows(1, 1, 1).x(["x"]).y(["x"]), ErrorKind::Config, "name it by order_by"),
        (
            rows,
            |table| table.windows(0, 1, 1).order_by("t").x(["x"]).y(["x"]),
            ErrorKind::Config,
            "inputs of 0",
        ),
        (
            rows,
            |table| table.windows(1, 1, 0).order_by("t").x(["x"]).y(["x"]),
            ErrorKind::Config,
            "stride of 0",
        ),
        (
            rows,
            |table| table.windows(1, 1, 1).order_by("t").x(["x"]),
            ErrorKind::Config,
            "targets and no columns",
        ),
        (
            rows,
            |table| table.windows(1, 1, 1).order_by("x").x(["t"]).y(["t"]),
            ErrorKind::Config,
            "has the name of a field",
        ),
        (rows, |table| plain_of(table.select(["x"])), ErrorKind::Config, "leave out select and stack"),
        (
            rows,
            |table| plain_of(table.missing("x", Missing::Mask)),
            ErrorKind::Config,
            "fill it with a number",
        ),
        (
            rows,
            |table| plain_of(table.category("g").unknown("g")),
            ErrorKind::Config,
            "leave it out of unknown",
        ),
        (rows, |table| plain_of(table).max_gap(-1.0), ErrorKind::Config, "max_gap is not above 0"),
    ];
    let mut others = Vec::new();
    for (csv, change, kind, why) in cases {
        let error = build(csv, change).unwrap_err();
        if error.kind() != kind || !error.to_string().contains(why) {
            others.push(format!("{csv:?}: {why}\n{error}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n\n"));
    // A missing cell is an error only of the windows that contain it.
    let data = build("1,1,A\n2,,A\n3,3,A\n4,4,A\n", plain).unwrap();
    assert_eq!(data.len(), 3);
    assert!(batch(&data, &[2]).is_ok());
    for id in [0, 1] {
        let error = batch(&data, &[2, id]).unwrap_err();
        assert!(error.contains("column \"x\"") && error.contains("row 1"), "{error}");
    }
}

fn plain_of(table: Table) -> feedline_datasets::Windows {
    table.windows(1, 1, 1).group("g").order_by("t").x(["x"]).y(["x"])
}

#[test]
fn other_windows_have_another_fingerprint_and_the_same_ones_have_the_same_from_memory_and_file() {
    let dir = tempdir().unwrap();
    let path = &files(dir.path(), &sales(5))[2];
    let fingerprint =
        |shape, gap: f64| windows(opened(path, 1), shape).max_gap(gap).build().unwrap().fingerprint();
    let all = [((3, 1, 1), 1.0), ((1, 3, 1), 1.0), ((3, 1, 2), 1.0), ((3, 1, 1), 2.0)];
    let all: HashSet<_> = all.into_iter().map(|(shape, gap)| fingerprint(shape, gap)).collect();
    assert_eq!(all.len(), 4);
    assert!(
        all.contains(&windows(opened(path, 1 << 20), (3, 1, 1)).max_gap(1.0).build().unwrap().fingerprint())
    );
}
