//! Categories: a list of the column's distinct values, and one of them in each row.

use std::sync::Arc;

use crate::made::write;
use crate::table_lists::lists;
use crate::tabular::{batch, ints};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int16Array, RecordBatch, StringArray, UInt8Array};
use feedline_core::ElementType;
use feedline_datasets::{Class, Missing, OpenOptions, Table, open, open_with};
use tempfile::tempdir;

#[test]
fn a_stated_list_has_values_of_the_columns_type_each_once() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "c.csv", b"c,n,t\nTrue,1,a\nfalse,2,b\nTRUE,1,1\n");
    let column = |name: &str, list: &[Class]| {
        let table = Table::open(&path).category_of(name, list.to_vec()).unknown(name).select([name]);
        table.build().map(|data| (ints(&batch(&data)[name]), data.classes(name).unwrap().to_vec()))
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| Class::from(*text)).collect::<Vec<_>>();
    for (name, list, numbers) in [
        ("c", vec![false.into(), true.into()], [1, 0, 1]),
        ("c", texts(&["true", "false"]), [0, 1, 0]),
        ("n", vec![Class::from(2), 1u8.into()], [1, 0, 1]),
        ("n", texts(&["2", "1"]), [1, 0, 1]),
        ("n", vec![Class::from(1), 7.into()], [0, 2, 0]),
        ("t", texts(&["b", "a"]), [1, 0, 2]),
        // Texts of digits only still make a column of texts.
        ("t", texts(&["1"]), [1, 1, 0]),
        // A list of texts makes the column text.
        ("n", texts(&["one", "1"]), [1, 2, 1]),
    ] {
        let (found, classes) = column(name, &list).unwrap();
        assert_eq!((found, classes.len()), (numbers.to_vec(), list.len()), "{name} {list:?}");
    }
    for (name, list, why) in [
        ("c", vec![0.into()], "column \"c\" is bool, and the list of its categories has the whole number 0"),
        (
            "c",
            texts(&["False", "True"]),
            "column \"c\" is bool, and the list of its categories has \"False\": write",
        ),
        (
            "n",
            texts(&["01", "2"]),
            "column \"n\" is i64, and the list of its categories has \"01\": write \"1\"",
        ),
        ("n", vec![true.into()], "column \"n\" is i64, and the list of its categories has the bool true"),
        (
            "t",
            vec![1.into()],
            "is text, and the list of its categories has the whole number 1: write the text",
        ),
        ("t", vec![true.into()], "is text, and the list of its categories has the bool true: write the text"),
        ("n", texts(&["1", "2", "1"]), "the list of category \"n\" has \"1\" twice: keep one"),
        ("n", vec!["1".into(), 1.into()], "the list of category \"n\" has \"1\" twice: keep one"),
        ("t", texts(&["a", "a"]), "the list of category \"t\" has \"a\" twice: keep one"),
    ] {
        let error = column(name, &list).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    // A format with types: the column cannot become another type.
    let of = |column: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        write(dir.path(), "n.arrow", &writer.into_inner().unwrap())
    };
    let typed = of(Arc::new(Int16Array::from(vec![1, 300, 1])));
    for (name, write) in [("+1", "1"), ("01", "1"), ("-0", "0")] {
        let error = Table::open(&typed).category_of("n", ["1", name]).build().unwrap_err().to_string();
        let why =
            format!("column \"n\" is i16, and the list of its categories has \"{name}\": write \"{write}\"");
        assert!(error.contains(&why), "{why}: {error}");
    }
    for name in ["1.0", "one", "True"] {
        let error = Table::open(&typed).category_of("n", [name]).build().unwrap_err().to_string();
        assert!(error.contains(&format!("has \"{name}\": write values of i16")), "{error}");
    }
    let error = Table::open(&typed).category("n").missing("n", Missing::Text("01".into())).build();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("column \"n\" is i16, and missing values become \"01\": write \"1\""), "{error}");
    // The validation data has a smaller type. Categories that do not fit this type do not occur there.
    let list = Table::open(&typed).category_of("n", [1, 300]).saved(dir.path().join("n.json"));
    assert_eq!(ints(&batch(&list.build().unwrap())["n"]), [0, 1, 0]);
    let small = of(Arc::new(UInt8Array::from(vec![1, 1])));
    let list = Table::open(&small).category_of("n", [1, 300]).fitted(dir.path().join("n.json"));
    assert_eq!(ints(&batch(&list.build().unwrap())["n"]), [0, 0]);
}

#[test]
fn codes_of_csv_with_zeros_before_them_are_categories_of_their_own() {
    let dir = tempdir().unwrap();
    for (cells, classes) in [
        ("0870\n870\n0871\n", &["0870", "0871", "870"][..]),
        ("007\n7\n007\n", &["007", "7"]),
        ("+7\n7\n7\n", &["+7", "7"]),
        ("-0\n0\n0\n", &["-0", "0"]),
        (
            "18446744073709551615\n018446744073709551615\n0\n",
            &["0", "018446744073709551615", "18446744073709551615"],
        ),
        // Texts that are numbers are sorted as numbers.
        ("11\n3\n-2\n", &["-2", "3", "11"]),
        ("0\n10\n9\n", &["0", "9", "10"]),
    ] {
        let path = write(dir.path(), "x.csv", format!("code\n{cells}").as_bytes());
        let data = Table::open(&path).category("code").build().unwrap();
        assert_eq!(data.classes("code").unwrap(), classes, "{cells}");
        let numbers =
            cells.lines().map(|cell| classes.iter().position(|class| *class == cell).unwrap() as i64);
        assert_eq!(ints(&batch(&data)["code"]), numbers.collect::<Vec<_>>(), "{cells}");
    }
    // A column without `category` is numbers.
    let path = write(dir.path(), "x.csv", b"code\n007\n7\n");
    assert_eq!(open(&path).unwrap().spec().to_string(), "code i64 []");
    // The validation set has one kind of values, the training set the other.
    let saved = dir.path().join("s.json");
    let [codes, numbers] = [("a.csv", "c\n007\n7\n8\n"), ("b.csv", "c\n7\n8\n8\n")]
        .map(|(name, text)| write(dir.path(), name, text.as_bytes()));
    Table::open(&codes).category("c").saved(&saved).build().unwrap();
    assert_eq!(
        ints(&batch(&Table::open(&numbers).category("c").fitted(&saved).build().unwrap())["c"]),
        [1, 2, 2]
    );
    std::fs::remove_file(&saved).unwrap();
    Table::open(&numbers).category("c").saved(&saved).build().unwrap();
    let known = Table::open(&codes).category("c").unknown("c");
    std::fs::remove_file(&saved).unwrap();
    Table::open(&numbers).category("c").unknown("c").saved(&saved).build().unwrap();
    assert_eq!(ints(&batch(&known.fitted(&saved).build().unwrap())["c"]), [2, 0, 1]);
    // Shards of one set give the categories of one file.
    write(dir.path(), "set/0.csv", b"c\n7\n");
    write(dir.path(), "set/1.csv", b"c\n007\n");
    let data = Table::open(dir.path().join("set")).category("c").build().unwrap();
    assert_eq!(data.classes("c").unwrap(), ["007", "7"]);
}

#[test]
fn the_items_of_a_column_of_lists_are_categories_and_lists_of_json_lines_are_refused() {
    let dir = tempdir().unwrap();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for list in [&["a", "bc"][..], &["ab", "c"], &["abc"], &[]] {
        tags.append_value(list.iter().map(Some));
    }
    let texts = StringArray::from(vec!["a", "b", "a", "b"]);
    let columns: [(&str, ArrayRef); 2] = [("tags", Arc::new(tags.finish())), ("text", Arc::new(texts))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let mut ipc = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &table.schema()).unwrap();
    ipc.write(&table).unwrap();
    let ipc = write(dir.path(), "x.arrow", &ipc.into_inner().unwrap());
    let mut parquet = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut parquet, table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    let parquet = write(dir.path(), "x.parquet", &parquet);
    for path in [ipc, parquet] {
        for table in [
            Table::open(&path).category("tags").select(["tags"]),
            Table::new(open(&path).unwrap()).category("tags").select(["tags"]),
        ] {
            let data = table.build().unwrap();
            assert_eq!(data.classes("tags").unwrap(), ["a", "ab", "abc", "bc", "c"]);
            assert_eq!(lists(&data, "tags").unwrap(), [vec![0, 3], vec![1, 4], vec![2], vec![]]);
        }
        let stated = Table::open(&path).category_of("tags", ["abc"]).unknown("tags").select(["tags"]);
        let wanted = [vec![1, 1], vec![1, 1], vec![0], vec![]];
        assert_eq!(lists(&stated.build().unwrap(), "tags").unwrap(), wanted);
        let text = Table::open(&path).category("text").select(["text"]).build().unwrap();
        assert_eq!(ints(&batch(&text)["text"]), [0, 1, 0, 1]);
    }
    for value in ["[\"a\",\"bc\"]", "[1,2]", "{\"k\":1}", "[]"] {
        let lines = format!("{{\"tags\":\"x\",\"n\":1}}\n{{\"tags\":{value},\"n\":2}}\n");
        let path = write(dir.path(), "x.jsonl", lines.as_bytes());
        let error = Table::open(&path).category("tags").build().unwrap_err();
        let why = "key \"tags\" has a list or an object in line 2, which has no category";
        assert!(error.to_string().contains(why) && error.path() == Some(&*path), "{error}");
        // Only other columns are read.
        assert!(Table::open(&path).category("n").select(["n"]).build().is_ok());
        let codes = OpenOptions { codes: vec!["n".into()], ..Default::default() };
        assert_eq!(open_with(&path, &codes).unwrap().spec().fields()[0].element(), ElementType::Text);
    }
}
