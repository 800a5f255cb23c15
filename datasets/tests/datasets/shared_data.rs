//! Every file of the folder of real files gives the values of independent readers, or the expected error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::described::{describe, hex};
use feedline_core::{Dataset, Values};
use feedline_datasets::{OpenOptions, open_with};
use feedline_testkit::not_run;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// Golden entries, by the path of a file or folder; made by `golden/make.py`. Entries of formats that are off
/// by default have their folder, and whether this build reads it.
const GOLDEN: &str = include_str!("../golden/default.json");
const BY_FEATURE: [(&str, bool, &str); 5] = [
    ("arrow", cfg!(feature = "arrow"), include_str!("../golden/arrow.json")),
    ("csv", cfg!(feature = "csv"), include_str!("../golden/csv.json")),
    ("mds", cfg!(feature = "mds"), include_str!("../golden/mds.json")),
    ("parquet", cfg!(feature = "parquet"), include_str!("../golden/parquet.json")),
    ("tfrecord", cfg!(feature = "tfrecord"), include_str!("../golden/tfrecord.json")),
];

/// The size of every picture and the hash of its pixels by Pillow, or why Pillow refuses it.
const PICTURES: &str = include_str!("../../../crates/images/tests/golden/shared.tsv");

const BROKEN_IMAGES: [&str; 3] =
    ["jpeg-awkward/jpeg-decoder__empty.jpg", "png/zune-image__xcrn0g04.png", "png/zune-image__xs1n0g01.png"];

fn root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if !root.is_dir() {
        not_run("the real files of all formats", format!("there is no folder {}", root.display()));
        return None;
    }
    Some(root)
}

fn golden() -> BTreeMap<String, Json> {
    let with_feature = BY_FEATURE.iter().filter(|(_, read, _)| *read).map(|(_, _, text)| *text);
    let all = [GOLDEN].into_iter().chain(with_feature);
    all.flat_map(|text| serde_json::from_str::<BTreeMap<_, _>>(text).unwrap()).collect()
}

/// All files below `folder`, by their paths from `root` on.
fn list(root: &Path, folder: &Path, to: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(root, &path, to);
        } else {
            to.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn every_real_file_is_read_as_independent_readers_do_or_refused() {
    let Some(root) = root() else { return };
    let golden = golden();
    let mut files = Vec::new();
    list(&root, &root, &mut files);
    files.extend(
        ["mnist", "imagenet-sample", "jpeg-awkward", "png", "mds/timeseries20_text"].map(str::to_owned),
    );
    assert!(files.len() > 200, "only {} files", files.len());
    let (mut compared, mut images, mut refused) = (0, 0, Vec::new());
    for file in &files {
        let path = root.join(file);
        if let Some(expected) = golden.get(file) {
            // In memory, and read sample by sample from the disk.
            for limit in [u64::MAX, 0] {
                compare(file, &path, limit, expected);
            }
            compared += 1;
        } else if BY_FEATURE.iter().any(|(folder, read, _)| !read && file.starts_with(&format!("{folder}/")))
        {
            not_run(&format!("the real file {file}"), "its format's feature is off");
        } else if cfg!(feature = "images") {
            picture(file, &path);
            images += 1;
        } else {
            let bytes = fs::read(&path).unwrap();
            match open_with(&path, &OpenOptions::with_memory_limit(0)) {
                Ok(reader) => {
                    let all = describe(&*reader);
                    assert_eq!(all["first"], json!(hex(&Sha256::digest(&bytes))), "{file}");
                    assert_eq!((&all["format"], &all["samples"]), (&json!("folder"), &json!(1)), "{file}");
                    images += 1;
                }
                Err(error) => refused.push((file.as_str(), error.to_string())),
            }
        }
    }
    assert_eq!(compared, golden.len(), "golden entries without a file");
    assert!(images >= 120, "{images} images");
    // Files of the image folders that do not begin like an image; a folder reads them as bytes.
    refused.sort();
    let names: Vec<_> = refused.iter().map(|(file, _)| *file).collect();
    assert!(cfg!(feature = "images") || names == BROKEN_IMAGES, "{refused:#?}");
}

/// A picture has the same pixels as in Pillow. A file that Pillow refuses is refused too, or decoded up to
/// the damage.
fn picture(file: &str, path: &Path) {
    let line = PICTURES.lines().find(|line| line.split('\t').next() == Some(file));
    let [_, height, width, hash] = line.into_iter().flat_map(|line| line.split('\t')).collect::<Vec<_>>()[..]
    else {
        assert!(line.is_some_and(|line| line.contains("\trefused\t")), "{file} is not in the golden file");
        if let Err(error) = open_with(path, &OpenOptions::with_memory_limit(0)) {
            assert!(!error.to_string().contains('\n'), "{file}: {error}");
        }
        return;
    };
    let reader = open_with(path, &OpenOptions::with_memory_limit(0)).unwrap();
    match Values::new().read(&*reader, 0) {
        // Pillow reads it, and this project does not.
        Err(error) if error.to_string().contains("arithmetically coded") => return,
        read => read.unwrap(),
    }
    let all = describe(&*reader);
    let shape = [height, width, "3"].map(|size| size.parse::<u64>().unwrap());
    assert_eq!(all["fields"][0]["shape"], json!(shape), "{file}");
    assert_eq!(all["first"], json!(hash), "{file}");
}

fn compare(file: &str, path: &Path, limit: u64, expected: &Json) {
    let mut expected = expected.clone();
    let null = expected.as_object_mut().and_then(|entry| entry.remove("null"));
    let opened = open_with(path, &OpenOptions::with_memory_limit(limit));
    // The first sample with a null is an error that names it.
    let why = match &null {
        Some(null) => Some(format!("column {} has a null in row {}", null[1], null[0])),
        None => expected.get("refused").map(|why| why.as_str().unwrap().to_owned()),
    };
    if let Some(why) = why {
        let line = opened.and_then(|reader| read_all(&*reader)).unwrap_err().to_string();
        assert!(line.contains(&why), "{file}: {line}");
        assert!(line.contains(path.to_str().unwrap()) && !line.contains('\n'), "{line}");
    } else {
        let reader = opened.unwrap_or_else(|error| panic!("{file}, limit {limit}: {error}"));
        assert_eq!(describe(&*reader), expected, "{file}, limit {limit}");
    }
    if null.is_some() {
        assert_eq!(describe(&*filled(path, limit)), expected, "{file}, limit {limit}, nulls filled");
    }
}

fn read_all(reader: &dyn Dataset) -> feedline_core::Result<()> {
    let mut values = Values::new();
    (0..reader.len()).try_for_each(|sample| values.read(&*reader, sample))
}

/// The same file, with its nulls filled.
#[cfg(all(feature = "arrow", feature = "csv", feature = "parquet"))]
fn filled(path: &Path, memory_limit: u64) -> Arc<dyn Dataset> {
    use feedline_datasets::{ArrowFile, Csv, CsvOptions, Nulls, ParquetFile, TableOptions};
    let options = TableOptions { nulls: Nulls::Fill, memory_limit, ..Default::default() };
    match path.extension().and_then(|name| name.to_str()) {
        Some("parquet") => Arc::new(ParquetFile::open_with(path, options).unwrap()),
        Some("csv" | "tsv") => {
            Arc::new(Csv::open_with(path, CsvOptions { nulls: Nulls::Fill, ..Default::default() }).unwrap())
        }
        _ => Arc::new(ArrowFile::open_with(path, options).unwrap()),
    }
}

#[cfg(not(all(feature = "arrow", feature = "csv", feature = "parquet")))]
fn filled(path: &Path, _: u64) -> Arc<dyn Dataset> {
    panic!("{} has nulls: test with the features arrow, csv and parquet", path.display())
}
