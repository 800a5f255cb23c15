//! Opens data of any format. The content tells the format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::compose::Concat;
use feedline_core::{Dataset, Error, Result, named};

use crate::error::{data, one_line};
use crate::formats::sample_file::SampleFile;
use crate::io::bytes::Content;
use crate::io::disk::DiskFile;
use crate::io::indexed_folder::IndexedFolder;
use crate::text::token_files::index::is_index;
use crate::{Folder, TokenDocuments, formats::cifar, formats::idx};

mod formats;
mod hub;
mod kind;
mod listed;
mod options;
mod path_or_table;
mod pattern;
mod remote;
mod split;

use formats::{File, Place};
use kind::{Kind, Start};
pub(crate) use kind::{is_arrow_stream, is_tar_header, is_text, is_tfrecord};
pub(crate) use listed::{is_picture, is_sound};
pub use options::{OpenOptions, Split};
pub use path_or_table::PathOrTable;
#[cfg(feature = "object-store")]
pub(crate) use remote::SCHEMES;
#[cfg(feature = "object-store")]
pub(crate) use remote::is_bucket;
#[cfg(not(feature = "object-store"))]
pub(crate) use remote::no_store;
#[cfg(feature = "object-store")]
pub use remote::open_url;
#[cfg(feature = "object-store")]
pub(crate) use remote::shown;
pub(crate) use remote::{is_url, split_query};

/// The index of a folder that `pack` wrote.
const PACK_INDEX: &str = "_index.json";

/// Opens a file or a folder of any format.
///
/// `open_url` opens a URL that is passed as a path (feature `object-store`). A name with a range, a list or a
/// star opens several files of one format, one after another. Examples are `train-{000..099}.tar`,
/// `{a,b}.csv` and `*.parquet`.
///
/// If a `.bin` of token ids has its `.idx` beside it, as Megatron writes them, its documents are opened. The
/// path may name either file.
///
/// A folder may hold MNIST's files, CIFAR's binary files, one folder per class, or shards of one format. It
/// may also be a data set that `save_to_disk` of Hugging Face's `datasets` wrote. A repository of the hub is
/// a folder of Parquet shards. The table in this crate's README lists the formats. If the feature of a format
/// is off, the error names the format.
///
/// ```
/// use feedline_datasets::open;
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-open-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// let reader = open(&path)?;
/// assert_eq!((reader.about().format, reader.len()), ("idx", 1));
/// assert_eq!(reader.spec().to_string(), "array u8 [3]");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Data` if there is nothing at `path`, its kind is unknown, or it is damaged. The error names the file and,
/// if known, the byte.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Dataset>> {
    open_with(path, &OpenOptions::default())
}

/// As [`open`], with options. Also opens a table in memory, an `ArrowTable`.
///
/// # Errors
/// As [`open`]. `Config` for an option that this kind of data does not use, other than `memory_limit`.
pub fn open_with(from: impl Into<PathOrTable>, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
    let from = from.into();
    let reader = open_any(&from, options)?;
    check_used(&*reader, options).map_err(|error| from.at(error))?;
    Ok(reader)
}

/// Refuses options that data opened by [`open_any`] do not use. That has refused a split and the age of a
/// listing.
pub(crate) fn check_used(reader: &dyn Dataset, options: &OpenOptions) -> Result<()> {
    let about = reader.about();
    options.of_one_set().check(about.format, about.classes.is_some())
}

/// As [`open_with`]. Also takes options of columns that only some formats use.
pub(crate) fn open_any(from: &PathOrTable, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
    let path = match from {
        PathOrTable::Path(path) => path.as_path(),
        #[cfg(feature = "table")]
        PathOrTable::Table(table) => {
            let reader = table.open(options)?;
            check_classes(&reader, options)?;
            return Ok(Arc::new(reader));
        }
    };
    if let Some(opened) = path.to_str().and_then(|url| remote::url(url, options)) {
        return opened.and_then(|reader| check_classes(&*reader, options).map(|()| reader));
    }
    if !options.listing_age.is_zero() {
        let age = OpenOptions { listing_age: options.listing_age, ..Default::default() };
        age.check("on a disk", false).map_err(|error| error.at_path(path))?;
    }
    if let Some(shards) = local_shards(path, options)? {
        return Ok(shards);
    }
    let opened = if path.is_dir() { folder(path, options) } else { file(path, options) };
    let checked = opened.and_then(|reader| check_classes(&*reader, options).map(|()| reader));
    checked.map_err(|error| if error.path().is_some() { error } else { error.at_path(path) })
}

/// Refuses a split for `what`, one set of samples.
fn one_set(options: &OpenOptions, what: &str) -> Result<()> {
    OpenOptions { split: options.split, ..Default::default() }.check(what, false)
}

/// Checks that the classes of a set are the stated ones.
fn check_classes(reader: &dyn Dataset, options: &OpenOptions) -> Result<()> {
    let (Some(stated), Some(own)) = (&options.classes, reader.about().classes) else { return Ok(()) };
    let differ = (0..stated.len().max(own.len())).find(|&at| stated.get(at) != own.get(at));
    let Some(at) = differ else { return Ok(()) };
    let name =
        |classes: &[String]| classes.get(at).map_or("missing".to_owned(), |name| format!("\"{name}\""));
    let option = named("OpenOptions::classes", "classes=");
    let why = format!("class {at} is {} here, but {} in {option}", name(own), name(stated));
    Err(data(one_line(why) + ": labels would differ, write both sets with one list"))
}

fn file(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
    let limit = options.memory_limit;
    // Bare ids may begin like any other format. So the index beside them decides.
    if has_index(path)? {
        one_set(options, "a file of tokens")?;
        return Ok(Arc::new(TokenDocuments::open_with(path, limit)?));
    }
    let Start { bytes, kind, is_gzip } = Start::read(path)?;
    // An archive of CIFAR has two sets.
    if kind != Kind::Tar {
        one_set(options, "one file")?;
    }
    match kind {
        Kind::TokenIndex
        | Kind::LlmC
        | Kind::Npz
        | Kind::Safetensors
        | Kind::Image
        | Kind::Arrow
        | Kind::Parquet
            if is_gzip =>
        {
            Err(data("this kind of file is not read from gzip: gunzip it"))
        }
        Kind::TokenIndex => Ok(Arc::new(TokenDocuments::open_with(path, limit)?)),
        Kind::MdsIndex => formats::mds_folder(&in_folder_of(path, "index.json"), options),
        Kind::PackIndex => formats::packed(&in_folder_of(path, PACK_INDEX), options),
        kind => {
            let file = File { path, start: &bytes, place: Place::Disk };
            formats::open(kind, file, options)?.ok_or_else(|| unknown(&bytes))
        }
    }
}

/// The folder of an index.
fn in_folder_of(path: &Path, index: &'static str) -> IndexedFolder {
    IndexedFolder::on_disk(path.parent().unwrap_or(path), index)
}

/// What opens a folder with an index of this name, and what the URL of such a folder contains: an index is a
/// request.
type OpenFolder = fn(&IndexedFolder, &OpenOptions) -> Result<Arc<dyn Dataset>>;
const INDICES: [(&str, OpenFolder, &str); 5] = [
    ("index.json", formats::mds_folder, ""),
    (PACK_INDEX, formats::packed, ""),
    ("zarr.json", formats::zarr, ".zarr"),
    (".zgroup", formats::zarr, ".zarr"),
    (".zarray", formats::zarr, ".zarr"),
];

/// Whether a file is a `.bin` of token ids with its index beside it.
fn has_index(path: &Path) -> Result<bool> {
    let index = path.with_extension("idx");
    if path.extension().is_none_or(|extension| extension != "bin") || !index.is_file() {
        return Ok(false);
    }
    let file = DiskFile::open(&index).map_err(|error| error.at_path(&index))?;
    Ok(is_index(&file.read(0, file.len().min(16) as usize)?))
}

/// `files` without the indices of other files in it.
fn without_indices(mut files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut indices = Vec::new();
    for file in &files {
        if has_index(file)? {
            indices.push(file.with_extension("idx"));
        }
    }
    files.retain(|file| !indices.contains(file));
    Ok(files)
}

fn unknown(start: &[u8]) -> Error {
    let start: String = start.iter().take(8).map(|byte| format!(" {byte:02x}")).collect();
    data(format!(
        "the kind of this file is unknown, it begins with{start}: give a file of a format listed in the \
         README, or {}",
        named(
            "open it as Records or Tokens",
            "read token ids by feedline.tokens(path, window, dtype=\"u16\"), and records of your own by \
             NumPy: feedline.Data({\"x\": np.memmap(path, dtype).reshape(-1, n)})"
        )
    ))
}

#[allow(dead_code)] // unused where every feature is on
fn needs(feature: &str) -> Error {
    data(format!(
        "this build does not read such files: build feedline-datasets with the feature \"{feature}\""
    ))
}

fn folder(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
    let limit = options.memory_limit;
    if idx::names::has_set(path)? {
        return Ok(Arc::new(idx::arrays::of_folder(path, options.split.unwrap_or(Split::Train), limit)?));
    }
    for (index, open, _) in INDICES {
        if path.join(index).is_file() {
            one_set(options, "a folder of one set")?;
            return open(&IndexedFolder::on_disk(path, index), options);
        }
    }
    if let Some(saved) = hub::saved(path, options) {
        return saved;
    }
    let (folders, files) = crate::formats::folder::list(path)?;
    if let Some(shards) = hub::shards(&folders, &files)? {
        return folder(&shards, options);
    }
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    if cifar::has_files(names) {
        return Ok(Arc::new(cifar::open_split(path, options.split.unwrap_or(Split::Train))?));
    }
    let files = without_indices(hub::without_about(files))?;
    if folders.is_empty() && files.first().is_some_and(|first| is_shard(first)) {
        return Ok(Arc::new(shards(&of_split(files, options.split)?, &options.of_one_set())?));
    }
    one_set(options, "a folder of one set")?;
    let options = OpenOptions { classes: options.classes.clone(), ..Default::default() };
    Ok(Arc::new(Folder::open_with(path, &options)?))
}

/// Opens the shards of one set. For CSV and JSON Lines, the types fit the values of all shards.
fn shards(files: &[PathBuf], options: &OpenOptions) -> Result<Concat> {
    let all = |is: fn(&Path, Kind) -> Result<bool>| {
        files.iter().try_fold(true, |all, file| Ok(all && is(file, Start::read(file)?.kind)?))
    };
    let is_csv = |file: &Path, kind| {
        Ok(kind == Kind::Csv || kind == Kind::Text && formats::is_table(&Content::open_unclaimed(file)?)?)
    };
    let contents = || {
        let content = |path: &PathBuf| {
            let content = Content::open_unclaimed(path).map_err(|error| error.at_path(path))?;
            Ok((path.clone(), content))
        };
        files.iter().map(content).collect::<Result<_>>()
    };
    if all(is_csv)? {
        formats::csv_shards(contents()?, options)
    } else if all(|_, kind| Ok(kind == Kind::JsonLines))? {
        formats::jsonl_shards(contents()?, options)
    } else {
        crate::shards(files.iter().map(|file| open_with(file, options)).collect::<Result<_>>()?)
    }
}

/// The shards of one split. A folder may hold `train-00000.parquet` beside `test-00000.parquet`.
fn of_split<P: AsRef<Path>>(files: Vec<P>, split: Option<Split>) -> Result<Vec<P>> {
    let name = |file: &P| file.as_ref().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let chosen = split::choose(&files.iter().map(name).collect::<Vec<_>>(), split)?;
    let mut chosen = chosen.into_iter().peekable();
    let files = files.into_iter().enumerate().filter(|(at, _)| chosen.next_if_eq(at).is_some());
    Ok(files.map(|(_, file)| file).collect())
}

/// Opens the files that match a pattern, unless there is a file whose name is the pattern.
fn local_shards(path: &Path, options: &OpenOptions) -> Result<Option<Arc<dyn Dataset>>> {
    let Some((root, text)) = path.to_str().filter(|_| !path.exists()).map(listed::of_folder) else {
        return Ok(None);
    };
    if !pattern::is_pattern(text) {
        return Ok(None);
    }
    one_set(options, "a pattern of files")?;
    let files = without_indices(listed::files(root, text)?)?;
    if !files.first().is_some_and(|first| is_sample(first)) {
        return Ok(Some(Arc::new(shards(&files, options)?)));
    }
    let level = listed::class_level(text, options)?;
    let file = |path: PathBuf| {
        let class = level.map(|level| listed::class_of(&path, level)).transpose()?;
        Ok((class, SampleFile::on_disk(path)))
    };
    let files = files.into_iter().map(file).collect::<Result<_>>()?;
    Ok(Some(Arc::new(Folder::of_list(&root.join(listed::root(text)), files, options)?)))
}

/// Whether the first file of a pattern is a single sample. If the file is missing, its name decides.
fn is_sample(first: &Path) -> bool {
    let has_sound = is_sound(&first.to_string_lossy());
    listed::is_picture(&first.to_string_lossy()) || has_sound || first.is_file() && !is_shard(first)
}

/// Whether the first file of a folder is a shard instead of a sample.
fn is_shard(first: &Path) -> bool {
    match Start::read(first).map(|start| start.kind) {
        // Sounds are samples without a kind. By chance, their bytes may look like any kind.
        Ok(_) if is_sound(&first.to_string_lossy()) => false,
        Ok(Kind::Image) | Err(_) => false,
        // CIFAR's files are shards without a kind.
        Ok(Kind::Unknown) => open_with(first, &OpenOptions::with_memory_limit(0)).is_ok(),
        Ok(_) => true,
    }
}
