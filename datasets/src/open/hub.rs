//! Folders as Hugging Face's `datasets` writes them, and as they lie on the hub.
//!
//! | folder | holds |
//! | --- | --- |
//! | of `Dataset.save_to_disk` | `state.json`, which lists Arrow streams; `dataset_info.json` |
//! | of `DatasetDict.save_to_disk` | `dataset_dict.json`, which lists the sets; a folder of each |
//! | of a repository on the hub | `README.md` and a folder (`data`) of `train-00000-of-00002.parquet`, ... |

use std::path::{Path, PathBuf};

use feedline_core::Result;

use super::OpenOptions;
use crate::Reader;

/// The file of a `DatasetDict`, and of a `Dataset`.
const DICT: &str = "dataset_dict.json";
const STATE: &str = "state.json";

/// Opens a folder that `save_to_disk` wrote; `None` for another folder.
pub(super) fn saved(path: &Path, options: &OpenOptions) -> Option<Result<Box<dyn Reader>>> {
    let (dict, state) = (path.join(DICT), path.join(STATE));
    if dict.is_file() {
        return Some(files::dict(path, &dict, options));
    }
    state.is_file().then(|| files::state(path, &state, options))
}

/// The folder of Parquet shards in a repository of the hub: the only folder, beside files that hold no
/// samples.
pub(super) fn shards(folders: &[PathBuf], files: &[PathBuf]) -> Result<Option<PathBuf>> {
    let [folder] = folders else { return Ok(None) };
    if !files.iter().all(|file| is_about(file)) {
        return Ok(None);
    }
    let (_, inside) = crate::folder::list(folder)?;
    Ok(inside.iter().any(|file| is_parquet(file)).then(|| folder.clone()))
}

/// `files` without those about the set, if the others are Parquet shards.
pub(super) fn without_about(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    if files.iter().any(|file| is_parquet(file)) {
        files.retain(|file| !is_about(file));
    }
    files
}

fn is_parquet(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "parquet")
}

/// Whether a file describes the set, as the hub's repositories have them.
fn is_about(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    let is_info = ["dataset_info.json", "dataset_infos.json"].contains(&name.as_str());
    is_info || ["readme", "license", "licence"].contains(&stem)
}

#[cfg(feature = "arrow")]
mod files {
    use super::super::{open_with, split};
    use super::*;
    use crate::Shards;
    use crate::error::{data, one_line};
    use serde_json::Value as Json;

    /// Opens one of the sets of a `DatasetDict`.
    pub(super) fn dict(path: &Path, dict: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
        let json = read(dict)?;
        let names: Option<Vec<String>> = json["splits"]
            .as_array()
            .and_then(|names| names.iter().map(|name| plain(name.as_str()?)).collect());
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return Err(data("\"splits\" does not list the sets: save the set again").at_path(dict));
        };
        let chosen = split::choose(&names, options.split)?;
        let [chosen] = chosen[..] else {
            let why = format!("the folder holds the sets {}", names.join(", "));
            return Err(data(one_line(why) + ": open the folder of one"));
        };
        open_with(path.join(&names[chosen]), options)
    }

    /// Opens the files of a `Dataset`, in order.
    pub(super) fn state(path: &Path, state: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
        let json = read(state)?;
        let names: Option<Vec<String>> = json["_data_files"]
            .as_array()
            .and_then(|files| files.iter().map(|file| plain(file["filename"].as_str()?)).collect());
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return Err(data("\"_data_files\" does not list the files: save the set again").at_path(state));
        };
        let files = names.iter().map(|name| open_with(path.join(name), options));
        Ok(Box::new(Shards::new(files.collect::<Result<_>>()?)?))
    }

    fn read(path: &Path) -> Result<Json> {
        let bytes = std::fs::read(path);
        let bytes = bytes.map_err(|error| data("cannot read the file").with_source(error).at_path(path))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let why = "this is not JSON, as save_to_disk writes it: save the set again";
            data(why).with_source(one_line(error)).at_path(path)
        })
    }

    /// A name in this folder, and of no other place.
    fn plain(name: &str) -> Option<String> {
        let is_plain = Path::new(name).file_name().is_some_and(|file| file == name);
        is_plain.then(|| name.to_owned())
    }
}

#[cfg(not(feature = "arrow"))]
mod files {
    use super::*;

    pub(super) fn dict(_: &Path, _: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
        Err(super::super::needs("arrow"))
    }

    pub(super) use dict as state;
}
