//! Tables: types, quotes, delimiters, headers, and rows that do not fit.

mod made;

use feedline_datasets::{Csv, CsvOptions, Reader, Values, open};
use made::{gz, read, write};
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
        let reader = open(write(dir.path(), name, &bytes)).unwrap();
        assert_eq!((reader.format(), reader.len()), ("csv", 2));
        assert_eq!(
            reader.schema().to_string(),
            "int i64 [], uint u64 [], float f64 [], missing f64 [], bool bool [], text text [?], \
             none text [?]"
        );
        let float = |value: f64| value.to_le_bytes().to_vec();
        let int = |value: i64| value.to_le_bytes().to_vec();
        let first = [int(1), int(-1), float(1.5), float(7.0), vec![1], b"x".to_vec(), vec![]];
        let second = [int(-2), int(0), float(-3.0), float(f64::NAN), vec![0], b"3".to_vec(), vec![]];
        // In the same buffers nothing stays of the sample before.
        let mut values = Values::new();
        for (sample, expected) in [(0, &first), (1, &second), (0, &first)] {
            reader.read(sample, &mut values).unwrap();
            assert!(values.fields().iter().map(|value| &value.bytes).eq(expected), "row {sample}");
        }
    }
}

#[test]
fn quotes_line_breaks_blank_lines_and_delimiters_are_read() {
    let dir = tempdir().unwrap();
    let texts = |reader: &dyn Reader| {
        let row = |row| read(reader, row).into_iter().map(|cell| String::from_utf8(cell).unwrap()).collect();
        (0..reader.len()).map(row).collect::<Vec<Vec<_>>>()
    };
    let path = write(dir.path(), "a.csv", b"\xEF\xBB\xBFa,b\r\n\"x, \"\"y\"\"\",\"1\r\n2\"\r\n\r\nlast,one");
    let reader = open(path).unwrap();
    assert_eq!(reader.schema().to_string(), "a text [?], b text [?]");
    assert_eq!(texts(&*reader), [["x, \"y\"", "1\r\n2"], ["last", "one"]]);
    for delimiter in ["\t", ";", "|"] {
        let text = "a,1;x\nb,2;y\n".replace(';', delimiter);
        let reader = open(write(dir.path(), "b", text.as_bytes())).unwrap();
        let options = CsvOptions { delimiter: Some(delimiter.as_bytes()[0]), header: Some(false) };
        let told = Csv::open_with(write(dir.path(), "c", text.as_bytes()), options).unwrap();
        assert_eq!(texts(&told), [["a,1", "x"], ["b,2", "y"]]);
        // Both fit; the comma is the first that is tried.
        assert_eq!(reader.schema().fields().len(), 2);
    }
}

#[test]
fn the_first_row_names_the_columns_unless_it_has_numbers() {
    let dir = tempdir().unwrap();
    let open = |text: &str, header| {
        let path = write(dir.path(), "x", text.as_bytes());
        Csv::open_with(path, CsvOptions { delimiter: None, header }).unwrap()
    };
    for (text, header, names, rows) in [
        ("a,b\n1,2\n", None, ["a", "b"], 1),
        ("1,b\n1,2\n", None, ["c0", "c1"], 2),
        ("a,a\n1,2\n", None, ["c0", "c1"], 2),
        ("a,\n1,2\n", None, ["c0", "c1"], 2),
        ("a,b\n1,2\n", Some(false), ["c0", "c1"], 2),
        ("1,2\n3,4\n", Some(true), ["1", "2"], 1),
    ] {
        let table = open(text, header);
        let found: Vec<_> = table.schema().fields().iter().map(|field| field.name.clone()).collect();
        assert_eq!((found.as_slice(), table.len()), (&names.map(String::from)[..], rows), "{text:?}");
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

    /// Every row reads as the whole table did when its types were found.
    #[test]
    fn any_table_is_read_or_refused(text in "([a1.,;\"\r\n é-]{0,3}[,\n]){0,20}[a1\"]?") {
        let dir = tempdir().unwrap();
        let path = write(dir.path(), "x.csv", text.as_bytes());
        match open(&path) {
            Err(error) => prop_assert_eq!(error.path(), Some(path.as_path())),
            Ok(reader) => {
                let mut values = Values::new();
                for row in 0..reader.len() {
                    let result = reader.read(row, &mut values);
                    prop_assert!(result.is_ok(), "{:?} of {:?}", result, text);
                }
            }
        }
    }
}
