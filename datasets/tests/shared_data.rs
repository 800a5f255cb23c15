//! Every file of the folder of real files is read as independent readers read it, or refused as it should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use feedline_datasets::{Reader, Values, open_with_limit};
use feedline_testkit::not_run;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// Golden entries, by the path of a file or folder; made by `golden/make.py`. Those of formats beside the
/// default ones with the folder they lie in, and whether this build reads it.
const GOLDEN: &str = include_str!("golden/default.json");
const BY_FEATURE: [(&str, bool, &str); 5] = [
    ("arrow", false, "{}"),
    ("csv", cfg!(feature = "csv"), include_str!("golden/csv.json")),
    ("mds", cfg!(feature = "mds"), include_str!("golden/mds.json")),
    ("parquet", false, "{}"),
    ("tfrecord", cfg!(feature = "tfrecord"), include_str!("golden/tfrecord.json")),
];

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

/// What `inspect` prints of a reader; reads every sample.
fn describe(reader: &dyn Reader) -> Json {
    let fields = reader.schema().fields().iter();
    let fields: Vec<_> = fields
        .map(|field| json!({"name": field.name, "dtype": field.element.name(), "shape": field.shape}))
        .collect();
    let mut values = Values::new();
    let mut hashes = Vec::new();
    for sample in 0..reader.len() {
        reader.read(sample, &mut values).unwrap();
        for (value, field) in values.fields().iter().zip(reader.schema().fields()) {
            let elements: usize = value.shape.iter().product();
            assert_eq!(value.bytes.len(), elements * field.element.size(), "sample {sample}: {field}");
            assert_eq!(value.shape.len(), field.shape.len());
            let fits = |(is, says): (&usize, &Option<usize>)| says.is_none_or(|says| says == *is);
            assert!(value.shape.iter().zip(&field.shape).all(fits), "sample {sample}: {field}");
        }
        if sample == 0 || sample + 1 == reader.len() {
            let mut hash = Sha256::new();
            values.fields().iter().for_each(|value| hash.update(&value.bytes));
            hashes.push(hex(&hash.finalize()));
        }
    }
    assert!(reader.read(reader.len(), &mut values).is_err(), "a sample beyond the last one");
    json!({
        "format": reader.format(), "samples": reader.len(), "fields": fields,
        "first": hashes.first(), "last": hashes.last(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
        } else {
            let bytes = fs::read(&path).unwrap();
            match open_with_limit(&path, 0) {
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
    // Files of the image folders that do not begin like an image; in their folder they are bytes all the
    // same.
    refused.sort();
    let names: Vec<_> = refused.iter().map(|(file, _)| *file).collect();
    assert_eq!(names, BROKEN_IMAGES, "{refused:#?}");
}

fn compare(file: &str, path: &Path, limit: u64, expected: &Json) {
    match (open_with_limit(path, limit), expected.get("refused")) {
        (Ok(reader), None) => assert_eq!(describe(&*reader), *expected, "{file}, limit {limit}"),
        (Err(error), Some(why)) => {
            let line = error.to_string();
            assert!(line.contains(why.as_str().unwrap()), "{file}: {line}");
            assert!(line.contains(path.to_str().unwrap()) && !line.contains('\n'), "{line}");
        }
        (Ok(reader), Some(why)) => panic!("{file} was read as {reader:?}, not refused: {why}"),
        (Err(error), None) => panic!("{file}, limit {limit}: {error}"),
    }
}
