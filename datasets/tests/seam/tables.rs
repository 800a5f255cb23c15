//! Tables with steps, and windows of them, as data sets.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{DType, Dataset};
use feedline_datasets::{Bounded, FitOn, Missing, OpenOptions, Records, Table};

use crate::files::{golden, lines};
use crate::golden::Found;
use crate::made::write;
use crate::texts::numbers;

/// Sales of shops: text, whole number, fraction with missing values, time.
pub(crate) fn sales(dir: &Path) -> std::path::PathBuf {
    let row = |id: usize| {
        let price = if id.is_multiple_of(5) { String::new() } else { format!("{}.25", id * id) };
        format!("{},{},{price},2024-03-{:02}", ["Oslo", "Rome"][id % 2], id * 3 % 11, 1 + id / 2)
    };
    write(dir, "sales.csv", &[b"shop,sold,price,day\n", &lines(row)[..]].concat())
}

fn tables(dir: &Path) -> Vec<(&'static str, Table, &'static [&'static str])> {
    let sales = sales(dir);
    let of = || Table::open(&sales).category("shop").days("day");
    let lists = golden(dir, "tables/snappy.parquet");
    let list = || Table::open(&lists).select(["points", "pair"]).missing("points", Missing::Mask);
    let flowers = golden(dir, "page/flowers.parquet");
    vec![
        ("table, a mean for what is missing", of().missing("price", Missing::Mean), &["shop"]),
        ("table, a mask for what is missing", of().missing("price", Missing::Mask), &["shop"]),
        ("table, a number for what is missing", of().missing("price", Missing::Number(-1.0)), &["shop"]),
        (
            "table, standardized",
            of().missing("price", Missing::Mean).stack("x", ["sold", "price"]).standardize("x"),
            &["shop"],
        ),
        (
            "table, standardized on some rows",
            of().missing("price", Missing::Mean).standardize("sold").fit_on(FitOn::between("sold", ..5.0)),
            &["shop"],
        ),
        ("table, cast", Table::open(&sales).select(["sold"]).cast("sold", DType::F32), &[]),
        (
            "table, a stated list",
            Table::open(&sales).select(["shop"]).category_of("shop", ["Rome", "Bern"]).unknown("shop"),
            &["shop"],
        ),
        ("table, seconds", Table::open(&sales).select(["day"]).seconds("day"), &[]),
        ("table of lists", list(), &[]),
        ("table of cut lists", list().last("points", 1), &[]),
        (
            "table of lists of classes",
            Table::open(&lists).select(["words"]).missing("words", Missing::Mask).category("words"),
            &["words"],
        ),
        ("table of numbers", Table::open(&flowers), &[]),
        (
            "table without a cache",
            Table::open_with(&flowers, OpenOptions { cache_bytes: 0, ..Default::default() }),
            &[],
        ),
    ]
}

pub(crate) fn values(found: &mut Found) {
    let dir = found.dir.clone();
    let add = |found: &mut Found, name: &str, set: Bounded, categories: &[&str]| {
        found.set(name, &set);
        for column in categories {
            found.classes(name, &format!("classes of {column}"), set.classes(column));
        }
    };
    for (name, table, categories) in tables(&dir) {
        let set = table.build().unwrap_or_else(|error| panic!("{name}: {error}"));
        add(found, name, set, categories);
    }
    let saved = dir.join("a.table.json");
    let of = || numbers(dir.join("a.csv"));
    add(found, "table, saved", of().saved(&saved).build().unwrap(), &[]);
    let text = std::fs::read_to_string(&saved).unwrap();
    found.fact("table, saved", "description", text);
    add(found, "table, fitted", of().fitted(&saved).build().unwrap(), &[]);
    let spec = feedline_core::Spec::new().field("x", DType::U8, [4]).unwrap();
    let records = Records::open(dir.join("records"), spec).unwrap();
    found.set("a set of records", &records);
    add(found, "table of records", Table::new(Arc::new(records)).cast("x", DType::F32).build().unwrap(), &[]);
    windows(found);
}

fn windows(found: &mut Found) {
    let path = found.dir.join("sales.csv");
    let of = |options: &OpenOptions| {
        let table = Table::open_with(&path, options.clone()).days("day").standardize("sold");
        table.fit_on(FitOn::between("sold", ..5.0)).windows(3, 1, 2).group("shop").order_by("day").x(["sold"])
    };
    let small = OpenOptions { cache_bytes: 0, ..Default::default() };
    for (name, options) in [("windows", OpenOptions::default()), ("windows without a cache", small)] {
        let set = of(&options).y(["sold"]).build().unwrap();
        found.set(name, &set);
        found.classes(name, "classes of shop", set.classes("shop"));
        found.fact(name, "fate", set.fate().to_string());
        found.set(&format!("{name}, up to a day"), &set.targets_in(..19790.0).unwrap());
    }
    let two = Table::open(&path).days("day").missing("price", Missing::Mean).windows(2, 2, 1);
    let set =
        two.order_by("day").group("shop").x(["sold", "price"]).y(["price"]).max_gap(1.5).build().unwrap();
    found.set("windows of two columns", &set);
    let [train, test] = set.split([0.5, 0.5], 3).unwrap();
    found.fact("windows of two columns", "ids of a half", train.ids());
    found.fact("windows of two columns", "ids of the other half", test.ids());
}
