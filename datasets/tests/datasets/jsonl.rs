//! JSON Lines: types, missing values, and lines that are not objects.

use crate::made::{gz, read, write};
use feedline_core::random::splitmix64;
use feedline_core::{Dataset, Values};
use feedline_datasets::{JsonLines, JsonLinesOptions, Nulls, OpenOptions, open, open_with};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::tempdir;

const TABLE: &str = r#"{"i":1,"u":9999999999999999999,"f":1,"b":true,"t":"\n","x":[1,2],"y":[1.5],"m":{"k":1}}
{"y":[],"x":[3,4],"f":null,"i":-1,"u":0,"b":false,"t":null,"new":"é","m":7}
"#;

#[test]
fn keys_are_columns_of_the_type_of_their_values() {
    let dir = tempdir().unwrap();
    for (name, bytes) in [("x", TABLE.as_bytes().to_vec()), ("x.jsonl.gz", gz(TABLE.as_bytes()))] {
        let path = write(dir.path(), name, &bytes);
        assert_eq!(open(&path).unwrap().about().format, "jsonl");
        let reader =
            JsonLines::open_with(path, JsonLinesOptions { nulls: Nulls::Fill, ..Default::default() })
                .unwrap();
        assert_eq!(reader.len(), 2);
        assert_eq!(
            reader.spec().to_string(),
            "i i64 [], u u64 [], f f64 [], b bool [], t text [?], x i64 [2], y f64 [?], m text [?], \
             new text [?]"
        );
        let int = |value: i64| value.to_le_bytes().to_vec();
        let float = |value: f64| value.to_le_bytes().to_vec();
        let text = |text: &str| text.as_bytes().to_vec();
        let first = [
            int(1),
            9_999_999_999_999_999_999u64.to_le_bytes().to_vec(),
            float(1.0),
            vec![1],
            text("\n"),
            [int(1), int(2)].concat(),
            float(1.5),
            text("{\"k\":1}"),
            vec![],
        ];
        let second = [
            int(-1),
            int(0),
            float(f64::NAN),
            vec![0],
            vec![],
            [int(3), int(4)].concat(),
            vec![],
            text("7"),
            text("é"),
        ];
        // Reading into the same buffers leaves nothing of the sample before.
        let mut values = Values::new();
        for (sample, expected) in [(1, &second), (0, &first), (1, &second)] {
            values.read(&reader, sample).unwrap();
            assert!(values.fields().iter().map(|value| &value.bytes).eq(expected), "sample {sample}");
        }
        assert_eq!(read(&reader, 0), first);
        assert_eq!(values.fields()[6].shape, [0]);
    }
}

#[test]
fn lines_that_are_no_objects_are_refused_with_their_byte() {
    let dir = tempdir().unwrap();
    for (second, why) in [
        ("", "line 2: the text is not a JSON object"),
        ("[1]", "expected an object"),
        ("{\"a\":}", "line 2: the text is not a JSON object"),
        ("{\"a\":1} x", "trailing characters"),
        // One of two values would be lost; which one depends on the parser.
        ("{\"a\":3,\"a\":null}", "line 2: key \"a\" is there twice"),
        ("{\"a\":3,\"a\":3}", "line 2: key \"a\" is there twice"),
        ("{\"a\":\"\\ud800\"}", "line 2: key \"a\" has half of a surrogate pair"),
        ("{\"a\":\"\\udc00\\ud800\"}", "line 2: key \"a\" has half of a surrogate pair"),
    ] {
        let path = write(dir.path(), "x.jsonl", format!("{{\"a\":1}}\n{second}\n{{}}\n").as_bytes());
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why), "{second}: {error}");
        assert_eq!((error.path(), error.offset(), error.sample()), (Some(path.as_path()), Some(8), Some(1)));
    }
    let deep = format!("{{\"a\":{}}}", "[".repeat(100_000));
    assert!(open(write(dir.path(), "x.jsonl", deep.as_bytes())).is_err());
    assert!(open(write(dir.path(), "x.jsonl", b"{}\n{}\n")).unwrap_err().to_string().contains("no columns"));
}

#[test]
fn a_missing_value_is_an_error_of_its_row_or_filled() {
    let dir = tempdir().unwrap();
    let lines = concat!(
        r#"{"int":1,"float":1.5,"bool":true,"text":"x","ints":[1,2]}"#,
        "\n",
        r#"{"int":null,"float":2.5,"bool":false,"text":"","ints":[3,4]}"#,
        "\n",
        r#"{"int":3,"bool":false,"text":"y","ints":[5,6]}"#,
        "\n",
        r#"{"int":4,"float":4.5,"bool":null,"text":"z","ints":[7,8]}"#,
        "\n",
        r#"{"int":5,"float":5.5,"bool":true,"text":null,"ints":[7,8]}"#,
        "\n",
        r#"{"int":6,"float":6.5,"bool":true,"text":"t"}"#,
    );
    let path = write(dir.path(), "x.jsonl", lines.as_bytes());
    let reader = open(&path).unwrap();
    let schema = "int i64 [], float f64 [], bool bool [], text text [?], ints i64 [2]";
    assert_eq!(reader.spec().to_string(), schema);
    assert_eq!(read(&*reader, 0)[4], [1i64, 2].map(i64::to_le_bytes).concat());
    for (row, column) in [(1, "int"), (2, "float"), (3, "bool"), (4, "text"), (5, "ints")] {
        let error = Values::new().read(&*reader, row).unwrap_err();
        let why = format!(
            "column \"{column}\" has a null in row {row}: write a value there, or open the file with"
        );
        assert!(error.to_string().starts_with(&why), "{error}");
        assert_eq!((error.path(), error.sample()), (Some(&*path), Some(row)));
        let start = lines.match_indices('\n').nth(row as usize - 1).unwrap().0 + 1;
        assert_eq!(error.offset(), Some(start as u64));
    }
    let filled =
        JsonLines::open_with(&path, JsonLinesOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
    let schema = "int f64 [], float f64 [], bool text [?], text text [?], ints i64 [?]";
    assert_eq!(filled.spec().to_string(), schema);
    let by_format = open_with(&path, &OpenOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap();
    assert_eq!((by_format.spec(), read(&*by_format, 1)), (filled.spec(), read(&filled, 1)));
    let nan = f64::NAN.to_le_bytes();
    assert_eq!((&read(&filled, 1)[0][..], &read(&filled, 2)[1][..]), (&nan[..], &nan[..]));
    assert_eq!([(3, 2), (4, 3), (5, 4)].map(|(row, field)| read(&filled, row)[field].len()), [0; 3]);
}

#[test]
fn blank_lines_at_the_end_and_a_byte_order_mark_are_skipped() {
    let dir = tempdir().unwrap();
    for text in
        ["{\"a\":1}\n{\"a\":2}\n\n", "{\"a\":1}\r\n{\"a\":2}\r\n \r\n\r\n", "\u{FEFF}{\"a\":1}\n{\"a\":2}\n"]
    {
        for name in ["x.jsonl", "x"] {
            let reader = open(write(dir.path(), name, text.as_bytes())).unwrap();
            assert_eq!((reader.about().format, reader.len()), ("jsonl", 2), "{text:?}");
            assert_eq!(
                [0, 1].map(|row| read(&*reader, row)),
                [1i64, 2].map(|a| vec![a.to_le_bytes().to_vec()])
            );
            assert!(Values::new().read(&*reader, 2).unwrap_err().to_string().starts_with("no sample 2"));
        }
    }
    let error = open(write(dir.path(), "x.jsonl", b"\n \n")).unwrap_err();
    assert!(error.to_string().contains("no object has a key"), "{error}");
}

#[test]
fn floats_are_the_doubles_that_their_text_is_nearest_to() {
    let dir = tempdir().unwrap();
    let doubles =
        Vec::from_iter((0..20_000).map(|at| f64::from_bits(splitmix64(at))).filter(|x| x.is_finite()));
    // As short as possible, and with 17 digits, as Python and C write them.
    let line = |x: &f64| format!("{{\"a\":{x:?},\"b\":[{x:.16e}, {x:?}]}}\n");
    let reader = open(write(dir.path(), "x.jsonl", doubles.iter().map(line).collect::<String>().as_bytes()));
    let reader = reader.unwrap();
    assert_eq!(reader.spec().to_string(), "a f64 [], b f64 [2]");
    for (row, double) in doubles.iter().enumerate() {
        let bytes = double.to_le_bytes();
        assert_eq!(read(&*reader, row as u64), [bytes.to_vec(), [bytes, bytes].concat()], "{double:e}");
    }
}

#[test]
fn lists_that_are_not_all_numbers_are_their_json() {
    let dir = tempdir().unwrap();
    for list in ["[1,\"2\"]", "[[1],2]", "[1,1e999]", "[true]", "[\"a,b\",3]", "[1,null]", "{\"k\":[1]}"] {
        let reader = open(write(dir.path(), "x.jsonl", format!("{{\"a\":{list}}}").as_bytes())).unwrap();
        assert_eq!(reader.spec().to_string(), "a text [?]", "{list}");
        assert_eq!(read(&*reader, 0), [list.as_bytes()]);
    }
    let reader = open(write(dir.path(), "x.jsonl", b"{\"a\":[ ]}\n{\"a\":[ 1 ,\t2e0 ]}")).unwrap();
    assert_eq!(reader.spec().to_string(), "a f64 [?]");
    assert_eq!(read(&*reader, 1), [[1f64, 2.0].map(f64::to_le_bytes).concat()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_lines_are_read_or_refused(
        changes in vec((any::<prop::sample::Index>(), "[\\[\\]{}\",:0-9a.\\-e\n]"), 0..6),
    ) {
        let mut bytes = TABLE.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte.as_bytes()[0];
        }
        let dir = tempdir().unwrap();
        let path = write(dir.path(), "x.jsonl", &bytes);
        match open(&path) {
            Err(error) => prop_assert_eq!(error.path(), Some(path.as_path())),
            // The part that was read to find the types is read again.
            Ok(reader) => {
                let options = JsonLinesOptions { nulls: Nulls::Fill, ..Default::default() };
                let filled = match JsonLines::open_with(&path, options) {
                    Ok(filled) => filled,
                    Err(error) => {
                        let why = error.to_string();
                        prop_assert!(why.contains("f64 does not hold all of its whole numbers"), "{why}");
                        return Ok(());
                    }
                };
                for sample in 0..reader.len() {
                    prop_assert!(Values::new().read(&filled, sample).is_ok());
                    if let Err(error) = Values::new().read(&*reader, sample) {
                        let why = error.to_string();
                        prop_assert!(why.contains("has a null in row"), "{why}");
                    }
                }
            }
        }
    }
}
