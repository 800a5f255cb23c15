//! Whole jobs on files that Hugging Face's libraries and Pillow wrote (`tests/jobs.py`): every value equals
//! theirs. `docs/data.md` lists all ten jobs. `FEEDLINE_PYTHON` names the interpreter, `python3` by default.
//!
//! The functions at the top are the code that a user writes.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use feedline::dataset::Packed;
use feedline::{HostLoader, Loader, Pad, Result, Sampler};
use feedline_core::{Dataset, Values};
use feedline_datasets::{Bounded, OpenOptions, Pictures, Split, Tokenized, open, open_with};
use feedline_images::Transforms;
use feedline_testkit::not_run;
use serde_json::Value as Json;
use tempfile::{TempDir, tempdir};

/// Texts as windows of 128 ids.
fn packed_windows(folder: &Path) -> Result<HostLoader> {
    let text = open(folder.join("corpus.jsonl"))?;
    let ids = Tokenized::new(text, "text", folder.join("byte-level.json"))?;
    let documents = Bounded::measured(Arc::new(ids))?; // counts the ids once, and keeps the counts in a file
    let lengths = documents.lengths("ids")?.to_vec();
    let windows = Packed::in_order(documents, "ids", &lengths, 128)?;
    Loader::builder(windows).batch_size(16).shuffle().seed(7).build_host()
}

/// Texts as padded batches of 32 similar lengths.
fn bucketed(folder: &Path) -> Result<HostLoader> {
    let text = open(folder.join("corpus.parquet"))?;
    let ids = Tokenized::new(text, "text", folder.join("word-piece.json"))?;
    let documents = Bounded::measured(Arc::new(ids))?;
    let sampler = Sampler::bucketed(documents.lengths("ids")?, 32, 16)?;
    Loader::builder(documents).batch_size(32).sampler(sampler).seed(7).pad("ids", Pad::longest()).build_host()
}

/// One set of a folder that `save_to_disk` wrote, or of a repository of the hub.
fn pictures(folder: &Path, split: Split) -> Result<HostLoader> {
    let reader = open_with(folder, &OpenOptions { split: Some(split), ..Default::default() })?;
    assert_eq!(reader.about().classes.unwrap(), ["ant", "bee", "cat"]);
    let pictures = Pictures::new(reader, Transforms::new().center_crop(8))?;
    Loader::builder(pictures).batch_size(4).build_host()
}

/// A folder per class to train on, and one to validate with that lacks a class.
fn pair(folder: &Path) -> Result<[HostLoader; 2]> {
    let train = open(folder.join("train"))?;
    let options =
        OpenOptions { classes: train.about().classes.map(<[String]>::to_vec), ..Default::default() };
    let val = open_with(folder.join("val"), &options)?;
    let load = |reader| {
        Loader::builder(Pictures::new(reader, Transforms::new().center_crop(8))?).batch_size(4).build_host()
    };
    Ok([load(train)?, load(val)?])
}

/// Pictures with 16 bits per level, as bytes.
fn deep(folder: &Path) -> Result<HostLoader> {
    let pictures = Pictures::new(open(folder)?, Transforms::new().center_crop(8))?;
    Loader::builder(pictures).batch_size(4).build_host()
}

/// The folder that `jobs.py` fills; `None` without the libraries.
fn made(kind: &str) -> Option<TempDir> {
    let dir = tempdir().unwrap();
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs.py");
    let what = format!("the job on {kind} that independent libraries wrote");
    let output = match Command::new(&python).arg(script).arg(kind).arg(dir.path()).output() {
        Ok(output) => output,
        Err(error) => {
            not_run(&what, error);
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    if let Some(why) = said.strip_prefix("not run: ") {
        not_run(&what, why);
        return None;
    }
    assert_eq!(said, "ok");
    Some(dir)
}

fn json(path: impl AsRef<Path>) -> Json {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(list: &Json) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn float(number: &Json) -> f32 {
    number.as_f64().unwrap() as f32
}

fn ids_of(folder: &Path, tokenizer: &str, kind: &str) -> Vec<Vec<i64>> {
    let all = json(folder.join(format!("{tokenizer}.ids.json")));
    all[kind].as_array().unwrap().iter().map(numbers).collect()
}

#[test]
fn texts_become_the_ids_windows_and_buckets_of_the_python_library() {
    let Some(dir) = made("text") else { return };
    let folder = dir.path();

    // Every id of 10,000 texts, of three kinds of tokenizer, with each option.
    let mut values = Values::new();
    for (tokenizer, file) in
        [("byte-level", "corpus.jsonl"), ("word-piece", "corpus.parquet"), ("unigram", "corpus.jsonl")]
    {
        let new = || {
            let path = folder.join(format!("{tokenizer}.json"));
            Tokenized::new(open(folder.join(file)).unwrap(), "text", path).unwrap()
        };
        for (kind, reader) in [
            ("plain", new()),
            ("special", new().with_special_tokens()),
            ("truncated", new().with_special_tokens().truncated(16).unwrap()),
        ] {
            let expected = ids_of(folder, tokenizer, kind);
            // All texts without options, the first ones with each.
            let wanted = if kind == "plain" { 10_000 } else { 2000 };
            assert_eq!((reader.len(), expected.len()), (10_000, wanted));
            let ids = reader.spec().fields().iter().position(|field| field.name() == "ids").unwrap();
            for (sample, expected) in expected.iter().enumerate() {
                values.read(&reader, sample as u64).unwrap();
                let (read, _) = values.fields()[ids].bytes.as_chunks();
                let read: Vec<i64> = read.iter().map(|id| i64::from_le_bytes(*id)).collect();
                assert_eq!(read, *expected, "text {sample}, {tokenizer}, {kind}");
            }
        }
    }

    // Windows: the ids of all texts one after another, cut every 128.
    let documents = ids_of(folder, "byte-level", "plain");
    let mut items: Vec<(i64, usize, u32)> = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        items.extend(document.iter().zip(0..).map(|(&id, place)| (id, number, place)));
    }
    let mut loader = packed_windows(folder).unwrap();
    let mut seen = 0;
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let ids = batch.field::<i64>("ids").unwrap().chunks(128);
        let positions = batch.field::<u32>("position").unwrap().chunks(128);
        let segments = batch.field::<u32>("segment").unwrap().chunks(128);
        for (window, ((ids, positions), segments)) in batch.ids().iter().zip(ids.zip(positions).zip(segments))
        {
            let first = *window as usize * 128;
            let (mut segment, mut start) = (0, 0);
            let mut before = None;
            for at in 0..128 {
                let Some(&(id, document, place)) = items.get(first + at) else {
                    assert_eq!((ids[at], positions[at], segments[at]), (0, 0, 0));
                    continue;
                };
                if before != Some(document) {
                    (before, segment, start) = (Some(document), segment + 1, place);
                }
                assert_eq!((ids[at], positions[at], segments[at]), (id, place - start, segment));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, items.len(), "every id once");

    // Buckets: every text once, whole, and next to no padding.
    let documents = ids_of(folder, "word-piece", "plain");
    let mut loader = bucketed(folder).unwrap();
    let (mut counts, mut padding, mut all) = (vec![0; documents.len()], 0, 0);
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let (ids, lengths) = batch.padded::<i64>("ids").unwrap();
        let width = ids.len() / lengths.len();
        for ((sample, row), &length) in batch.ids().iter().zip(ids.chunks(width)).zip(lengths) {
            assert_eq!(row[..length as usize], documents[*sample as usize]);
            counts[*sample as usize] += 1;
            padding += width - length as usize;
        }
        all += ids.len();
    }
    assert!(counts.iter().all(|&count| count == 1));
    let share = padding as f64 / all as f64;
    println!("padding of {} texts in buckets: {:.2} %", documents.len(), 100.0 * share);
    assert!(share < 0.15, "{share}");
}

#[test]
fn folders_of_save_to_disk_and_of_the_hub_are_read_with_their_features() {
    let Some(dir) = made("saved") else { return };
    let expected = json(dir.path().join("expected.json"));
    let mut values = Values::new();
    for (folder, format) in [("saved", "arrow"), ("hub", "parquet")] {
        let folder = dir.path().join(folder);
        for (split, name) in
            [(Split::Train, "train"), (Split::Validation, "validation"), (Split::Test, "test")]
        {
            let expected = &expected[name];
            let rows = expected["label"].as_array().unwrap().len();
            let reader =
                open_with(&folder, &OpenOptions { split: Some(split), ..Default::default() }).unwrap();
            assert_eq!((reader.about().format, reader.len()), (format, rows as u64));
            let schema = "image bytes [?], label i64 [], words text [?], ids i32 [?], box f32 [4]";
            assert_eq!(reader.spec().to_string(), schema);
            for row in 0..rows {
                values.read(&*reader, row as u64).unwrap();
                let [_, _, words, ids, corners] = values.fields() else { panic!("five fields") };
                assert_eq!(words.bytes, expected["words"][row].as_str().unwrap().as_bytes());
                let ids: Vec<i64> =
                    ids.bytes.as_chunks().0.iter().map(|id| i32::from_le_bytes(*id).into()).collect();
                assert_eq!(ids, numbers(&expected["ids"][row]));
                let (corners, _) = corners.bytes.as_chunks();
                let wanted = expected["box"][row].as_array().unwrap();
                assert!(corners.iter().map(|x| f32::from_le_bytes(*x)).eq(wanted.iter().map(float)));
            }

            let mut loader = pictures(&folder, split).unwrap();
            let mut seen = 0;
            for batch in loader.epoch(0).unwrap() {
                let batch = batch.unwrap();
                let images = batch.field::<u8>("image").unwrap().chunks(8 * 8 * 3);
                for (image, &label) in images.zip(batch.field::<i64>("label").unwrap()) {
                    assert_eq!(hex(image), expected["image"][seen].as_str().unwrap());
                    assert_eq!(Some(label), expected["label"][seen].as_i64());
                    seen += 1;
                }
            }
            assert_eq!(seen, rows);
        }
        let error = open(&folder).unwrap_err().to_string();
        assert!(error.contains("several sets, train") && error.contains("OpenOptions::split"), "{error}");
    }
}

#[test]
fn labels_of_a_pair_of_folders_agree_though_a_class_is_missing() {
    let Some(dir) = made("folders") else { return };
    let expected = json(dir.path().join("expected.json"));
    let classes = HashMap::from([("ant", 0), ("bee", 1), ("cat", 2), ("dog", 3)]);
    let mut expected: Vec<(String, i64, String)> = expected
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, pixels)| {
            let parts: Vec<&str> = name.split('/').collect();
            (parts[0].to_owned(), classes[parts[1]], pixels.as_str().unwrap().to_owned())
        })
        .collect();
    expected.sort();
    let mut read = Vec::new();
    for (loader, name) in pair(&dir.path().join("folders")).unwrap().iter_mut().zip(["train", "val"]) {
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let images = batch.field::<u8>("image").unwrap().chunks(8 * 8 * 3);
            let labels = batch.field::<i64>("label").unwrap();
            read.extend(images.zip(labels).map(|(image, &label)| (name.to_owned(), label, hex(image))));
        }
    }
    read.sort();
    assert_eq!(read.len(), 20 + 15);
    assert_eq!(read, expected);
}

#[test]
fn pictures_of_16_bits_have_the_high_bytes_of_pillows_levels() {
    let Some(dir) = made("deep") else { return };
    let expected = json(dir.path().join("expected.json"));
    let expected = expected.as_array().unwrap();
    let mut loader = deep(&dir.path().join("deep")).unwrap();
    let mut seen = 0;
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        for image in batch.field::<u8>("image").unwrap().chunks(8 * 8 * 3) {
            assert_eq!(hex(image), expected[seen].as_str().unwrap(), "picture {seen}");
            seen += 1;
        }
    }
    assert_eq!((seen, expected.len()), (10, 10));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
