//! The golden data of texts for training: a folder beside the repository, or `$FEEDLINE_SHARED`.
#![allow(dead_code)] // each test binary uses a part

use std::path::{Path, PathBuf};

use feedline_testkit::not_run;
use serde_json::Value as Json;

/// A folder of the golden data; says so if it is not there.
pub(crate) fn golden(folder: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let root = std::env::var_os("FEEDLINE_SHARED").map_or_else(beside, PathBuf::from);
    let folder = root.join("text-training").join(folder);
    if !folder.is_dir() {
        not_run("the golden data of texts for training", format!("there is no folder {}", folder.display()));
        return None;
    }
    Some(folder)
}

pub(crate) fn json(path: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The objects of a file of JSON Lines.
pub(crate) fn lines(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}
