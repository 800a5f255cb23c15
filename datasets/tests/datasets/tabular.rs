//! Tables as training data: steps, casts, errors, and the saved description.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::made::{read, write};
use feedline_core::{Context, DType, Dataset, ElementType, ErrorKind, Layout, Rows, Values};
use feedline_datasets::{Bounded, Csv, CsvOptions, Missing, OpenOptions, Table, open, open_with, shards};
use tempfile::tempdir;

/// All rows, in one batch: the bytes of each field.
pub(crate) fn batch(data: &impl Dataset) -> BTreeMap<String, Vec<u8>> {
    let ids: Vec<u64> = (0..data.len()).rev().collect();
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, ids.len());
    data.read_many(&ids, &mut rows, &mut Context::new(0, 0)).map_err(|(_, error)| error).unwrap();
    let fields = data.spec().fields().iter().enumerate();
    let column = |(index, field): (usize, &feedline_core::Field)| {
        // Puts the rows back in the order of the file.
        let rows = rows.column_mut(index)[..ids.len() * field.row_bytes()].rchunks(field.row_bytes());
        (field.name().to_owned(), rows.flatten().copied().collect())
    };
    fields.map(column).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

pub(crate) fn ints(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

#[test]
fn shards_agree_only_on_types_that_lose_nothing() {
    let dir = tempdir().unwrap();
    for (format, shards) in [
        ("csv", ["id,x\n9007199254740993,1\n", "id,x\n0.5,2\n"]),
        ("jsonl", ["{\"id\":9007199254740993,\"x\":1}\n", "{\"id\":0.5,\"x\":2}\n"]),
        ("jsonl", ["{\"id\":[9007199254740993],\"x\":1}\n", "{\"id\":[0.5],\"x\":2}\n"]),
    ] {
        let folder = dir.path().join(format);
        std::fs::create_dir_all(&folder).unwrap();
        let paths =
            [0, 1].map(|shard| write(&folder, &format!("{shard}.{format}"), shards[shard].as_bytes()));
        let error = open(&folder).unwrap_err();
        let why = "\"id\" has fractions in another shard, and f64 does not hold all of its whole numbers: \
                   state its type by OpenOptions::types, such as text";
        assert!(error.to_string().contains(why) && error.path() == Some(&*paths[0]), "{error}");
        // The advice can be followed.
        let stated = |element| OpenOptions { types: vec![("id".into(), element)], ..Default::default() };
        let set = open_with(&folder, &stated(ElementType::Text)).unwrap();
        assert!(String::from_utf8(read(&*set, 0)[0].clone()).unwrap().contains("9007199254740993"));
        let only = OpenOptions { columns: Some(vec!["x".into()]), ..Default::default() };
        assert_eq!(read(&*open_with(&folder, &only).unwrap(), 1), [2i64.to_le_bytes()]);
        let error = open_with(&folder, &stated(ElementType::Number(DType::F64))).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not fit the stated type f64: it has whole numbers that f64 rounds")
        );
        let error = open_with(&folder, &stated(ElementType::Number(DType::I64))).unwrap_err();
        assert!(error.to_string().contains("column \"id\" does not fit the stated type i64"), "{error}");
        let line = if format == "csv" { 2 } else { 1 };
        assert!(error.to_string().contains(&format!("stated type i64: line {line} has ")), "{error}");
        assert!(error.offset().is_some() && error.path() == Some(&*paths[1]), "{error}");
    }
    let [one, two] = [("1.csv", "a,b\n1,2\n"), ("2.csv", "a,c\n1,2\n")]
        .map(|(name, text)| write(&dir.path().join("csv"), name, text.as_bytes()));
    std::fs::remove_file(dir.path().join("csv/0.csv")).unwrap();
    let error = open(dir.path().join("csv")).unwrap_err();
    assert!(
        error.to_string().contains("this one lacks the column \"b\"") && error.path() == Some(&*two),
        "{error}"
    );
    // Readers that were opened one by one have types of their own, and the error says how they agree.
    let open = |path| Arc::new(Csv::open(path).unwrap()) as Arc<dyn Dataset>;
    let three = write(dir.path(), "3.csv", b"a,b\n1,2.5\n");
    let error = shards(vec![open(&one), open(&three)]).unwrap_err();
    assert!(error.to_string().contains("open the folder as one set, or state the types"), "{error}");
    let types = vec![("b".into(), ElementType::Number(DType::F64))];
    let open =
        |path| Csv::open_with(path, CsvOptions { types: types.clone(), ..Default::default() }).unwrap();
    let set = shards(vec![Arc::new(open(&one)), Arc::new(open(&three))]).unwrap();
    assert_eq!(read(&set, 0)[1], 2f64.to_le_bytes());
}

#[test]
fn types_are_refused_where_the_file_has_types() {
    let dir = tempdir().unwrap();
    let lines = write(dir.path(), "lines.txt", b"1\n2\n");
    let types = vec![("text".into(), ElementType::Number(DType::I64))];
    let error = open_with(&lines, &OpenOptions { types, ..Default::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("only CSV and JSON Lines have columns without a type"), "{error}");
    assert_eq!(error.path(), Some(&*lines));
}

fn error_of(data: &Bounded, row: u64) -> feedline_core::Error {
    let layout = Layout::new(data.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 1);
    let (_, error) = data.read_many(&[row], &mut rows, &mut Context::new(0, 0)).unwrap_err();
    *error.downcast().unwrap()
}

#[test]
fn values_that_are_lost_missing_or_unknown_are_errors_of_their_row() {
    let dir = tempdir().unwrap();
    let rows =
        "n,f,city,day\n1,1.0,Rome,2024-01-01\n300,1.5,Oslo,2024-02-30\n9007199254740993,1e300,,\n,,Rome,\n";
    let path = write(dir.path(), "x.csv", rows.as_bytes());
    let table = || Table::open(&path);
    let list = || table().category_of("city", ["Rome", "Bern"]).select(["city"]);
    for (table, row, why) in [
        (
            table().cast("n", DType::U8).select(["n"]),
            1,
            "column \"n\" has 300 in row 1, which u8 does not hold",
        ),
        (
            table().cast("n", DType::F64).select(["n"]),
            2,
            "has 9007199254740993 in row 2, which f64 does not hold",
        ),
        (
            table().stack("x", ["n"]).select(["x"]),
            2,
            "has 9007199254740993 in row 2, which f32 does not hold",
        ),
        (table().cast("f", DType::I64).select(["f"]), 1, "has 1.5 in row 1, which i64 does not hold"),
        (table().cast("f", DType::F32).select(["f"]), 2, "has 1e300 in row 2, which f32 does not hold"),
        (table().select(["n"]), 3, "column \"n\" has a null in row 3: write a value there"),
        (table().stack("x", ["f"]).select(["x"]), 3, "column \"f\" has a null in row 3"),
        (table().category("city").select(["city"]), 2, "column \"city\" has a null in row 2"),
        (
            table().days("day").select(["day"]),
            1,
            "column \"day\" has \"2024-02-30\" in row 1, which is not a time",
        ),
        (table().days("day").select(["day"]), 2, "column \"day\" has a null in row 2"),
        (list(), 1, "column \"city\" has \"Oslo\" in row 1, which its list of categories lacks"),
    ] {
        let data = table.build().unwrap();
        assert!(data.read(0, &mut one(&data).row(0), &mut Context::new(0, 0)).is_ok());
        let error = error_of(&data, row);
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert_eq!((error.path(), error.sample()), (Some(&*path), Some(row)), "{error}");
    }
    let data = list().unknown("city").missing("city", Missing::Text("Bern".into())).build().unwrap();
    assert_eq!(ints(&batch(&data)["city"]), [0, 2, 1, 0]);
    // Columns without a value, in a format that has no types.
    for (name, text) in [("gap.csv", "a,b\n,1\n,2\n"), ("gap.jsonl", "{\"b\":1,\"a\":null}\n{\"b\":2}\n")] {
        let gap = || Table::open(write(dir.path(), name, text.as_bytes())).stack("x", ["a", "b"]);
        let data = gap().missing("a", Missing::Mask).build().unwrap();
        let found = batch(&data);
        assert_eq!((floats(&found["x"]), &found["a.present"]), (vec![0.0, 1.0, 0.0, 2.0], &vec![0, 0]));
        let error = gap().missing("a", Missing::Mean).build().unwrap_err();
        assert!(error.to_string().contains("\"a\" has no value, so it has no mean"), "{error}");
    }
    // NaN is a number, but no mean can be computed with it.
    let nan = write(dir.path(), "nan.csv", b"a,b\n1,1\nNaN,2\n");
    let data = Table::open(&nan).stack("x", ["a", "b"]).build().unwrap();
    assert!(floats(&batch(&data)["x"])[2].is_nan());
    let error = Table::open(&nan).standardize("a").build().unwrap_err();
    assert!(error.to_string().contains("\"a\" has NaN, and a mean is made of finite"), "{error}");
    assert_eq!((error.path(), error.sample()), (Some(&*nan), Some(1)));
}

/// Memory for one row.
fn one(data: &Bounded) -> Rows<'static> {
    let layout = Box::leak(Box::new(Layout::new(data.spec(), 1).unwrap()));
    let slab = vec![0; layout.bytes()].leak();
    Rows::new(layout, slab, 1)
}

#[test]
fn steps_that_do_not_fit_are_refused_when_the_table_is_built() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "x.csv", b"n,f,city\n1,1.5,Rome\n2,2.5,Oslo\n");
    let table = || Table::open(&path);
    for (table, why) in [
        (table().select(["n", "no"]), "there is no column \"no\" to read"),
        (table().cast("no", DType::F32), "there is no column \"no\" to read; the columns are"),
        (table().stack("x", ["n", "city"]), "column \"city\" of the stack \"x\" is text, not one number"),
        (table().stack("x", Vec::<String>::new()), "the stack \"x\" has no columns"),
        (table().stack("x", ["n", "n"]), "stack names \"n\" twice"),
        (table().stack("f", ["n"]), "two columns or arrays \"f\""),
        (table().category("f"), "column \"f\" is f64, which has no categories"),
        (table().category("city").standardize("city"), "\"city\" is a category, whose numbers have no mean"),
        (table().standardize("city"), "column \"city\" is text: standardize is for one number"),
        (
            table().missing("n", Missing::Text("x".into())),
            "column \"n\" is i64: a number does not become a text",
        ),
        (table().missing("city", Missing::Mean), "column \"city\" is text: only a number becomes"),
        (table().missing("n", Missing::Number(0.5)), "column \"n\": i64 does not hold 0.5"),
        (table().cast("city", DType::I64), "column \"city\" is city text [?], which is not cast to i64"),
        (table().days("n"), "column \"n\" is n i64 [], which is not a date or time"),
        (table().unknown("city"), "unknown names \"city\", which is no category"),
        (table(), "field \"city\" varies in size"),
    ] {
        let error = table.build().unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn any_reader_is_a_table_and_its_unchanged_columns_stay_in_memory() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tables");
    let whole = open(golden.join("none.parquet")).unwrap();
    let names: Vec<_> = whole.spec().fields().iter().map(|field| field.name().to_owned()).collect();
    let same = Table::new(open(golden.join("none.parquet")).unwrap()).rows().unwrap();
    assert_eq!(
        (same.spec(), same.about().groups.map(|groups| groups.largest)),
        (whole.spec(), whole.about().groups.map(|groups| groups.largest))
    );
    let backwards = Table::open(golden.join("none.parquet")).select(names.iter().rev()).rows().unwrap();
    let mut values = Values::new();
    for row in 0..whole.len() {
        assert_eq!(read(&*same, row), read(&*whole, row));
        values.read(&*backwards, row).unwrap();
        assert!(values.fields().iter().rev().map(|value| &value.bytes).eq(&read(&*whole, row)));
        let [same, whole] = [&same, &whole].map(|reader| reader.storage().decoded(row).unwrap().unwrap());
        assert!((0..names.len()).all(|field| same.slice(row, field) == whole.slice(row, field)));
    }
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny.arrow");
    let column = open(&tiny).unwrap().spec().fields()[0].name().to_owned();
    let data = Table::open(&tiny).select([&column]).build().unwrap();
    assert_eq!(data.storage().column(0).unwrap().row(2), Some(&9i32.to_le_bytes()[..]));
    let cast = Table::open(&tiny).cast(&column, DType::F32).select([&column]).build().unwrap();
    assert!(cast.storage().column(0).is_none());
    assert_eq!(floats(&batch(&cast)[&column])[2], 9.0);
}

#[test]
fn bool_columns_stay_bool_and_a_cast_to_bool_takes_0_and_1() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "x.csv", b"on,some,many,gap\ntrue,1,1,5\nfalse,0,2,\n");
    let table = |step: fn(Table) -> Table| step(Table::open(&path)).build();
    let data = table(|table| table.cast("some", DType::Bool).missing("gap", Missing::Mask)).unwrap();
    let types: Vec<_> = data.spec().fields().iter().map(|field| (field.name(), field.dtype())).collect();
    let wanted = [
        ("on", DType::Bool),
        ("some", DType::Bool),
        ("many", DType::I64),
        ("gap", DType::I64),
        ("gap.present", DType::Bool),
    ];
    assert_eq!(types, wanted);
    let columns = batch(&data);
    assert_eq!((&columns["on"], &columns["some"]), (&vec![1, 0], &vec![1, 0]));
    assert_eq!(columns["gap.present"], [1, 0]);
    let data = table(|table| table.cast("many", DType::Bool).select(["many"])).unwrap();
    let layout = Layout::new(data.spec(), 1).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 1);
    let error = data.read(1, &mut rows.row(0), &mut Context::new(0, 0)).unwrap_err().to_string();
    assert!(error.contains("bool") && error.contains('2'), "{error}");
}
