//! Tables: types, quotes, delimiters, headers, and rows that do not fit.

use crate::made::{gz, read, write};
use feedline_core::random::splitmix64;
use feedline_core::{Dataset, Values};
use feedline_datasets::{Csv, CsvOptions, Nulls, OpenOptions, open, open_with};
use proptest::prelude::*;
use tempfile::tempdir;

#[test]
fn columns_have_the_first_type_that_all_cells_have() {
    let dir = tempdir().unwrap();
    let table = "int,uint,float,missing,bool,text,none\n\
                 1,18446744073709551615,1.5,7,True,x,\n\
                 -2,0,-3,,FALSE,3,\n";
    for (name, bytes) in [("a.csv", table.into()), ("b", table.into()), ("c.csv.gz", gz(table.as_bytes()))] {
        let bytes: Vec<u8> = bytes;
        let path = write(dir.path(), name, &bytes);
        assert_eq!(open(&path).unwrap().about().format, "csv");
        let reader = Csv::open_with(path, CsvOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("csv", 2));
        assert_eq!(
            reader.spec().to_string(),
            "int i64 [], uint u64 [], float f64 [], missing f64 [], bool bool [], text text [?], \
             none text [?]"
        );
        let float = |value: f64| value.to_le_bytes().to_vec();
        let int = |value: i64| value.to_le_bytes().to_vec();
        let first = [int(1), int(-1), float(1.5), float(7.0), vec![1], b"x".to_vec(), vec![]];
        let second = [int(-2), int(0), float(-3.0), float(f64::NAN), vec![0], b"3".to_vec(), vec![]];
        // Reading into the same buffers leaves nothing of the sample before.
        let mut values = Values::new();
        for (sample, expected) in [(0, &first), (1, &second), (0, &first)] {
            values.read(&reader, sample).unwrap();
            assert!(values.fields().iter().map(|value| &value.bytes).eq(expected), "row {sample}");
        }
    }
}

#[test]
fn quotes_line_breaks_blank_lines_and_delimiters_are_read() {
    let dir = tempdir().unwrap();
    let texts = |reader: &dyn Dataset| {
        let row = |row| read(reader, row).into_iter().map(|cell| String::from_utf8(cell).unwrap()).collect();
        (0..reader.len()).map(row).collect::<Vec<Vec<_>>>()
    };
    let path = write(dir.path(), "a.csv", b"\xEF\xBB\xBFa,b\r\n\"x, \"\"y\"\"\",\"1\r\n2\"\r\n\r\nlast,one");
    let reader = open(path).unwrap();
    assert_eq!(reader.spec().to_string(), "a text [?], b text [?]");
    assert_eq!(texts(&*reader), [["x, \"y\"", "1\r\n2"], ["last", "one"]]);
    for delimiter in ["\t", ";", "|"] {
        let text = "a,1;x\nb,2;y\n".replace(';', delimiter);
        let reader = open(write(dir.path(), "b", text.as_bytes())).unwrap();
        let delimiter = Some(delimiter.as_bytes()[0]);
        let options = CsvOptions { delimiter, header: Some(false), ..Default::default() };
        let told = Csv::open_with(write(dir.path(), "c", text.as_bytes()), options).unwrap();
        assert_eq!(texts(&told), [["a,1", "x"], ["b,2", "y"]]);
        // Both delimiters fit. The comma is tried first.
        assert_eq!(reader.spec().fields().len(), 2);
    }
}

#[test]
fn the_first_row_names_the_columns_unless_it_has_numbers() {
    let dir = tempdir().unwrap();
    let open = |text: &str, header| {
        let path = write(dir.path(), "x", text.as_bytes());
        Csv::open_with(path, CsvOptions { header, ..Default::default() }).unwrap()
    };
    for (text, header, names, rows) in [
        ("a,b\n1,2\n", None, ["a", "b"], 1),
        ("5,7\n1,2\n", None, ["c0", "c1"], 2),
        ("2015,2016\n2017,2018\n", None, ["c0", "c1"], 2),
        ("Bob,25\nAnn,30\n", None, ["c0", "c1"], 2),
        ("x,x\ny,x\n", None, ["c0", "c1"], 2),
        ("a,b\nb,a\n", None, ["a", "b"], 1),
        ("a,b\na,1\n", None, ["a", "b"], 1),
        ("a,b\n1,2\n", Some(false), ["c0", "c1"], 2),
        ("1,2\n3,4\n", Some(true), ["1", "2"], 1),
    ] {
        let table = open(text, header);
        let found: Vec<_> = table.spec().fields().iter().map(|field| field.name().to_owned()).collect();
        assert_eq!((found.as_slice(), table.len()), (&names.map(String::from)[..], rows), "{text:?}");
    }
}

#[test]
fn an_empty_cell_is_an_error_of_its_row_or_filled() {
    let dir = tempdir().unwrap();
    let path =
        write(dir.path(), "x.csv", b"int,float,bool,text\n1,1.5,true,x\n,2.5,false,\n3,,false,z\n4,4,,z\n");
    let reader = open(&path).unwrap();
    assert_eq!(reader.spec().to_string(), "int i64 [], float f64 [], bool bool [], text text [?]");
    for (row, column, byte) in [(1, "int", 33), (2, "float", 45), (3, "bool", 56)] {
        let error = Values::new().read(&*reader, row).unwrap_err();
        let why = format!(
            "column \"{column}\" has a null in row {row}: write a value there, or open the file with"
        );
        assert!(error.to_string().starts_with(&why), "{error}");
        assert_eq!((error.path(), error.sample(), error.offset()), (Some(&*path), Some(row), Some(byte)));
    }
    assert_eq!(read(&*reader, 0)[0], 1i64.to_le_bytes());
    let filled = Csv::open_with(&path, CsvOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
    assert_eq!(filled.spec().to_string(), "int f64 [], float f64 [], bool text [?], text text [?]");
    let by_format = open_with(&path, &OpenOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
    assert_eq!((by_format.spec(), read(&*by_format, 1)), (filled.spec(), read(&filled, 1)));
    let nan = f64::NAN.to_le_bytes();
    assert_eq!(read(&filled, 1), [&nan[..], &2.5f64.to_le_bytes(), b"false", b""]);
    assert_eq!(read(&filled, 3)[2], b"");
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_and_refused_elsewhere() {
    let dir = tempdir().unwrap();
    for text in ["\u{FEFF}1,2\n3,4\n", "\u{FEFF}\"1\",2\n3,4\n", "\u{FEFF}a,b\n1,2\n3,4\n"] {
        let reader = open(write(dir.path(), "x.csv", text.as_bytes())).unwrap();
        assert!(reader.spec().to_string().ends_with(" i64 []"), "{text:?}: {}", reader.spec());
        assert_eq!(read(&*reader, 0), [1i64, 2].map(i64::to_le_bytes), "{text:?}");
    }
    // Two files, one after the other.
    for (text, line, byte) in [("a,b\n1,2\n\u{FEFF}3,4\n", 3, 8), ("\u{FEFF}\u{FEFF}1,2\n3,4\n", 1, 0)] {
        let path = write(dir.path(), "x.csv", text.as_bytes());
        let error = open(&path).unwrap_err();
        let why = format!("line {line} begins with a byte order mark");
        assert!(error.to_string().starts_with(&why), "{error}");
        assert_eq!((error.path(), error.offset()), (Some(&*path), Some(byte)), "{error}");
    }
}

#[test]
fn a_quote_that_never_closes_is_refused_with_its_line() {
    let dir = tempdir().unwrap();
    let rows = |from: usize, to: usize| (from..to).map(|row| format!("{row},t{row}\n")).collect::<String>();
    let stray = format!("a,b\n{}1000,\"oops\n{}", rows(0, 1000), rows(1001, 5000));
    let never = "opens a quote that never closes: close it, or fetch the file again if it was cut";
    let goes_on = "opens a quoted cell that goes on over other lines, and more text follows where it closes";
    for (text, line, why) in [
        (stray.clone(), 1002, never),
        // The open quote is in the first column; the row has other cells too.
        (format!("a,b\n{}\"1000,x\n{}", rows(0, 1000), rows(1001, 5000)), 1002, never),
        // The fault is after the part that is read to find the delimiter.
        (format!("a,b\n{}1,\"oops\n{}", rows(0, 30_000), rows(0, 10)), 30_002, never),
        (stray + "5000,\"fine\"\n5001,x\n", 1002, goes_on),
        ("a,b\n1,x\n2,\"some tex".into(), 3, never),
        ("a,b\n1,x\n2,\"".into(), 3, never),
        ("a,b\n1,x\n2,\"y\"\"\n".into(), 3, never),
        ("a,b\r\n1,\"x\r\ny\"\r\n2,\"z\r\n".into(), 4, never),
        ("\u{FEFF}a,b\n1,\"x\n2,y\n".into(), 2, never),
        ("\u{FEFF}\"a,b\n1,x\n2,y\n".into(), 1, never),
        // The open quote is in the header.
        ("a,\"b\n1,x\n2,y\n".into(), 1, never),
        ("a;b\n1;\"x;3\n2;y\n".into(), 2, never),
        // Within a quoted cell of several lines.
        ("a,b\n1,\"x\ny\",\n".into(), 2, "has 3 cells, the first row has 2"),
    ] {
        let byte = text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
        for (name, bytes) in [
            ("x.csv", text.as_bytes().to_vec()),
            ("x.csv.gz", gz(text.as_bytes())),
            ("x.tsv", text.replace([',', ';'], "\t").into_bytes()),
        ] {
            let path = write(dir.path(), name, &bytes);
            let error = open(&path).unwrap_err();
            let why = format!("line {line} {why}");
            assert!(error.to_string().starts_with(&why), "{name}: {why}: {error}");
            assert_eq!(error.path(), Some(&*path));
            let end = byte + text.lines().nth(line - 1).unwrap().len();
            assert!((byte..=end).contains(&(error.offset().unwrap() as usize)), "{error}");
        }
        // As one of several shards.
        if text.starts_with("a,b\n") {
            write(dir.path(), "set/0.csv", b"a,b\n1,x\n");
            let second = write(dir.path(), "set/1.csv", text.as_bytes());
            let error = open(dir.path().join("set")).unwrap_err();
            assert!(error.to_string().contains(&format!("line {line} {why}")), "{error}");
            assert_eq!(error.path(), Some(&*second));
        }
    }
    // These quotes are text, as pandas reads them.
    for (cell, text) in [
        ("5\" disk", "5\" disk"),
        (" \"x", " \"x"),
        ("\"5\"\" disk\"", "5\" disk"),
        ("\"x\"y", "xy"),
        ("\"a\nb\"", "a\nb"),
        ("\"\"", ""),
        ("\"\"\"\"", "\""),
    ] {
        let path = write(dir.path(), "x.csv", format!("a,b\n1,{cell}\n2,y\n").as_bytes());
        let reader = open(&path).unwrap();
        assert_eq!((reader.len(), &read(&*reader, 0)[1][..]), (2, text.as_bytes()), "{cell}");
    }
}

#[test]
fn the_header_of_pandas_has_an_index_without_a_name() {
    let dir = tempdir().unwrap();
    for (text, names, rows) in [
        (",a,b\n0,1,x\n1,2,y\n", &["c0", "a", "b"][..], 2),
        // Columns without names, and an index of two levels.
        (",0,1,2\n0,0.5,1,2\n1,3,4,5\n", &["c0", "0", "1", "2"], 2),
        (",,a\nx,0,1\nx,1,2\n", &["c0", "c1", "a"], 2),
        (",a\r\n2024-01-01,1\r\n", &["c0", "a"], 1),
        ("\u{FEFF},a,b\n0,1,x\n", &["c0", "a", "b"], 1),
        ("\"\",\"a\",\"b\"\n0,1,x\n", &["c0", "a", "b"], 1),
        (",index\n0,5\n", &["c0", "index"], 1),
        // A row with a gap.
        (",7,8\n1,2,3\n", &["c0", "c1", "c2"], 2),
        (",,\n1,2,3\n", &["c0", "c1", "c2"], 2),
    ] {
        for (name, bytes) in [
            ("x.csv", text.into()),
            ("x.csv.gz", gz(text.as_bytes())),
            ("x.tsv", text.replace(',', "\t").into()),
        ] {
            let bytes: Vec<u8> = bytes;
            let reader = open(write(dir.path(), name, &bytes)).unwrap();
            let found: Vec<_> = reader.spec().fields().iter().map(|field| field.name()).collect();
            assert_eq!((&found[..], reader.len()), (names, rows), "{text:?}");
        }
    }
    // With a stated header, an empty name becomes a name by position.
    let path = write(dir.path(), "x.csv", b"a,,b\n1,2,3\n");
    let options = CsvOptions { header: Some(true), ..Default::default() };
    assert_eq!(Csv::open_with(path, options).unwrap().spec().to_string(), "a i64 [], c1 i64 [], b i64 []");
}

/// A header that is taken for a sample is a wrong sample, and a sample taken for a header is lost.
#[test]
fn a_first_row_that_may_be_names_or_values_is_refused_and_read_as_stated() {
    let dir = tempdir().unwrap();
    for (text, why) in [
        ("id,x,x\n1,2,3\n4,5,6\n", "has \"x\" twice"),
        ("a,a\n1,2\n", "has \"a\" twice"),
        ("a,a\nx,y\n", "has \"a\" twice"),
        (",a,a\n1,2,3\n", "has \"a\" twice"),
        ("a,1\n5,6\n7,8\n", "has texts and the number 1"),
        ("1,b\n1,2\n", "has texts and the number 1"),
        ("id,nan\n1,2\n", "has texts and the number nan"),
        ("a,\n1,2\n", "has texts and an empty cell"),
        ("a,,b\nx,y,z\n", "has texts and an empty cell"),
        (",a,\n1,2,3\n", "has texts and an empty cell"),
        ("2019,2020\n1,2\n3,4\n", "has numbers that may be names"),
        ("2019,2021\n0.5,1\n", "has numbers that may be names"),
        ("country,2019,2020\nItaly,5,6\nFrance,7,8\n", "has numbers that may be names"),
        ("0,1,2\n5,6,7\n", "has numbers that may be names"),
        ("2020\n1\n2\n", "has numbers that may be names"),
        ("Bob,Rome\nAnn,Rome\n", "has a text that a later row has in the same column"),
    ] {
        for (name, bytes) in [
            ("x.csv", text.into()),
            ("x.csv.gz", gz(text.as_bytes())),
            ("x.tsv", text.replace(',', "\t").into()),
            ("x", format!("{text}\n").into()),
        ] {
            let bytes: Vec<u8> = bytes;
            if name == "x" && !text.contains(',') {
                continue;
            }
            let path = write(dir.path(), name, &bytes);
            let error = open(&path).unwrap_err();
            assert!(error.to_string().starts_with(&format!("the first row {why}")), "{text:?}: {error}");
            assert!(error.to_string().contains("OpenOptions::header Some(true)"), "{error}");
            assert_eq!((error.path(), error.offset()), (Some(&*path), Some(0)), "{text:?}");
            let rows = text.lines().count() as u64;
            let of = |header| open_with(&path, &OpenOptions { header: Some(header), ..Default::default() });
            assert_eq!(of(false).unwrap().len(), rows, "{text:?}");
            assert_eq!(of(false).unwrap().spec().fields()[0].name(), "c0");
            let twice = why.contains("twice");
            match of(true) {
                Ok(table) => assert_eq!((table.len(), twice), (rows - 1, false), "{text:?}"),
                Err(error) => assert!(twice && error.to_string().contains("two columns"), "{error}"),
            }
        }
    }
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "x.csv", b"a,b,a\n1,2,3\n");
    let error = Csv::open_with(&path, CsvOptions { header: Some(true), ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("two columns or arrays \"a\""), "{error}");
    assert_eq!(error.path(), Some(&*path));
}

#[test]
fn floats_are_the_doubles_that_their_text_is_nearest_to() {
    let dir = tempdir().unwrap();
    let doubles =
        Vec::from_iter((0..20_000).map(|at| f64::from_bits(splitmix64(at))).filter(|x| x.is_finite()));
    // As short as possible, and with 17 digits, as Python and C write them.
    let row = |x: &f64| format!("{x:?},{x:.16e}\n");
    let reader = open(write(dir.path(), "x.csv", doubles.iter().map(row).collect::<String>().as_bytes()));
    let reader = reader.unwrap();
    for (row, double) in doubles.iter().enumerate() {
        assert_eq!(read(&*reader, row as u64), [double.to_le_bytes(); 2], "row {row}: {double:e}");
    }
}

#[test]
fn rows_that_do_not_fit_are_refused_with_line_and_byte() {
    let dir = tempdir().unwrap();
    let cases: [(&[u8], &str, u64); 3] = [
        (b"a,b\n1,2\n3\n4,5\n", "line 3 has 1 cells, the first row has 2", 8),
        (b"a,b\n1,2\n3,4,5\n", "line 3 has 3 cells", 8),
        (b"a,b\n1,2\nx,\xFF\n", "column 1 of the row is not UTF-8", 8),
    ];
    for (bytes, why, byte) in cases {
        let path = write(dir.path(), "x.csv", bytes);
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!((error.path(), error.offset()), (Some(path.as_path()), Some(byte)), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Every row gives the values of the whole table as read when its types were found, except missing
    /// values.
    #[test]
    fn any_table_is_read_or_refused(text in "([a1.,;\"\r\n é-]{0,3}[,\n]){0,20}[a1\"]?") {
        let dir = tempdir().unwrap();
        let path = write(dir.path(), "x.csv", text.as_bytes());
        let filled = Csv::open_with(&path, CsvOptions { nulls: Nulls::Fill, ..Default::default() });
        match Csv::open(&path) {
            Err(error) => {
                prop_assert_eq!(error.path(), Some(path.as_path()));
                prop_assert!(filled.is_err());
            }
            Ok(reader) => {
                let filled = filled.unwrap();
                let mut values = Values::new();
                for row in 0..reader.len() {
                    let result = values.read(&filled, row);
                    prop_assert!(result.is_ok(), "{:?} of {:?}", result, text);
                    if let Err(error) = values.read(&reader, row) {
                        let why = error.to_string();
                        prop_assert!(why.contains("has a null in row"), "{} of {:?}", why, text);
                    }
                }
            }
        }
    }
}
