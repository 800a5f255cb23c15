//! Saved descriptions of tables: used for other data, and refused if they belong to another table.

use std::path::Path;
use std::sync::Arc;

use crate::made::write;
use crate::tabular::{batch, floats, ints};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampMillisecondArray};
use feedline_core::{DType, Dataset};
use feedline_datasets::{Missing, Table, open};
use tempfile::tempdir;

#[test]
fn the_saved_description_is_used_and_checked() {
    let dir = tempdir().unwrap();
    let train = write(dir.path(), "train.csv", b"age,code\n10,1\n30,x\n20,2.50\n");
    let val = write(dir.path(), "val.csv", b"age,code\n20.5,2.50\n40,1\n");
    let saved = dir.path().join("table.json");
    let table = |path: &Path| Table::open(path).standardize("age").category("code");
    let trained = || table(&train).saved(&saved);
    let error = table(&val).fitted(&saved).build().unwrap_err();
    assert!(error.to_string().contains("no saved table: build the training set first"), "{error}");
    assert_eq!(error.path(), Some(&*saved));
    let first = trained().build().unwrap();
    assert_eq!(floats(&batch(&first)["age"])[2], 0.0);
    let text = std::fs::read_to_string(&saved).unwrap();
    let val = table(&val).fitted(&saved).build().unwrap();
    let std = (200f64 / 3.0).sqrt();
    let found = batch(&val);
    assert_eq!(floats(&found["age"]), [0.5, 20.0].map(|far: f64| (far / std) as f32));
    // The codes of the validation set look like numbers, but are the texts of the training set: as a number,
    // 2.50 would be 2.5.
    assert_eq!((ints(&found["code"]), val.classes("code").unwrap().len()), (vec![1, 0], 3));
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), text);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left");
    let fingerprint = trained().build().unwrap().fingerprint();
    assert_eq!(fingerprint, first.fingerprint());
    assert_ne!(fingerprint, Table::open(&train).category("code").build().unwrap().fingerprint());
    // The numbers of the description are JSON numbers.
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["columns"]["age"]["mean"].as_f64(), Some(20.0));
    assert_eq!(json["columns"]["age"]["std"].as_f64(), Some(std));
    let damaged = "the saved table is damaged";
    let of_age = "the saved table is damaged (column \"age\"): remove it, so that it is made again";
    let std = format!("\"std\": {}", json["columns"]["age"]["std"]);
    for (was, is, why) in [
        ("\"rows\"", "\"lines\"", damaged),
        (&text[text.len() / 2..], "", "the saved table is damaged: remove it, so that it is made again"),
        ("\"feedline_table\": 2", "\"feedline_table\": 9", "has version 9, and this build reads 2"),
        (
            "\"feedline_table\": 2",
            "\"feedline_table\": 1",
            "has version 1, and this build reads 2: remove it",
        ),
        ("\"feedline_table\": 2", "\"table\": 2", "this is not a saved table: choose another name"),
        ("\"mean\": 20.0", "\"mean\": \"20.0\"", of_age),
        ("\"mean\": 20.0", "\"mean\": null", of_age),
        ("\"mean\": 20.0", "\"mean\": 1e999", of_age),
        (&std, "\"std\": -1.0", of_age),
        (&std, "\"std\": \"nan\"", of_age),
        (&std, "\"std\": \"inf\"", of_age),
        ("\"mean_rest\": 0.0", "\"mean_rest\": 7.0", of_age),
        ("\"x\"", "\"1\"", "the saved table is damaged (column \"code\")"),
        ("\"type\": \"i64\"", "\"type\": \"i65\"", of_age),
        ("\"age\": {", "\"old\": {", "the saved table lacks the column \"age\": remove it"),
    ] {
        let changed = text.replacen(was, is, 1);
        assert_ne!(changed, text, "{was}");
        std::fs::write(&saved, &changed).unwrap();
        let error = trained().build().unwrap_err();
        assert!(error.to_string().contains(why), "{was} as {is}: {why}: {error}");
        assert!(why.contains("lacks") || error.path() == Some(&*saved), "{error}");
    }
    // A description without the mean that a step needs.
    let scale = ["mean", "mean_rest", "std"].map(|key| format!("\"{key}\": {}", json["columns"]["age"][key]));
    let none = scale.iter().fold(text.clone(), |text, number| {
        text.replace(number.as_str(), &format!("{}: null", number.split(':').next().unwrap()))
    });
    std::fs::write(&saved, &none).unwrap();
    let error = trained().build().unwrap_err().to_string();
    assert!(error.contains("the saved table lacks the mean of column \"age\": remove it"), "{error}");
    // A mean that was changed by hand is the mean.
    std::fs::write(&saved, text.replace("\"mean\": 20.0", "\"mean\": 30")).unwrap();
    assert_eq!(floats(&batch(&trained().build().unwrap())["age"])[1], 0.0);
    std::fs::write(&saved, text).unwrap();
    let error = trained().cast("age", DType::F64).build().unwrap_err();
    assert!(error.to_string().contains("of other steps, cast was [] and is [[\"age\",\"f64\"]]"), "{error}");
    let other = write(dir.path(), "other.csv", b"age,code\nold,2\n");
    let error = table(&other).fitted(&saved).build().unwrap_err();
    assert!(error.to_string().contains("\"age\" is text"), "{error}");
    let error = trained().fitted(&saved).build().unwrap_err();
    assert!(error.to_string().contains("give saved or fitted"), "{error}");
}

#[test]
fn a_saved_description_of_other_training_data_is_refused() {
    let dir = tempdir().unwrap();
    let saved = dir.path().join("train.json");
    let values = |path: &Path, is_own: bool| {
        let table = Table::open(path).standardize("v");
        let table = if is_own { table.saved(&saved) } else { table.fitted(&saved) };
        table.build().map(|data| floats(&batch(&data)["v"]))
    };
    let train = write(dir.path(), "train.csv", b"v\n1\n2\n3\n");
    let first = values(&train, true).unwrap();
    // A copy is the same data.
    let copy = write(dir.path(), "copy/x.csv", b"v\n1\n2\n3\n");
    assert_eq!(values(&copy, true).unwrap(), first);
    // The same name, or the name of another fold, with other rows: more or fewer, or as many.
    for rows in ["v\n101\n202\n303\n", "v\n1\n2\n4\n", "v\n1\n2\n3\n4\n", "v\n3\n2\n1\n"] {
        for name in ["train.csv", "fold/train.csv"] {
            let path = write(dir.path(), name, rows.as_bytes());
            let error = values(&path, true).unwrap_err();
            assert_eq!(error.path(), Some(&*saved));
            for why in ["made of other data, of 3 rows", "remove the file", "give the file as `fitted`"] {
                assert!(error.to_string().contains(why), "{error}");
            }
            assert_eq!(values(&path, false).unwrap().len() as u64, open(&path).unwrap().len());
        }
    }
    std::fs::remove_file(&saved).unwrap();
    write(dir.path(), "train.csv", b"v\n101\n202\n303\n");
    assert_eq!(values(&train, true).unwrap(), first);
}

fn arrow(dir: &Path, name: &str, column: ArrayRef) -> std::path::PathBuf {
    let batch = RecordBatch::try_from_iter([("t", column)]).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    write(dir, name, &writer.into_inner().unwrap())
}

#[test]
fn a_saved_description_of_another_unit_of_time_is_refused() {
    let dir = tempdir().unwrap();
    let of = |unit: i64| (0..5).map(|second| (1_704_067_200 + second) * unit).collect::<Vec<_>>();
    let train = arrow(dir.path(), "train.arrow", Arc::new(TimestampMillisecondArray::from(of(1000))));
    let val = arrow(dir.path(), "val.arrow", Arc::new(TimestampMicrosecondArray::from(of(1_000_000))));
    let plain = arrow(dir.path(), "plain.arrow", Arc::new(Int64Array::from(of(1000))));
    let saved = dir.path().join("s.json");
    for step in ["standardize", "mean", "none"] {
        let table = |path: &Path| match step {
            "standardize" => Table::open(path).standardize("t"),
            "mean" => Table::open(path).missing("t", Missing::Mean).cast("t", DType::F64),
            _ => Table::open(path),
        };
        table(&train).saved(&saved).build().unwrap();
        for (path, unit) in [(&val, "microseconds"), (&plain, "numbers without a unit of time")] {
            let error = table(path).fitted(&saved).build().unwrap_err();
            let why = format!("column \"t\" has {unit}, and had milliseconds in the saved table: write both");
            assert!(error.to_string().contains(&why), "{error}");
            assert_eq!(error.path(), Some(&**path));
        }
        std::fs::remove_file(&saved).unwrap();
    }
    // The times are equal in seconds.
    let table = |path: &Path| Table::open(path).seconds("t").standardize("t");
    let train = batch(&table(&train).saved(&saved).build().unwrap());
    assert_eq!(batch(&table(&val).fitted(&saved).build().unwrap()), train);
    let half = [-2f64, -1.0, 0.0, 1.0, 2.0].map(|far| (far / 2f64.sqrt()) as f32);
    assert_eq!(floats(&train["t"]), half);
}
