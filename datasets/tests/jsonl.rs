//! JSON Lines: types, missing values, and lines that are no objects.

mod made;

use feedline_datasets::{Values, open};
use made::{gz, read, write};
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
        let reader = open(write(dir.path(), name, &bytes)).unwrap();
        assert_eq!((reader.format(), reader.len()), ("jsonl", 2));
        assert_eq!(
            reader.schema().to_string(),
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
        // In the same buffers nothing stays of the sample before.
        let mut values = Values::new();
        for (sample, expected) in [(1, &second), (0, &first), (1, &second)] {
            reader.read(sample, &mut values).unwrap();
            assert!(values.fields().iter().map(|value| &value.bytes).eq(expected), "sample {sample}");
        }
        assert_eq!(read(&*reader, 0), first);
        assert_eq!(values.fields()[6].shape, [0]);
    }
}

#[test]
fn lines_that_are_no_objects_are_refused_with_their_byte() {
    let dir = tempdir().unwrap();
    for (second, why) in [
        ("", "no JSON object"),
        ("[1]", "expected an object"),
        ("{\"a\":}", "no JSON object"),
        ("{\"a\":1} x", "trailing characters"),
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
            // What was read to find the types is read again.
            Ok(reader) => for sample in 0..reader.len() {
                prop_assert!(reader.read(sample, &mut Values::new()).is_ok());
            },
        }
    }
}
