//! Tables as people have them: files of pyarrow and Python, compared cell by cell with what Python says.

use std::path::Path;
use std::process::Command;

use crate::tabular::{batch, floats, ints};
use feedline_core::{DType, Dataset};
use feedline_datasets::{Missing, Table};
use feedline_testkit::not_run;
use serde_json::Value as Json;
use tempfile::tempdir;

/// Runs a Python script in `dir` and returns its output. Without the package pyarrow, prints so and returns
/// `None`.
fn python(what: &str, dir: &Path, script: &str) -> Option<Json> {
    let python = std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import numpy, pyarrow"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        not_run(what, format!("{python} has no numpy and pyarrow"));
        return None;
    }
    let output = Command::new(&python).args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A training and a validation table in every format, and NumPy's result for them.
const PEOPLE: &str = r#"
import csv, decimal, json, random
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, pyarrow.feather as feather
random.seed(7)
maybe = lambda value, share: None if random.random() < share else value
def people(count):
    return [{
        "age": maybe(random.randrange(18, 90), 0.1),
        "income": maybe(random.lognormvariate(10, 1), 0.2),
        "price": decimal.Decimal(random.randrange(-10**6, 10**6)).scaleb(-2),
        "member": random.random() < 0.4,
        "city": maybe(random.choice(["Rome", "Oslo", "São Paulo", "x,\"y\""]), 0.15),
        "name": "name %d" % random.randrange(1000),
        "label": random.choice([3, 11, 200]),
    } for _ in range(count)]
schema = pa.schema([("age", pa.int32()), ("income", pa.float64()), ("price", pa.decimal128(10, 2)),
                    ("member", pa.bool_()), ("city", pa.dictionary(pa.int8(), pa.string())),
                    ("name", pa.string()), ("label", pa.uint16())])
sets = {"train": people(1000), "val": people(300)}
for name, rows in sets.items():
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, name + ".parquet", row_group_size=170)
    feather.write_feather(table, name + ".arrow", compression="zstd", chunksize=200)
    with open(name + ".csv", "w", newline="") as file:
        writer = csv.DictWriter(file, schema.names)
        writer.writeheader()
        writer.writerows(rows)
    with open(name + ".jsonl", "w") as file:
        for row in rows:
            row = {key: float(value) if key == "price" else value for key, value in row.items()}
            # A key that is missing is as good as a null.
            row = {key: value for key, value in row.items() if value is not None or key == "income"}
            file.write(json.dumps(row) + "\n")
        file.write("\n")
column = lambda rows, name: np.array([np.nan if row[name] is None else float(row[name]) for row in rows])
numbers = ["age", "income", "price", "member"]
train = {name: column(sets["train"], name) for name in numbers}
scale = {name: (np.nanmean(values), np.nanstd(values)) for name, values in train.items()}
cities = sorted({row["city"] or "none" for row in sets["train"]}, key=str.encode)
labels = sorted({row["label"] for row in sets["train"]})
def made(rows):
    x = np.stack([(column(rows, name) - scale[name][0]) / scale[name][1] for name in numbers], 1)
    # Filled with the mean, and masked: both are zero once standardized.
    x = np.nan_to_num(x).astype(np.float32)
    return {"x": [float(number) for number in x.reshape(-1)],
            "income.present": [int(row["income"] is not None) for row in rows],
            "city": [cities.index(row["city"] or "none") for row in rows],
            "label": [labels.index(row["label"]) for row in rows]}
print(json.dumps({"cities": cities, **{name: made(rows) for name, rows in sets.items()}}))
"#;

#[test]
fn a_table_with_missing_values_and_categories_is_what_numpy_makes_of_it_in_every_format() {
    let dir = tempdir().unwrap();
    let Some(expected) = python("tables of pyarrow", dir.path(), PEOPLE) else { return };
    for format in ["parquet", "arrow", "csv", "jsonl"] {
        let table = |name: &str| {
            Table::open(dir.path().join(format!("{name}.{format}")))
                .stack("x", ["age", "income", "price", "member"])
                .category("city")
                .category("label")
                .missing("age", Missing::Mean)
                .missing("income", Missing::Mask)
                .missing("city", Missing::Text("none".into()))
                .standardize("x")
                .select(["x", "city", "label"])
        };
        let saved = dir.path().join(format!("{format}.table.json"));
        // Each table is read twice: fitted on its rows, then with the saved description.
        for (name, rows) in [("train", 1000), ("train", 1000), ("val", 300)] {
            let table = table(name);
            let table = if name == "train" { table.saved(&saved) } else { table.fitted(&saved) };
            let data = table.build().unwrap();
            let spec = data.spec().fields().iter();
            let spec: Vec<_> = spec.map(|field| format!("{} {}", field.name(), field.dtype())).collect();
            assert_eq!(spec, ["x f32", "income.present u8", "city i64", "label i64"], "{format}");
            assert_eq!(
                data.classes("city").unwrap(),
                serde_json::from_value::<Vec<String>>(expected["cities"].clone()).unwrap()
            );
            assert_eq!(
                (data.classes("label").unwrap(), data.classes("x")),
                (&["3", "11", "200"].map(String::from)[..], None)
            );
            let (found, expected) = (batch(&data), &expected[name]);
            let numbers: Vec<f32> = serde_json::from_value(expected["x"].clone()).unwrap();
            let x = floats(&found["x"]);
            assert_eq!((data.len(), x.len(), numbers.len()), (rows, 4 * rows as usize, 4 * rows as usize));
            // A sum of 1000 numbers in another order differs by a few ulps of f64.
            let equal = x.iter().zip(&numbers).filter(|(x, y)| (**x - **y).abs() <= 1e-6 * y.abs().max(1e-3));
            assert_eq!(equal.count(), numbers.len(), "{format} {name}");
            for field in ["city", "label"] {
                let numbers: Vec<i64> = serde_json::from_value(expected[field].clone()).unwrap();
                assert_eq!(ints(&found[field]), numbers, "{format} {name} {field}");
            }
            let present: Vec<u8> = serde_json::from_value(expected["income.present"].clone()).unwrap();
            assert_eq!(found["income.present"], present, "{format} {name}");
        }
    }
}

/// Shards as pandas writes them: the types of a column differ from file to file, and so does the order.
const SHARDS: &str = r#"
import json, random
random.seed(11)
cells = {
    "price": [lambda: random.randrange(99), lambda: random.randrange(9000) / 1e3,
              lambda: random.randrange(9)],
    "code": [lambda: random.randrange(99), lambda: "A%d" % random.randrange(9), lambda: random.randrange(99)],
    "rare": [lambda: None, lambda: None, lambda: random.randrange(5)],
    "count": [lambda: random.randrange(2**60)] * 3,
    "on": [lambda: random.random() < 0.5] * 3,
}
text = lambda value: "" if value is None else str(value)
rows = []
for shard in range(3):
    own = [{name: kinds[shard]() for name, kinds in cells.items()} for _ in range(400)]
    rows += own
    with open("csv/part-%d.csv" % shard, "w") as file:
        names = list(cells) if shard != 1 else list(cells)[::-1]
        file.write(",".join(names) + "\n")
        file.writelines(",".join(text(row[name]) for name in names) + "\n" for row in own)
    with open("jsonl/part-%d.jsonl" % shard, "w") as file:
        own = [{name: value for name, value in row.items() if value is not None} for row in own]
        file.writelines(json.dumps(row) + "\n" for row in own)
codes = sorted({str(row["code"]) for row in rows}, key=str.encode)
print(json.dumps({
    "price": [float(row["price"]) for row in rows], "count": [row["count"] for row in rows],
    "on": [int(row["on"]) for row in rows], "code": [codes.index(str(row["code"])) for row in rows],
    "rare": [-1 if row["rare"] is None else row["rare"] for row in rows],
}))
"#;

#[test]
fn shards_of_differing_types_are_read_as_one_set() {
    let dir = tempdir().unwrap();
    for folder in ["csv", "jsonl"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let Some(expected) = python("shards of differing types", dir.path(), SHARDS) else { return };
    for folder in ["csv", "jsonl"] {
        let data = Table::open(dir.path().join(folder))
            .category("code")
            .missing("rare", Missing::Number(-1.0))
            .build()
            .unwrap();
        let found = batch(&data);
        let price: Vec<f64> = serde_json::from_value(expected["price"].clone()).unwrap();
        let bytes: Vec<u8> = price.iter().flat_map(|price| price.to_le_bytes()).collect();
        assert_eq!((data.len(), &found["price"]), (1200, &bytes), "{folder}");
        for field in ["count", "code", "rare"] {
            let numbers: Vec<i64> = serde_json::from_value(expected[field].clone()).unwrap();
            assert_eq!(ints(&found[field]), numbers, "{folder} {field}");
        }
        assert_eq!(
            found["on"],
            serde_json::from_value::<Vec<u8>>(expected["on"].clone()).unwrap(),
            "{folder}"
        );
    }
}

/// Dates, times, decimals and wide numbers, in files of pyarrow and as texts.
const TIMES: &str = r#"
import csv, datetime as dt, decimal, json, random
import pyarrow as pa, pyarrow.parquet as pq
random.seed(3)
utc = dt.timezone.utc
start = dt.datetime(1969, 12, 1, tzinfo=utc)
rows = [{
    "born": dt.date(1850, 1, 1) + dt.timedelta(days=random.randrange(100_000)),
    "at": start + dt.timedelta(microseconds=random.randrange(10**15)),
    "read": start + dt.timedelta(seconds=random.randrange(10**9)),
    "wide": random.randrange(2**53 - 9, 2**53),
    "small": random.randrange(256),
    "half": random.uniform(-1, 1),
} for _ in range(500)]
schema = pa.schema([("born", pa.date32()), ("at", pa.timestamp("us", "UTC")),
                    ("read", pa.timestamp("ms", "UTC")),
                    ("wide", pa.int64()), ("small", pa.int64()), ("half", pa.float64())])
pq.write_table(pa.Table.from_pylist(rows, schema=schema), "times.parquet")
rome = dt.timezone(dt.timedelta(hours=2))
with open("times.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, schema.names)
    writer.writeheader()
    for row in rows:
        times = {"at": row["at"].astimezone(rome).isoformat(), "read": row["read"].isoformat(" ")}
        writer.writerow({**row, **times})
day = dt.timedelta(days=1)
zero = dt.datetime(1970, 1, 1, tzinfo=utc)
print(json.dumps({
    "born": [(row["born"] - dt.date(1970, 1, 1)).days for row in rows],
    "at": [(row["at"] - zero) / dt.timedelta(seconds=1) for row in rows],
    "read": [(row["read"] - zero) // day for row in rows],
    "wide": [row["wide"] for row in rows], "small": [row["small"] for row in rows],
    "half": [row["half"] for row in rows],
}))
"#;

#[test]
fn times_and_casts_are_those_of_python() {
    let dir = tempdir().unwrap();
    let Some(expected) = python("times of pyarrow", dir.path(), TIMES) else { return };
    for file in ["times.parquet", "times.csv"] {
        let data = Table::open(dir.path().join(file))
            .days("born")
            .seconds("at")
            .days("read")
            .cast("read", DType::I64)
            .cast("wide", DType::F64)
            .cast("small", DType::U8)
            .cast("half", DType::F32)
            .build()
            .unwrap();
        let found = batch(&data);
        let list = |field: &str| serde_json::from_value::<Vec<f64>>(expected[field].clone()).unwrap();
        let bytes =
            |field: &str, to: fn(f64) -> Vec<u8>| list(field).into_iter().flat_map(to).collect::<Vec<u8>>();
        assert_eq!(data.len(), 500);
        assert_eq!(found["born"], bytes("born", |x| (x as i32).to_le_bytes().into()), "{file}");
        assert_eq!(found["at"], bytes("at", |x| x.to_le_bytes().into()), "{file}");
        assert_eq!(found["read"], bytes("read", |x| (x as i64).to_le_bytes().into()), "{file}");
        assert_eq!(found["wide"], bytes("wide", |x| x.to_le_bytes().into()), "{file}");
        assert_eq!(found["small"], bytes("small", |x| vec![x as u8]), "{file}");
        assert_eq!(found["half"], bytes("half", |x| (x as f32).to_le_bytes().into()), "{file}");
    }
}
