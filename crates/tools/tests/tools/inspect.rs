//! The example `inspect`: its output and its exit code.

use crate::run::{npy, run, shared, write};
use serde_json::{Value, json};

/// Two samples of a big-endian array in Fortran order: rows 1 2 3 and 4 5 6.
fn array() -> Vec<u8> {
    let numbers: Vec<u8> = [1, 4, 2, 5, 3, 6].iter().flat_map(|&number: &i16| number.to_be_bytes()).collect();
    npy(">i2", "True", "(2, 3)", &numbers)
}

fn inspect(arguments: &[&str]) -> std::process::Output {
    run("inspect", arguments)
}

#[test]
fn json_has_format_samples_fields_and_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "numbers", &array());
    for arguments in [&["--json"][..], &["--json", "--all"]] {
        let output = inspect(&[&[path.to_str().unwrap()], arguments].concat());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        // printf '\1\0\2\0\3\0' | sha256sum, and of 4, 5, 6.
        let expected = json!({
            "format": "npy", "samples": 2, "fields": [{"name": "array", "dtype": "i16", "shape": [3]}],
            "first": "047dbf5366372631ba7e3e02520e651446b899c96c4b64663bac378a298a7bf7",
            "last": "d0b212f1ebaf2e1773e29deeae045a7098e35ccc7ce42410571605bd848ada10",
            "sample": {"number": 0, "fields": {"array": "1 2 3"}},
        });
        let mut printed = printed;
        let load = printed.as_object_mut().unwrap().remove("load").unwrap();
        let load = load.as_str().unwrap();
        let data = format!("let data = Bounded::new(open({path:?})?)?;");
        assert!(load.contains("feedline-datasets = \"0.1\"\n") && load.contains(&data), "{load}");
        assert_eq!(printed, expected);
    }
    let text = String::from_utf8(inspect(&[path.to_str().unwrap()]).stdout).unwrap();
    assert!(text.starts_with("format   npy\nsamples  2\nfield    array i16 [3]\nfirst    "), "{text}");
}

#[test]
fn what_is_wrong_is_one_line_with_the_file_and_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let cut = write(folder.path(), "cut.npy", &array()[..array().len() - 1]);
    let cut = cut.to_str().unwrap();
    let end = format!("byte {}", array().len() - 1);
    let cases: [(&[&str], &[&str]); 4] = [
        (&[cut], &["cut short: [2, 3] of i16 are 12 bytes of data, found 11", cut, &end]),
        (&["/nowhere/x.npy"], &["no such file", "/nowhere/x.npy"]),
        (&[], &["there is no path"]),
        (&[cut, "--every"], &["--every"]),
    ];
    for (arguments, parts) in cases {
        let output = inspect(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{line}");
        assert!(line.starts_with("inspect: ") && line.matches('\n').count() == 1, "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}

#[test]
fn a_folder_with_bad_files_is_listed_whole_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["set/0.npy", "set/1.npy", "set/2.npy", "set/3.npy"];
    let [good, cut, other, last] = names.map(|name| folder.path().join(name));
    write(folder.path(), names[0], &array());
    write(folder.path(), names[1], &array()[..array().len() - 1]);
    write(folder.path(), names[2], b"");
    write(folder.path(), names[3], &array());
    let set = folder.path().join("set");
    let output = inspect(&[set.to_str().unwrap()]);
    let (text, line) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.starts_with("inspect: 2 of 4 files are bad: ") && line.matches('\n').count() == 1, "{line}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (line, (state, path, what)) in lines.iter().zip([
        ("good", &good, "npy, 2 samples"),
        ("bad", &cut, "cut short"),
        ("bad", &other, "the file is empty"),
        ("good", &last, "npy, 2 samples"),
    ]) {
        let begins = format!("{state:<8} {}  ", path.display());
        assert!(line.starts_with(&begins) && line.contains(what), "{begins}: {line}");
    }
    let output = inspect(&[set.to_str().unwrap(), "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_bad = |file: &Value| file.get("error").is_some();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        printed["files"].as_array().unwrap().iter().map(is_bad).collect::<Vec<_>>(),
        [false, true, true, false]
    );
    // A valid file that does not fit the others is reported as the bad one.
    write(folder.path(), names[1], &array());
    write(folder.path(), names[2], &npy("|u1", "False", "(2,)", &[1, 2]));
    let text = String::from_utf8(inspect(&[set.to_str().unwrap()]).stdout).unwrap();
    let bad: Vec<_> = text.lines().filter(|line| line.starts_with("bad")).collect();
    assert!(bad.len() == 1 && bad[0].contains("2.npy") && bad[0].contains("the shards differ"), "{text}");
}

#[test]
fn every_format_is_read_by_one_program() {
    let Some(shared) = shared() else { return };
    for (file, format, samples) in [
        ("arrow/1.0.0-littleendian__generated_nested.stream", "arrow", 17),
        ("arrow/2.0.0-compression__generated_uncompressible_zstd.arrow_file", "arrow", 4),
        ("cifar10/cifar_test_first1000.bin.gz", "cifar10", 1000),
        ("csv/seaborn-data__iris.csv", "csv", 150),
        ("imagenet-sample", "folder", 45),
        ("mds/timeseries20_text", "mds", 20),
        ("mnist", "idx", 60000),
        ("npy/npyz__compressed.npz", "npz", 1),
        ("parquet/parquet-testing__alltypes_plain.snappy.parquet", "parquet", 2),
        ("text", "text", 40000),
    ] {
        let path = shared.join(file);
        let output = inspect(&[path.to_str().unwrap(), "--json"]);
        let line = String::from_utf8(output.stderr).unwrap();
        if output.status.code() == Some(2) {
            // The first row of these has a null: the line names row and column.
            let names_row = ["has a null in row 0", "has a null within its list in row 0"];
            let names_row = names_row.iter().any(|words| line.contains(words));
            assert!(names_row && line.contains("column \""), "{line}");
            continue;
        }
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&printed["format"], &printed["samples"]), (&json!(format), &json!(samples)), "{file}");
    }
}

/// Two samples of a table, one of them with a text of another length.
#[test]
fn a_sample_the_lengths_and_the_lines_that_load_it_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "words.jsonl",
        b"{\"word\": \"one\", \"n\": 1}\n{\"word\": \"three\", \"n\": 3}\n",
    );
    let output = inspect(&[path.to_str().unwrap(), "--sample", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "lengths  word: 3 to 5, mean 4.0, of 2 samples",
        "sample 1",
        "  word         \"three\"",
        "  n            3",
        "  feedline-datasets = { version = \"0.1\", features = [\"jsonl\"] }",
        "  let builder = Loader::builder(data).batch_size(256).shuffle().seed(7);",
        "  let mut loader = builder.build(&Device::best()?)?;",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}: {text}");
    }
    let data = format!(
        "  let set = open({path:?})?;\n  \
         // As token ids (feature \"tokenizers\"), in place of `set` below:\n  \
         // Arc::new(Tokenized::new(set, \"word\", \"tokenizer.json\")?)\n  \
         let data = Bounded::measured(set)?;\n"
    );
    assert!(text.contains(&data), "{text}");
    for (arguments, part) in
        [(["--sample", "2"], "no sample 2: there are 2"), (["--sample", "x"], "give a whole number")]
    {
        let output = inspect(&[&[path.to_str().unwrap()][..], &arguments].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && line.contains(part), "{line}");
    }
}

#[test]
fn the_picture_of_a_sample_is_saved_as_stored_or_as_png() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("picture.png");
    // 4 x 5 gray pixels.
    let gray =
        write(folder.path(), "gray.npy", &npy("|u1", "False", "(1, 4, 5)", &(0..20).collect::<Vec<u8>>()));
    let arguments = [gray.to_str().unwrap(), "--save", save.to_str().unwrap()];
    assert_eq!(inspect(&arguments).status.code(), Some(0));
    let bytes = std::fs::read(&save).unwrap();
    let mut decoder = feedline_images::Decoder::new();
    let picture = decoder.decode(&bytes).unwrap();
    assert_eq!((picture.size.width, picture.size.height), (5, 4));
    assert_eq!(picture.pixels, (0..20).flat_map(|gray| [gray; 3]).collect::<Vec<u8>>());
    // The same picture, encoded, in a folder of classes.
    let stored = write(folder.path(), "set/cat/1.png", &bytes);
    let copy = folder.path().join("copy.png");
    let set = folder.path().join("set");
    let output = inspect(&[set.to_str().unwrap(), "--save", copy.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("png picture, 5 x 4") && text.contains("Pictures::new(open("), "{text}");
    assert_eq!(std::fs::read(copy).unwrap(), std::fs::read(stored).unwrap());
    // No picture at all.
    let numbers = write(folder.path(), "numbers.npy", &array());
    let output = inspect(&[numbers.to_str().unwrap(), "--save", save.to_str().unwrap()]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && line.contains("the sample has no picture"), "{line}");
}

/// A table with gaps: the printed lines stand in this test, so they compile, and load the table.
#[test]
fn missing_values_are_counted_and_the_lines_load_the_table() {
    use feedline_datasets::{Bounded, Missing, Table};
    let folder = tempfile::tempdir().unwrap();
    let rows = ["30,1.5,Rome,7,one", "31,,Oslo,,two", "32,2.5,,9,", "33,,Rome,8,three", "34,3.5,Oslo,6,four"];
    let text = format!("age,income,city,code,note\n{}\n", rows.join("\n"));
    let path = write(folder.path(), "people.csv", text.as_bytes());
    let output = inspect(&[path.to_str().unwrap(), "--sample", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "missing  income: 2 of 5 rows",
        "missing  city: 1 of 5 rows",
        "missing  code: 1 of 5 rows",
        "missing  note: 1 of 5 rows",
        "  income.present false",
        "  city         \"Oslo\"",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}: {text}");
    }
    let load = || -> feedline::Result<Bounded> {
        // The lines that `inspect` printed, as code.
        let table = Table::open(&path)
            .missing("income", Missing::Mean)
            .category("city")
            .missing("city", Missing::Text("none".into()))
            .missing("code", Missing::Mask)
            .missing("note", Missing::Mask)
            .rows()?;
        let data = Bounded::measured(table)?;
        Ok(data)
    };
    let own = include_str!("inspect.rs");
    let printed = text.split("\n  let table").nth(1).unwrap().split("\n  let builder").next().unwrap();
    let printed = format!("let table{printed}").replace(&format!("{path:?}"), "&path");
    let expected: Vec<_> = printed.lines().map(str::trim).collect();
    let lines: Vec<_> = own.lines().map(str::trim).collect();
    assert!(lines.windows(expected.len()).any(|lines| lines == expected), "{printed}");
    let data = load().unwrap();
    assert_eq!(data.lengths("note").unwrap(), [3, 3, 0, 5, 4]);

    let output = inspect(&[path.to_str().unwrap(), "--json", "--all"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = json!({"income": 2, "city": 1, "code": 1, "note": 1});
    assert_eq!(printed["missing"], json!({"rows": 5, "columns": counts}));
    // 17 columns; the first is text.
    let wide = format!("t{}\na{}\nb{}\n", ",1".repeat(16), ",2".repeat(16), ",3".repeat(16));
    let wide = wide.replacen(&",1".repeat(16), &(0..16).map(|n| format!(",c{n}")).collect::<String>(), 1);
    const WIDE: &str = "Table::open(PATH)\n      \
        .stack(\"x\", [\"c0\", \"c1\", \"c2\", \"c3\", \"c4\", \"c5\", \"c6\", \"c7\", \"c8\", \"c9\", \
        \"c10\", \"c11\", \"c12\", \"c13\", \"c14\", \"c15\"])\n      .rows()?;";
    // Without texts all rows have one size; without gaps the table needs no steps.
    for (name, text, lines) in [
        (
            "n.csv",
            "a,b\n1,2\n,3\n",
            "Table::open(PATH)\n      .missing(\"a\", Missing::Mask)\n      .build()?;",
        ),
        ("m.csv", "a,b\n1,2\n4,3\n", "let data = Bounded::new(open(PATH)?)?;"),
        (
            "beyond.csv",
            "a,b,c\n1,2,18446744073709551615\n4,9223372036854775807,3\n",
            "Table::open(PATH)\n      .select([\"a\", \"b\"])\n      .build()?;",
        ),
        ("wide.csv", &wide, WIDE),
    ] {
        let path = write(folder.path(), name, text.as_bytes());
        let text = String::from_utf8(inspect(&[path.to_str().unwrap()]).stdout).unwrap();
        assert!(text.contains(&lines.replace("PATH", &format!("{path:?}"))), "{text}");
        assert_eq!(text.contains("missing  "), name == "n.csv", "{text}");
    }
    let filled = inspect(&[folder.path().join("n.csv").to_str().unwrap(), "--fill"]);
    let filled = String::from_utf8(filled.stdout).unwrap();
    assert!(filled.contains("&OpenOptions { nulls: Nulls::Fill, ..Default::default() })?"), "{filled}");
}

/// A list is no category: a text for it would join the texts of its items.
#[test]
fn a_column_of_lists_is_no_category() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..8)
        .map(|row| format!("{{\"tags\":[\"a{}\",\"b\"],\"kind\":\"k{}\",\"n\":1}}\n", row % 2, row % 2))
        .collect();
    write(folder.path(), "lines/0.jsonl", lines.as_bytes());
    // Four shards of one file, so that each of its lists of texts comes four times.
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/tests/golden/tables/gzip.parquet");
    let bytes = std::fs::read(golden).unwrap();
    (0..4).for_each(|shard| drop(write(folder.path(), &format!("shards/{shard}.parquet"), &bytes)));
    for (set, lists, texts) in [("lines/0.jsonl", "tags", "kind"), ("shards", "words", "class")] {
        let path = folder.path().join(set);
        let text = String::from_utf8(inspect(&[path.to_str().unwrap(), "--all"]).stdout).unwrap();
        assert!(!text.contains(&format!(".category({lists:?})")), "{text}");
        assert!(text.contains(&format!(".category({texts:?})")), "{text}");
    }
}

#[test]
fn the_classes_of_a_folder_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..12).map(|number| format!("class{number:02}")).collect();
    for name in &names {
        write(folder.path(), &format!("{name}/1.txt"), b"x");
    }
    let path = folder.path().to_str().unwrap();
    let text = String::from_utf8(inspect(&[path]).stdout).unwrap();
    let line = format!("classes  12: {}, ...", names[..10].join(", "));
    assert!(text.lines().any(|printed| printed == line), "{text}");
    let printed: Value = serde_json::from_slice(&inspect(&[path, "--json"]).stdout).unwrap();
    assert_eq!(printed["classes"], json!(names));
}

/// The command and the example are one program.
#[test]
fn the_program_feedline_inspects_and_packs_as_the_examples_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "numbers", &array());
    let feedline = |arguments: &[&str]| {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_feedline")).args(arguments).output();
        program.expect("the program runs")
    };
    let path = path.to_str().unwrap();
    let (ours, example) = (feedline(&["inspect", path, "--json"]), inspect(&[path, "--json"]));
    assert_eq!((ours.status.code(), ours.stdout), (Some(0), example.stdout));
    let packed = folder.path().join("packed.arrow");
    let ours = feedline(&["pack", path, packed.to_str().unwrap(), "--quiet"]);
    let text = String::from_utf8(ours.stdout).unwrap();
    assert!(ours.status.code() == Some(0) && text.starts_with("packed 2 samples: 1 file"), "{text}");
    let ours = feedline(&["inspect", "/nowhere/x.npy"]);
    let line = String::from_utf8(ours.stderr).unwrap();
    assert!(ours.status.code() == Some(2) && line.starts_with("feedline: no such file"), "{line}");
    let help = String::from_utf8(feedline(&["pack", "--help"]).stdout).unwrap();
    assert!(
        help.contains("usage: feedline pack SRC DST") && help.matches("exit code").count() == 1,
        "{help}"
    );
}

/// `rows` rows of a column `ts` of Unix times, and of 20 fractions.
fn times(rows: u64) -> String {
    let names = (0..20).map(|column| format!(",c{column}"));
    let row = |row: u64| format!("{}{}\n", 1_700_000_001 + 2 * row, ",0.5".repeat(20));
    format!("ts{}\n{}", names.collect::<String>(), (0..rows).map(row).collect::<String>())
}

/// What the command prints about the file, as JSON, in Rust's words and in Python's.
fn in_both_languages(path: &std::path::Path, options: &[&str]) -> [Value; 2] {
    let arguments = [&[path.to_str().unwrap(), "--json"], options].concat();
    let python = crate::words::python(&[&["inspect"], &arguments[..]].concat());
    [inspect(&arguments).stdout, python.stdout].map(|text| serde_json::from_slice(&text).unwrap())
}

/// The lines that `in_both_languages` has.
fn lines_of(printed: &[Value; 2]) -> [&str; 2] {
    [0, 1].map(|at| printed[at]["load"].as_str().unwrap_or_else(|| panic!("no lines: {}", printed[at])))
}

#[test]
fn a_stack_has_no_column_whose_whole_numbers_f32_does_not_hold() {
    use feedline_datasets::Table;
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "wide.csv", times(50).as_bytes());
    let names: Vec<_> = (0..20).map(|column| format!("c{column}")).collect();
    let stacked = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let printed = in_both_languages(&path, &[]);
    let [rust, python] = lines_of(&printed);
    assert!(rust.contains(&format!(".stack(\"x\", [{stacked}])\n      .build()?")), "{rust}");
    assert!(python.contains(&format!("table({path:?}, stack={{\"x\": [{stacked}]}})")), "{python}");
    let data = Table::open(&path).stack("x", &names).build().unwrap();
    let mut loader = feedline::Loader::builder(data).batch_size(50).build_host().unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.field::<i64>("ts").unwrap()[20], 1_700_000_041);
    // A column called x keeps its name, and the fill of the options applies to the stack too.
    let table = times(3).replacen("ts", "x", 1).replacen("0.5", "", 1);
    let path = write(folder.path(), "x.csv", table.as_bytes());
    let printed = in_both_languages(&path, &["--fill"]);
    let [rust, python] = lines_of(&printed);
    assert!(rust.contains(".stack(\"x2\", [\"c0\"") && !rust.contains(".missing("), "{rust}");
    assert!(
        python.contains("stack={\"x2\": [\"c0\"") && python.contains("fill={\"c0\": float(\"nan\")}"),
        "{python}"
    );
}

#[test]
fn of_more_fields_than_a_batch_has_the_first_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    // 20 arrays of 2 rows of 2 numbers.
    let (mut header, mut values) = (serde_json::Map::new(), Vec::<u8>::new());
    for array in 0..20 {
        let offsets = [values.len(), values.len() + 16];
        header.insert(
            format!("a{array:02}"),
            json!({"dtype": "F32", "shape": [2, 2], "data_offsets": offsets}),
        );
        values.extend([0; 16]);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &values].concat();
    let path = write(folder.path(), "many.safetensors", &bytes);
    let printed = in_both_languages(&path, &[]);
    let names: Vec<_> = (0..16).map(|array| format!("a{array:02}")).collect();
    let select = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let why = "A batch has at most 16 fields: 4 of 20 are left out.";
    for (lines, selects) in
        lines_of(&printed).iter().zip([format!(".select([{select}])"), format!("select=[{select}])")])
    {
        assert!(lines.contains(why) && lines.contains(&selects), "{lines}");
    }
    let data = feedline_datasets::Table::open(&path).select(&names).build().unwrap();
    assert_eq!(feedline::Dataset::spec(&data).fields().len(), 16);
    assert!(feedline::Loader::builder(data).batch_size(2).build_host().is_ok());
}

#[test]
fn what_cannot_be_loaded_has_no_lines_but_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let empty = write(folder.path(), "empty.npy", &npy("<f4", "False", "(0, 3)", &[]));
    for printed in in_both_languages(&empty, &[]) {
        assert_eq!((&printed["load"], &printed["no_load"]), (&Value::Null, &json!("it has no samples")));
    }
    let text = String::from_utf8(inspect(&[empty.to_str().unwrap()]).stdout).unwrap();
    assert!(text.ends_with("\nno lines load it: it has no samples\n"), "{text}");
    // Batches have complex numbers as two floats, but not in Python.
    let complex = write(folder.path(), "set/0.npy", &npy("<c16", "False", "(2,)", &[0; 32]));
    let [rust, python] = in_both_languages(&complex, &[]);
    assert!(rust["load"].as_str().unwrap().contains("Bounded::new("), "{rust}");
    assert!(python["no_load"].as_str().unwrap().contains("hold complex numbers"), "{python}");
    write(folder.path(), "set/1.npy", b"");
    let listed = crate::words::python(&["inspect", folder.path().join("set").to_str().unwrap()]);
    let text = String::from_utf8(listed.stdout).unwrap();
    let is_bad = |file: &str| text.lines().any(|line| line.starts_with("bad") && line.contains(file));
    assert!(is_bad("0.npy") && is_bad("1.npy") && text.contains("hold complex numbers"), "{text}");
    // u64 needs a cast; beyond i64 it has no type.
    let small = write(folder.path(), "u.npy", &npy("<u8", "False", "(1,)", &7u64.to_le_bytes()));
    let printed = in_both_languages(&small, &[]);
    let [rust, python] = lines_of(&printed);
    assert!(rust.contains(".cast(\"array\", DType::I64)\n      .build()?"), "{rust}");
    assert!(python.contains("feedline.table(") && python.contains("cast={\"array\": \"int64\"}"), "{python}");
    let beyond = write(folder.path(), "v.npy", &npy("<u8", "False", "(1,)", &u64::MAX.to_le_bytes()));
    for printed in in_both_languages(&beyond, &[]) {
        assert!(printed["no_load"].as_str().unwrap().contains("beyond i64: \"array\""), "{printed}");
    }
}
