//! Whole numbers in CSV and JSON Lines are read exactly or refused, also if their column has gaps or
//! fractions. Each value is compared with its text in the file.

use std::path::Path;

use crate::made::{gz, read, write};
use feedline_core::{DType, Dataset, ElementType, Values};
use feedline_datasets::{Missing, Nulls, OpenOptions, Table, open, open_with};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tempfile::tempdir;

/// The value in `bytes` as a text; whole numbers have all of their digits.
fn text(element: ElementType, bytes: &[u8]) -> String {
    let eight = || bytes.try_into().unwrap();
    match element {
        ElementType::Number(DType::I64) => i64::from_le_bytes(eight()).to_string(),
        ElementType::U64 => u64::from_le_bytes(eight()).to_string(),
        ElementType::Number(DType::F64) => match f64::from_le_bytes(eight()) {
            float if float.is_finite() && float.fract() == 0.0 => format!("{float:.0}"),
            float => float.to_string(),
        },
        ElementType::Text => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other}"),
    }
}

fn is_whole(cell: &str) -> bool {
    cell.strip_prefix('-').unwrap_or(cell).bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a value that was read equals its cell.
fn is_same(cell: &str, read: &str, element: ElementType) -> bool {
    if is_whole(cell) || element == ElementType::Text {
        read == cell
    } else {
        // Digits beyond the range of `f64` are not a number.
        read.parse().is_ok_and(|number: f64| number.is_finite() && Ok(number) == cell.parse())
    }
}

fn file(dir: &Path, format: &str, cells: &[&str]) -> std::path::PathBuf {
    let lines = cells.iter().enumerate().map(|(row, cell)| match (format, *cell) {
        ("csv", cell) => format!("{cell},0\n"),
        // The value is null, or the key is missing. The first line has all keys, so that the fields have the
        // order of the CSV columns.
        (_, "") if row % 2 == 0 => "{\"a\":null,\"b\":0}\n".into(),
        (_, "") => "{\"b\":0}\n".into(),
        (_, cell) => format!("{{\"a\":{cell},\"b\":0}}\n"),
    });
    let head = if format == "csv" { "a,b\n" } else { "" };
    write(dir, &format!("x.{format}"), (head.to_owned() + &lines.collect::<String>()).as_bytes())
}

const CELLS: [&str; 20] = [
    "",
    "0",
    "1",
    "-7",
    "0.5",
    "-2.25",
    "1e30",
    "1e999",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "9007199254740994",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "36893488147419103233",
    "1000000000000000000000000000000000000000000000000000000001",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_value_is_that_of_its_cell_or_refused(cells in vec(select(&CELLS[..]), 1..6)) {
        let dir = tempdir().unwrap();
        let there: Vec<_> = cells.iter().filter(|cell| !cell.is_empty()).copied().collect();
        // Values that no format may refuse.
        let is_i64 = !there.is_empty() && there.iter().all(|cell| cell.parse::<i64>().is_ok());
        let is_small = |cell: &&str| cell.parse::<f64>().is_ok_and(|float| float.abs() < 1e15);
        let is_small = !there.is_empty() && there.iter().all(is_small);
        for format in ["csv", "jsonl"] {
            if there.is_empty() && format == "jsonl" {
                continue;
            }
            let path = file(dir.path(), format, &cells);
            for (nulls, is_marked) in [(Nulls::Refuse, false), (Nulls::Fill, false), (Nulls::Refuse, true)] {
                let masks = if is_marked { vec!["a".into()] } else { vec![] };
                let reader = match open_with(&path, &OpenOptions { nulls, masks, ..Default::default() }) {
                    Ok(reader) => reader,
                    Err(error) => {
                        let why = error.to_string();
                        prop_assert!(why.contains("f64 does not hold all of its whole numbers"), "{why}");
                        let advice = "state its type by OpenOptions::types, such as text; the first is ";
                        prop_assert!(why.contains(advice), "{why}");
                        prop_assert!(error.path().is_some() && error.offset().is_some());
                        prop_assert!(!is_small && (!is_i64 || nulls == Nulls::Fill), "{cells:?}: {why}");
                        continue;
                    }
                };
                let element = reader.spec().fields()[0].element();
                if is_i64 && (nulls == Nulls::Refuse || there.len() == cells.len()) {
                    prop_assert_eq!(element, ElementType::Number(DType::I64), "{:?}", cells);
                }
                let mut values = Values::new();
                for (row, cell) in cells.iter().enumerate() {
                    let found = values.read(&*reader, row as u64);
                    let is_gap = cell.is_empty();
                    if is_gap && nulls == Nulls::Refuse && !is_marked {
                        // The text of an empty cell is an empty text.
                        let is_text = format == "csv" && element == ElementType::Text;
                        prop_assert_eq!(found.is_ok(), is_text, "{:?}", cells);
                        continue;
                    }
                    prop_assert!(found.is_ok(), "{cells:?}: {found:?}");
                    let value = text(element, &values.fields()[0].bytes);
                    let is_text = element == ElementType::Text;
                    let expected = match (is_gap, is_marked) {
                        (false, _) => is_same(cell, &value, element),
                        (true, false) => value == if is_text { "" } else { "NaN" },
                        (true, true) => value == if is_text { "" } else { "0" },
                    };
                    prop_assert!(expected, "{format}: {cell} of {cells:?} is {value} as {element}");
                    if is_marked {
                        prop_assert_eq!(&values.fields()[1].bytes, &[u8::from(!is_gap)]);
                    }
                }
            }
            // Read as a table whose columns are filled, cast and stacked.
            let table = || Table::open(&path).missing("a", Missing::Whole(9_007_199_254_740_993));
            for (table, dtype) in [
                (table().select(["a"]), None),
                (table().cast("a", DType::F64).select(["a"]), Some(DType::F64)),
                (table().cast("a", DType::I64).select(["a"]), Some(DType::I64)),
                (table().stack("a", ["a", "b"]).cast("a", DType::F64).select(["a"]), Some(DType::F64)),
            ] {
                let Ok(reader) = table.rows() else { continue };
                let element = reader.spec().fields()[0].element();
                prop_assert!(dtype.is_none_or(|dtype| element == ElementType::Number(dtype)));
                let mut values = Values::new();
                for (row, cell) in cells.iter().enumerate() {
                    let cell = if cell.is_empty() { "9007199254740993" } else { cell };
                    if values.read(&*reader, row as u64).is_ok() {
                        let bytes = &values.fields()[0].bytes;
                        let is_text = element == ElementType::Text;
                        let value = text(element, if is_text { bytes } else { &bytes[..8] });
                        let is_same = is_same(cell, &value, element);
                        prop_assert!(is_same, "{format}: {cell} of {cells:?} is {value} as {element}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_column_that_f64_would_round_is_named_with_file_line_and_what_to_do() {
    let dir = tempdir().unwrap();
    let big = "9007199254740993";
    let mask = "give it a mask, or state its type by OpenOptions::types, such as text";
    for (format, what) in [("csv", "column"), ("jsonl", "key")] {
        let line = |line: usize| if format == "csv" { line + 1 } else { line };
        let open = |cells: &[&str], nulls| {
            let path = file(dir.path(), format, cells);
            open_with(&path, &OpenOptions { nulls, ..Default::default() }).map_err(|error| (error, path))
        };
        for (cells, nulls, why) in [
            (&["1", big, "0.5"][..], Nulls::Refuse, "has other numbers, such as fractions, and f64"),
            (&["-1", "18446744073709551615"], Nulls::Refuse, "has other numbers, such as fractions, and f64"),
            (&["1", big, ""], Nulls::Fill, "has missing values, which become NaN, and f64"),
        ] {
            let (error, path) = open(cells, nulls).unwrap_err();
            let why = format!("{what} \"a\" {why} does not hold all of its whole numbers");
            let first = format!("the first is {} of line {}", cells[1], line(2));
            let all = [why.as_str(), &first, if nulls == Nulls::Fill { mask } else { "state its type" }];
            assert!(all.iter().all(|part| error.to_string().contains(part)), "{all:?}: {error}");
            assert_eq!((error.path(), error.offset().is_some()), (Some(&*path), true));
            // The advice can be followed, and other columns can be read.
            let types = vec![("a".into(), ElementType::Text)];
            let stated = open_with(&path, &OpenOptions { types, nulls, ..Default::default() }).unwrap();
            assert_eq!(read(&*stated, 1)[0], cells[1].as_bytes());
            let columns = Some(vec!["b".into()]);
            let other = open_with(&path, &OpenOptions { columns, nulls, ..Default::default() }).unwrap();
            assert_eq!(read(&*other, 1)[0], 0i64.to_le_bytes());
        }
        let masks = vec!["a".into()];
        let path = file(dir.path(), format, &["1", big, ""]);
        let marked = open_with(&path, &OpenOptions { masks, ..Default::default() }).unwrap();
        assert_eq!(read(&*marked, 1)[0], 9_007_199_254_740_993i64.to_le_bytes());
        // The file as gzip, then as one of two shards.
        let packed = write(dir.path(), &format!("x.{format}.gz"), &gz(&std::fs::read(&path).unwrap()));
        let error =
            open_with(&packed, &OpenOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap_err();
        assert!(error.to_string().contains("does not hold all"), "{error}");
        let set = dir.path().join(format);
        let names = ["0", "1"].map(|name| format!("{name}.{format}"));
        let shards = [file(dir.path(), format, &["0.5", "1"]), set.join(&names[0])];
        std::fs::create_dir_all(&set).unwrap();
        std::fs::copy(&shards[0], &shards[1]).unwrap();
        std::fs::copy(file(dir.path(), format, &["1", big, "1"]), set.join(&names[1])).unwrap();
        let error = feedline_datasets::open(&set).unwrap_err();
        assert!(error.to_string().contains("has fractions in another shard"), "{error}");
        assert!(error.to_string().contains(&format!("the first is {big} of line {}", line(2))), "{error}");
        assert_eq!(error.path(), Some(&*set.join(&names[1])));
        // Beside fractions in its own shard.
        std::fs::copy(file(dir.path(), format, &["1", big, "0.5"]), set.join(&names[1])).unwrap();
        let error = feedline_datasets::open(&set).unwrap_err();
        assert!(error.to_string().contains("has other numbers, such as fractions"), "{error}");
        assert_eq!(error.path(), Some(&*set.join(&names[1])));
    }
    let lists = write(dir.path(), "l.jsonl", format!("{{\"a\":[{big}]}}\n{{\"a\":[0.5]}}\n").as_bytes());
    let error = open(&lists).unwrap_err();
    assert!(error.to_string().contains(&format!("the first is [{big}] of line 1")), "{error}");
}

#[test]
fn fills_keep_their_digits() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "x.csv", b"a,b\n1,1\n,2\n");
    let whole = (1i128 << 53) + 1;
    let table = || Table::open(&path).select(["a"]);
    let row = |table: Table| read(&*table.rows().unwrap(), 1)[0].clone();
    assert_eq!(row(table().missing("a", Missing::Whole(whole))), (whole as i64).to_le_bytes());
    assert_eq!(row(table().missing("a", Missing::Number(7.0))), 7i64.to_le_bytes());
    for (table, why) in [
        (table().missing("a", Missing::Whole(1 << 63)), "i64 does not hold 9223372036854775808, which fills"),
        (
            table().missing("a", Missing::Whole(whole)).cast("a", DType::F64),
            "f64 does not hold 9007199254740993",
        ),
        (table().missing("a", Missing::Number(0.5)), "i64 does not hold 0.5"),
    ] {
        let error = table.build().unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    // A mean is a whole number of its own size; a fraction is no i64.
    let path = write(dir.path(), "x.csv", b"a\n1\n2\n\"\"\n");
    let mean = Table::open(&path).missing("a", Missing::Mean).cast("a", DType::I64);
    let error = mean.build().unwrap_err().to_string();
    assert!(error.contains("i64 does not hold 1.5"), "{error}");
    let path = write(dir.path(), "y.csv", b"a\n9007199254740993\n9007199254740995\n\"\"\n9007199254740991\n");
    let mean = Table::open(&path).missing("a", Missing::Mean).cast("a", DType::I64).build().unwrap();
    assert_eq!(crate::tabular::ints(&crate::tabular::batch(&mean)["a"])[2], 9_007_199_254_740_993);
    assert_eq!(mean.len(), 4);
}

#[test]
fn decimals_that_f64_does_not_hold_are_errors_of_their_row() {
    use arrow_array::{ArrayRef, Decimal128Array, RecordBatch};
    use std::sync::Arc;
    let dir = tempdir().unwrap();
    for (scale, tens) in [(0i8, 1i128), (2, 100), (-1, 1)] {
        let unit = if scale < 0 { 10 } else { 1 };
        let big = (1i128 << 53) + 1;
        let cells =
            vec![Some(7 * tens), Some(big * tens), None, Some(big * tens + tens / 2), Some(-big * tens)];
        let column = Decimal128Array::from(cells).with_precision_and_scale(30, scale).unwrap();
        let batch = RecordBatch::try_from_iter([("d", Arc::new(column) as ArrayRef)]).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let path = write(dir.path(), "d.arrow", &writer.into_inner().unwrap());
        let reader = open_with(&path, &OpenOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
        assert_eq!(read(&*reader, 0)[0], (7.0 * f64::from(unit)).to_le_bytes());
        for (row, number) in [(1, big), (4, -big)] {
            let error = Values::new().read(&*reader, row).unwrap_err();
            let why =
                format!("column \"d\" has the decimal {} in row {row}, which f64", number * i128::from(unit));
            assert!(error.to_string().contains(&why) && error.sample() == Some(row), "{why}: {error}");
        }
        // A fraction is rounded to the nearest number; a null is NaN.
        if scale == 2 {
            assert_eq!(read(&*reader, 3)[0], 9_007_199_254_740_994f64.to_le_bytes());
        }
        assert!(f64::from_le_bytes(read(&*reader, 2)[0].as_slice().try_into().unwrap()).is_nan());
    }
}
