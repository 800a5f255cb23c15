//! Folders that Hugging Face's `datasets` writes, and repositories of the hub.
//!
//! | folder | holds |
//! | --- | --- |
//! | of `Dataset.save_to_disk` | `state.json`, which lists Arrow streams; `dataset_info.json` |
//! | of `DatasetDict.save_to_disk` | `dataset_dict.json`, which lists the sets; a folder of each |
//! | of a repository on the hub | `README.md` and a folder (`data`) of `train-00000-of-00002.parquet`, ... |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{Dataset, Result};

use super::OpenOptions;

/// The files that mark a `DatasetDict`, and a `Dataset`.
const DICT: &str = "dataset_dict.json";
const STATE: &str = "state.json";

/// Opens a folder that `save_to_disk` wrote. `None` for any other folder.
pub(super) fn saved(path: &Path, options: &OpenOptions) -> Option<Result<Arc<dyn Dataset>>> {
    let (dict, state) = (path.join(DICT), path.join(STATE));
    if dict.is_file() {
        return Some(files::dict(path, &dict, options));
    }
    state.is_file().then(|| files::state(path, &state, options))
}

/// The folder of Parquet shards in a repository of the hub. It must be the only folder, and all files beside
/// it must describe the set.
pub(super) fn shards(folders: &[PathBuf], files: &[PathBuf]) -> Result<Option<PathBuf>> {
    let [folder] = folders else { return Ok(None) };
    if !files.iter().all(|file| is_about(file)) {
        return Ok(None);
    }
    let (_, inside) = crate::formats::folder::list(folder)?;
    Ok(inside.iter().any(|file| is_parquet(file)).then(|| folder.clone()))
}

/// `files`. If some are Parquet shards, the files that describe the set are left out.
pub(super) fn without_about(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    if files.iter().any(|file| is_parquet(file)) {
        files.retain(|file| !is_about(file));
    }
    files
}

fn is_parquet(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "parquet")
}

/// Whether a file describes the set, such as the `README.md` of a repository of the hub.
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
    use crate::error::{data, one_line};
    use crate::rows::Rows;
    use crate::shards;
    use feedline_core::Values;
    use serde_json::Value as Json;

    /// Opens one set of a `DatasetDict`.
    pub(super) fn dict(path: &Path, dict: &Path, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
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
        open_with(path.join(&names[chosen]), &options.of_one_set())
    }

    /// Opens the files of a `Dataset`, in order. Old versions of `datasets` also kept a list of rows, and
    /// transforms that are applied when rows are read.
    pub(super) fn state(path: &Path, state: &Path, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        super::super::one_set(options, "a folder of one set")?;
        let json = read(state)?;
        let wrong = |why: &str| data(format!("{why}: save the set again")).at_path(state);
        let Some(names) = names(&json["_data_files"]) else {
            return Err(wrong("\"_data_files\" does not list the files"));
        };
        let parts = json["_data_files"].as_array().into_iter().flatten();
        let is_part = parts.flat_map(|file| [&file["skip"], &file["take"]]).any(|part| !part.is_null());
        let steps = json["_inplace_history"].as_array().into_iter().flatten();
        if is_part || steps.flat_map(|file| file["transforms"].as_array()).any(|steps| !steps.is_empty()) {
            return Err(wrong(
                "an old version of datasets wrote parts of files, or steps that are still to be done: load \
                 the set with it",
            ));
        }
        let open = |names: Vec<String>, options: &OpenOptions| {
            let files = names.iter().map(|name| open_with(path.join(name), options));
            Ok::<Arc<dyn Dataset>, feedline_core::Error>(Arc::new(shards(files.collect::<Result<_>>()?)?))
        };
        let rows = open(names, options)?;
        let Some(list) =
            ["_indices_data_files", "_indices_files"].map(|key| &json[key]).into_iter().find(has_any)
        else {
            return Ok(rows);
        };
        let Some(list) = self::names(list) else {
            return Err(wrong("\"_indices_data_files\" does not list the files"));
        };
        let list = list_of_rows(&*open(list, &OpenOptions::default())?, rows.len())?;
        Ok(Arc::new(Rows::new(rows, list)))
    }

    /// The row numbers in `list`. Each must be below `rows`.
    fn list_of_rows(list: &dyn Dataset, rows: u64) -> Result<Vec<u64>> {
        let at = |error: feedline_core::Error| {
            list.path(0).map_or(error.clone(), |path| error.clone().at_path(path))
        };
        if !["indices u64 []", "indices i64 []"].contains(&list.spec().to_string().as_str()) {
            let why = format!("this is not the list of a set's rows: it holds {}", list.spec());
            return Err(at(data(one_line(why) + "; save the set again")));
        }
        let (mut values, mut read) = (Values::new(), Vec::new());
        for sample in 0..list.len() {
            values.read(list, sample)?;
            // As `u64`, a negative number is beyond the rows too.
            let row = values.fields()[0].bytes.first_chunk().map_or(u64::MAX, |row| u64::from_le_bytes(*row));
            if row >= rows {
                let why = format!("the list of rows names row {row}, the set has {rows}: save the set again");
                return Err(at(data(why).at_sample(sample)));
            }
            read.push(row);
        }
        Ok(read)
    }

    fn has_any(list: &&Json) -> bool {
        list.as_array().is_some_and(|files| !files.is_empty())
    }

    /// The file names in a list. `None` if the list is empty, or if a name leads out of this folder.
    fn names(list: &Json) -> Option<Vec<String>> {
        let names = list.as_array()?.iter().map(|file| plain(file["filename"].as_str()?));
        names.collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
    }

    fn read(path: &Path) -> Result<Json> {
        let bytes = std::fs::read(path);
        let bytes = bytes.map_err(|error| data("cannot read the file").with_source(error).at_path(path))?;
        serde_json::from_slice(crate::formats::text::without_mark(&bytes)).map_err(|error| {
            let why = "this is not JSON, as save_to_disk writes it: save the set again";
            data(why).with_source(one_line(error)).at_path(path)
        })
    }

    /// A file name that has no path.
    fn plain(name: &str) -> Option<String> {
        let is_plain = Path::new(name).file_name().is_some_and(|file| file == name);
        is_plain.then(|| name.to_owned())
    }
}

#[cfg(not(feature = "arrow"))]
mod files {
    use super::*;

    pub(super) fn dict(_: &Path, _: &Path, _: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        Err(super::super::needs("arrow"))
    }

    pub(super) use dict as state;
}
