//! CIFAR-10 and CIFAR-100, the binary version: files, gzip files, the folder, or the archive they come in.
//!
//! A record is one label byte (CIFAR-100: coarse, then fine label) and 3,072 pixels: 32 x 32 red ones, then
//! green, then blue (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images").

use std::collections::HashSet;
use std::path::Path;

use feedline_core::{DType, Result};

use crate::ElementType;
use crate::arrays::{Array, Arrays, Coding};
use crate::bytes::{Content, MEMORY_LIMIT};
use crate::error::{data, one_line};
use crate::memory::Memory;

const PIXELS: [usize; 3] = [3, 32, 32];
const PIXEL_BYTES: u64 = 3 * 32 * 32;

/// One of the two sets: the names of its labels, and the number of classes of each.
#[derive(Clone, Copy, Debug)]
struct Kind {
    format: &'static str,
    labels: &'static [(&'static str, u8)],
}

const KINDS: [Kind; 2] = [
    Kind { format: "cifar10", labels: &[("label", 10)] },
    Kind { format: "cifar100", labels: &[("coarse_label", 20), ("fine_label", 100)] },
];

impl Kind {
    fn record_bytes(self) -> u64 {
        self.labels.len() as u64 + PIXEL_BYTES
    }

    /// The kind of the records in `content`, by its length and all labels.
    fn of(content: &Content) -> Result<Option<Self>> {
        'kinds: for kind in KINDS {
            if content.len() == 0 || !content.len().is_multiple_of(kind.record_bytes()) {
                continue;
            }
            for start in (0..content.len()).step_by(kind.record_bytes() as usize) {
                let mut labels = [0; 2];
                let labels = &mut labels[..kind.labels.len()];
                content.read_at(start, labels)?;
                if labels.iter().zip(kind.labels).any(|(label, (_, classes))| label >= classes) {
                    continue 'kinds;
                }
            }
            return Ok(Some(kind));
        }
        Ok(None)
    }
}

/// Opens CIFAR's training set, or its test set where there is no training set: one `.bin` file, one
/// `.bin.gz`, the folder of the `.bin` files, or the `.tar.gz` that they come in (feature `tar`).
///
/// The fields are `label` (CIFAR-100: `coarse_label` and `fine_label`) and `image` (`u8`, `[3, 32, 32]`).
///
/// # Errors
/// `Data` when there is no file of CIFAR, or it cannot be read, is cut short or has a label beyond its
/// classes; names the file.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    open_part(path.as_ref(), None)
}

/// As [`open`], of the test set in a folder or an archive.
///
/// # Errors
/// As [`open`].
pub fn open_test(path: impl AsRef<Path>) -> Result<Arrays> {
    open_part(path.as_ref(), Some(Part::Test))
}

fn open_part(path: &Path, part: Option<Part>) -> Result<Arrays> {
    let open = || {
        if path.is_dir() {
            return of_folder(path, part);
        }
        let content = Content::open_unclaimed(path)?;
        #[cfg(feature = "tar")]
        if crate::tar::is_tar(&content)? {
            let members = crate::tar::members(&content)?;
            return of_archive(path, &content, &members, part);
        }
        of_content(path, content)?.ok_or_else(not_cifar)
    };
    open().map_err(|error| error.at_path(path))
}

/// The set in `content`; `None` if it is not CIFAR.
pub(crate) fn of_content(path: &Path, content: Content) -> Result<Option<Arrays>> {
    let Some(kind) = Kind::of(&content)? else { return Ok(None) };
    // In memory, for zero-copy loading.
    let content = match content {
        Content::OnDisk(file) => Content::of_file(file, MEMORY_LIMIT)?,
        content => content,
    };
    let (bytes, records) = (kind.record_bytes(), content.len() / kind.record_bytes());
    let array = |name: &str, item_dims: &[usize], first| Array {
        name: name.into(),
        element: ElementType::Number(DType::U8),
        coding: Coding::Plain,
        item: 1,
        dims: [&[records as usize], item_dims].concat(),
        fortran: false,
        block: 0,
        first,
        record: Some(bytes),
    };
    let labels = kind.labels.iter().zip(0..).map(|(&(name, _), at)| array(name, &[], at));
    let arrays = labels.chain([array("image", &PIXELS, kind.labels.len() as u64)]).collect();
    Arrays::new(kind.format, path, vec![content], arrays).map(Some)
}

/// Which set a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Train,
    Test,
}

/// The name without the folders before it.
fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The part that a file of this name belongs to; `None` if it is not a name of CIFAR.
fn part_of(name: &str) -> Option<Part> {
    let name = file_name(name);
    let batch = name.strip_prefix("data_batch_").and_then(|rest| rest.strip_suffix(".bin"));
    match name {
        "train.bin" => Some(Part::Train),
        "test.bin" | "test_batch.bin" => Some(Part::Test),
        _ => batch.and_then(|number| number.parse::<u8>().ok()).map(|_| Part::Train),
    }
}

/// Whether one of `names` is the name of a CIFAR file.
pub(crate) fn has_files<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| part_of(name).is_some())
}

/// The files that make up `part`, sorted by name; without a part the training set, else the test set.
fn choose<T>(files: Vec<(String, T)>, part: Option<Part>) -> Result<Vec<(String, T)>> {
    let mut files: Vec<_> =
        files.into_iter().filter_map(|file| Some((part_of(&file.0)?, file.0, file.1))).collect();
    let has_train = files.iter().any(|file| file.0 == Part::Train);
    let part = part.unwrap_or(if has_train { Part::Train } else { Part::Test });
    files.retain(|file| file.0 == part);
    files.sort_by(|one, two| one.1.cmp(&two.1));
    let mut names = HashSet::new();
    if let Some((_, name, _)) = files.iter().find(|(_, name, _)| !names.insert(file_name(name))) {
        let name = one_line(file_name(name));
        return Err(data(format!("there are two files {name}: remove one of them")));
    }
    if files.is_empty() {
        let names = match part {
            Part::Train => "data_batch_1.bin or train.bin",
            Part::Test => "test_batch.bin or test.bin",
        };
        return Err(data(format!("there is no {names}: put CIFAR's binary files there")));
    }
    Ok(files.into_iter().map(|(_, name, file)| (name, file)).collect())
}

fn of_folder(path: &Path, part: Option<Part>) -> Result<Arrays> {
    let entries = std::fs::read_dir(path);
    let entries = entries.and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| data("cannot list the folder").caused_by(error))?;
    let files = entries.into_iter().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, entry.path()))
    });
    let files = choose(files.collect(), part)?;
    let mut contents = Vec::new();
    for (_, file) in &files {
        contents.push(Content::open_unclaimed(file).map_err(|error| error.at_path(file))?);
    }
    let parts = contents.iter().map(|content| (content, 0, content.len())).collect::<Vec<_>>();
    of_parts(path, &parts)
}

/// The set in an archive.
#[cfg(feature = "tar")]
pub(crate) fn of_archive(
    path: &Path,
    content: &Content,
    members: &[crate::tar::Member],
    part: Option<Part>,
) -> Result<Arrays> {
    let files = members.iter().map(|member| (member.name.clone(), member)).collect();
    let files = choose(files, part)?;
    let parts = files.iter().map(|(_, member)| (content, member.offset, member.bytes)).collect::<Vec<_>>();
    of_parts(path, &parts)
}

/// The set of several files, joined in memory; each is a range of a content.
fn of_parts(path: &Path, parts: &[(&Content, u64, u64)]) -> Result<Arrays> {
    let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.2));
    if bytes == 0 || bytes > MEMORY_LIMIT {
        return Err(not_cifar());
    }
    let mut memory = Memory::new(bytes)?;
    let mut rest = memory.bytes_mut();
    for &(content, first, bytes) in parts {
        // `rest` is long enough: the sum includes `bytes`.
        let (to, after) = rest.split_at_mut(bytes as usize);
        content.read_at(first, to)?;
        content.check_unchanged()?;
        rest = after;
    }
    of_content(path, Content::Memory(memory))?.ok_or_else(not_cifar)
}

fn not_cifar() -> feedline_core::Error {
    data(
        "not CIFAR's binary version: it is no whole number of records of 3,073 or 3,074 bytes whose labels \
         are within the classes; fetch the file again",
    )
}
