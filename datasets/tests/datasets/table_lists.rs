//! Lists of a table: their categories, one list of categories for several columns, the kept items; and `u64`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::made::write;
use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use feedline_core::{Context, Dataset, ErrorKind, Layout};
use feedline_datasets::{Bounded, Missing, Table};
use tempfile::tempdir;

/// A table as Arrow and as Parquet.
fn files(dir: &Path, columns: Vec<(&str, ArrayRef)>) -> [PathBuf; 2] {
    let table = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    );
    let table = table.unwrap();
    let mut ipc = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &table.schema()).unwrap();
    ipc.write(&table).unwrap();
    let mut parquet = parquet::arrow::ArrowWriter::try_new(Vec::new(), table.schema(), None).unwrap();
    parquet.write(&table).unwrap();
    [
        write(dir, "x.arrow", &ipc.into_inner().unwrap()),
        write(dir, "x.parquet", &parquet.into_inner().unwrap()),
    ]
}

fn texts(lists: &[Option<&[&str]>]) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for list in lists {
        builder.append_option(list.map(|list| list.iter().map(Some).collect::<Vec<_>>()));
    }
    Arc::new(builder.finish())
}

fn numbers(lists: &[&[i64]]) -> ArrayRef {
    let mut builder = ListBuilder::new(Int64Builder::new());
    lists.iter().for_each(|list| builder.append_value(list.iter().map(|number| Some(*number))));
    Arc::new(builder.finish())
}

/// The rows of a field of `i64`, each a list; read together, from the last row to the first.
pub(crate) fn lists(data: &dyn Dataset, field: &str) -> Result<Vec<Vec<i64>>, String> {
    let ids: Vec<_> = (0..data.len()).rev().collect();
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    data.read_many(&ids, &mut rows, &mut Context::new(0, 0)).map_err(|(_, error)| error.to_string())?;
    let field = data.spec().index_of(field).unwrap();
    let is_ragged = data.spec().fields()[field].as_ragged().is_some();
    let row = |row: usize| {
        let bytes = match is_ragged {
            true => rows.written_bytes_mut(row, field).unwrap().to_vec(),
            false => rows.row(row).bytes_mut(field).to_vec(),
        };
        bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
    };
    let mut all: Vec<_> = (0..ids.len()).map(row).collect();
    all.reverse();
    Ok(all)
}

fn select(path: &Path, column: &str) -> Table {
    Table::open(path).select([column])
}

#[test]
fn categories_of_lists_are_numbers_of_their_items_cut_at_either_end() {
    let dir = tempdir().unwrap();
    let tags = texts(&[Some(&["b", "a", "b"]), Some(&[]), None, Some(&["ä", ""])]);
    let items = numbers(&[&[70, -3], &[5], &[], &[70, 70, 5, -3, 6]]);
    for path in files(dir.path(), vec![("tags", tags), ("items", items)]) {
        let tags = || select(&path, "tags").category("tags").missing("tags", Missing::Mask);
        let data = tags().build().unwrap();
        assert_eq!(data.classes("tags").unwrap(), ["", "a", "b", "ä"]);
        assert_eq!(lists(&data, "tags").unwrap(), [vec![2, 1, 2], vec![], vec![], vec![3, 0]]);
        assert_eq!(data.lengths("tags").unwrap(), [3, 0, 0, 2]);
        let there = data.spec().index_of("tags.present").unwrap();
        assert_eq!(there, 1);
        let data = tags().max("tags", 2).build().unwrap();
        assert_eq!(lists(&data, "tags").unwrap(), [vec![2, 1], vec![], vec![], vec![3, 0]]);
        let data = tags().last("tags", 1).build().unwrap();
        assert_eq!(lists(&data, "tags").unwrap(), [vec![2], vec![], vec![], vec![0]]);
        assert_eq!(
            data.spec().fields()[0].as_ragged().unwrap().max_per_sample(),
            1,
            "the limit is that of what is kept"
        );
        // A missing list is an error of its row.
        let error = select(&path, "tags").category("tags").build().unwrap_err().to_string();
        assert!(error.contains("column \"tags\" has a null in row 2"), "{error}");
        // Without a selection the lengths of the texts are no field.
        let data = Table::open(&path).category("tags").missing("tags", Missing::Mask).build().unwrap();
        let names: Vec<_> = data.spec().fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["tags", "tags.present", "items"]);
        let items = |table: Table| lists(&table.build().unwrap(), "items").unwrap();
        let numbered = || select(&path, "items").category("items");
        assert_eq!(items(numbered()), [vec![3, 0], vec![1], vec![], vec![3, 3, 1, 0, 2]]);
        assert_eq!(items(numbered().last("items", 2)), [vec![3, 0], vec![1], vec![], vec![0, 2]]);
        assert_eq!(
            items(select(&path, "items").last("items", 2)),
            [vec![70, -3], vec![5], vec![], vec![-3, 6]]
        );
        assert_eq!(items(select(&path, "items").max("items", 1)), [vec![70], vec![5], vec![], vec![70]]);
        let stated = || select(&path, "items").category_of("items", [5, 70]);
        assert_eq!(items(stated().unknown("items")), [vec![1, 2], vec![0], vec![], vec![1, 1, 0, 2, 2]]);
        let error = stated().build().unwrap_err().to_string();
        assert!(
            error.contains("column \"items\" has -3 in row 0, which its list of categories lacks"),
            "{error}"
        );
    }
}

#[test]
fn columns_share_one_list() {
    let dir = tempdir().unwrap();
    let history = texts(&[Some(&["c", "a"]), Some(&["d"]), Some(&["c"])]);
    let next: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), Some("c"), None]));
    let count: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    for path in files(dir.path(), vec![("history", history), ("next", next), ("count", count)]) {
        let table = || {
            let table = Table::open(&path).category("history").category("next").share(["history", "next"]);
            table.missing("next", Missing::Text("none".into())).select(["history", "next"])
        };
        let data = table().build().unwrap();
        let all = ["a", "b", "c", "d", "none"];
        assert_eq!(
            (data.classes("history").unwrap(), data.classes("next").unwrap()),
            (&all.map(String::from)[..], &all.map(String::from)[..])
        );
        assert_eq!(lists(&data, "history").unwrap(), [vec![2, 0], vec![3], vec![2]]);
        assert_eq!(lists(&data, "next").unwrap(), [[1], [2], [4]]);
        // The steps of a saved table have it.
        let saved = dir.path().join("a.json");
        let _ = std::fs::remove_file(&saved);
        table().saved(&saved).build().unwrap();
        assert!(table().fitted(&saved).build().is_ok());
        let alone = Table::open(&path).category("history").category("next").select(["history", "next"]);
        let alone = alone.missing("next", Missing::Text("none".into())).fitted(&saved).build().unwrap_err();
        assert!(alone.to_string().contains("of other steps, share was"), "{alone}");
        for (table, why) in [
            (table().share(["count", "next"]), "share names \"next\" twice"),
            (
                Table::open(&path).category("next").share(["next", "count"]),
                "share names \"count\", which is no category",
            ),
            (
                Table::open(&path)
                    .category("next")
                    .category("count")
                    .share(["next", "count"])
                    .missing("next", Missing::Text("b".into())),
                "columns \"next\" and \"count\" share a list, and are text and i64",
            ),
            (table().max("next", 2), "column \"next\" is next text [?], of which max or last keeps no items"),
            (table().max("history", 0), "column \"history\" keeps 0 items"),
            (table().max("history", 2).last("history", 2), "max or last names \"history\" twice"),
            (table().max("none", 2), "there is no column \"none\""),
            (
                table().missing("history", Missing::Text("b".into())),
                "a list of categories is filled by Mask only",
            ),
            (
                Table::open(&path).category("history").stack("x", ["history", "count"]).select(["x"]),
                "of the stack \"x\" is a list of categories, not one number",
            ),
        ] {
            let error = table.build().unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(why), "{why}\n{error}");
        }
    }
}

#[test]
fn unsigned_numbers_of_64_bits_are_whole_numbers_or_an_error_of_their_row() {
    let dir = tempdir().unwrap();
    let ids = vec![7, i64::MAX as u64, 1 << 63];
    let ids: ArrayRef = Arc::new(UInt64Array::from(ids));
    for path in files(dir.path(), vec![("id", ids)]) {
        let data: Bounded = Table::open(&path).build().unwrap();
        let error = lists(&data, "id").unwrap_err();
        let why = "column \"id\" has 9223372036854775808 in row 2, which i64 does not hold";
        assert!(error.contains(why), "{error}");
        assert_eq!(lists(&data.take(2), "id").unwrap(), [[7], [i64::MAX]]);
        let data = Table::open(&path).category("id").build().unwrap();
        assert_eq!(lists(&data, "id").unwrap(), [[0], [1], [2]]);
    }
}

#[test]
fn negatives_are_no_items_of_the_whole_list_however_it_is_cut_and_composed() {
    use feedline_core::compose::Zip;
    use feedline_core::{DType, InMemory, Mix, Spec};

    const ITEMS: i64 = 12;
    let dir = tempdir().unwrap();
    let histories: [&[i64]; 5] = [&[0, 1, 2, 3, 4, 5], &[6, 7], &[], &[8, 9, 0, 1], &[11, 10, 9, 8, 7, 6, 5]];
    /// Every item that is drawn in some epochs, for each sample.
    fn drawn(data: impl Dataset, field: &str) -> Vec<Vec<i64>> {
        let data = data.negatives(&[field], 200, ITEMS as u64, 3).unwrap();
        let mut drawn = lists(&data, &format!("{field}.negatives")).unwrap();
        drawn.iter_mut().for_each(|items| {
            items.sort_unstable();
            items.dedup();
        });
        drawn
    }
    let expected = |rows: &[usize]| -> Vec<Vec<i64>> {
        let others = |&row: &usize| (0..ITEMS).filter(|item| !histories[row].contains(item)).collect();
        rows.iter().map(others).collect()
    };
    let numbered = InMemory::new().field("n", [], [0_i64, 1, 2, 3, 4]).unwrap();
    let numbered = Arc::new(numbered);
    for path in files(dir.path(), vec![("history", numbers(&histories))]) {
        let tables: [fn(&Path) -> Table; 2] =
            [|path| Table::open(path).last("history", 2), |path| Table::open(path).max("history", 1)];
        for table in tables {
            let data = || Arc::new(table(&path).build().unwrap());
            let all = [0, 1, 2, 3, 4];
            assert_eq!(drawn(data(), "history"), expected(&all));
            assert_eq!(drawn(data().skip(1).take(3), "history"), expected(&all[1..4]));
            assert_eq!(drawn(data().subset([4, 0, 4]).unwrap(), "history"), expected(&[4, 0, 4]));
            let kept = data().filter(|sample| !sample.bytes(0).is_empty()).unwrap();
            assert_eq!(drawn(kept, "history"), expected(&[0, 1, 3, 4]));
            let [some, rest] = data().split([0.6, 0.4], 7).unwrap();
            for part in [some, rest] {
                let rows: Vec<usize> = part.ids().iter().map(|&row| row as usize).collect();
                assert_eq!(drawn(part, "history"), expected(&rows));
            }
            assert_eq!(drawn(data().repeat(2).unwrap(), "history"), expected(&[all, all].concat()));
            let both = data().skip(3).concat(data().take(2)).unwrap();
            assert_eq!(drawn(both, "history"), expected(&[3, 4, 0, 1]));
            let zipped = Zip::new([numbered.clone() as Arc<dyn Dataset>, data()]).unwrap();
            assert_eq!(drawn(zipped, "history"), expected(&all));
            let cached = data().cached(1 << 20).unwrap();
            assert_eq!(drawn(cached, "history"), expected(&all));
            let mix = Mix::builder(1).dataset(data(), 1.0).build().unwrap();
            let mut rows = drawn(mix, "history");
            let mut wanted = expected(&all);
            rows.sort();
            wanted.sort();
            assert_eq!(rows, wanted);
            let zipped = Zip::new([numbered.clone() as Arc<dyn Dataset>, data()]).unwrap();
            let twice = zipped.negatives(&["n"], 1, ITEMS as u64, 1).unwrap();
            assert_eq!(drawn(twice, "history"), expected(&all));
            // A table of a table, and the rows as `Bounded` has them.
            let outer = Table::new(table(&path).rows().unwrap()).build().unwrap();
            assert_eq!(drawn(outer, "history"), expected(&all));
            // A function may have changed the items.
            let spec = Spec::new().ragged("seen", DType::I64, [], 2).unwrap();
            let mapped =
                data().map(spec, |sample, row, _| Ok(row.write_ragged(0, sample.field::<i64>(0)?)?)).unwrap();
            let error = mapped.negatives(&["seen"], 1, ITEMS as u64, 1).unwrap_err();
            assert!(error.to_string().contains("call negatives first, and map afterwards"), "{error}");
        }
        // Lists that no row exceeds are whole.
        let whole = || Table::open(&path).build().unwrap();
        let cut = |items: usize| Table::open(&path).last("history", items).build().unwrap();
        let of = |data: Bounded| data.negatives(&["history"], 1, ITEMS as u64, 1).unwrap();
        assert_eq!(drawn(whole(), "history"), expected(&[0, 1, 2, 3, 4]));
        assert_eq!(lists(&of(cut(9)), "history.negatives"), lists(&of(whole()), "history.negatives"));
    }
}
