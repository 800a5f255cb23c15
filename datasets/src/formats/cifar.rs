//! CIFAR-10 and CIFAR-100, the binary version. Reads files, gzip files, the folder, or the original archive.
//!
//! A record is one label byte and 3,072 pixels. CIFAR-100 has two label bytes, coarse and then fine. The 32 x
//! 32 red pixels come first, then green, then blue (A. Krizhevsky, "Learning Multiple Layers of Features from
//! Tiny Images").

use std::collections::HashSet;
use std::path::Path;

use feedline_core::{DType, ElementType, Result, named};

use crate::Split;
use crate::error::{data, one_line};
use crate::formats::arrays::{Array, Arrays, Coding};
use crate::io::bytes::{Content, MEMORY_LIMIT};
use crate::io::memory::Memory;

const PIXELS: [usize; 3] = [3, 32, 32];
const PIXEL_BYTES: u64 = 3 * 32 * 32;

/// CIFAR-10 or CIFAR-100: the names of the labels, and the number of classes of each label.
#[derive(Clone, Copy, Debug)]
struct Kind {
    format: &'static str,
    labels: &'static [(&'static str, u8)],
    /// The names of the classes of the last label.
    classes: &'static [&'static str],
}

const KINDS: [Kind; 2] = [
    Kind { format: "cifar10", labels: &[("label", 10)], classes: &CIFAR10 },
    Kind { format: "cifar100", labels: &[("coarse_label", 20), ("fine_label", 100)], classes: &CIFAR100 },
];

/// The names in `batches.meta.txt`.
const CIFAR10: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
/// The names in `fine_label_names.txt`.
const CIFAR100: [&str; 100] = [
    "apple",
    "aquarium_fish",
    "baby",
    "bear",
    "beaver",
    "bed",
    "bee",
    "beetle",
    "bicycle",
    "bottle",
    "bowl",
    "boy",
    "bridge",
    "bus",
    "butterfly",
    "camel",
    "can",
    "castle",
    "caterpillar",
    "cattle",
    "chair",
    "chimpanzee",
    "clock",
    "cloud",
    "cockroach",
    "couch",
    "crab",
    "crocodile",
    "cup",
    "dinosaur",
    "dolphin",
    "elephant",
    "flatfish",
    "forest",
    "fox",
    "girl",
    "hamster",
    "house",
    "kangaroo",
    "keyboard",
    "lamp",
    "lawn_mower",
    "leopard",
    "lion",
    "lizard",
    "lobster",
    "man",
    "maple_tree",
    "motorcycle",
    "mountain",
    "mouse",
    "mushroom",
    "oak_tree",
    "orange",
    "orchid",
    "otter",
    "palm_tree",
    "pear",
    "pickup_truck",
    "pine_tree",
    "plain",
    "plate",
    "poppy",
    "porcupine",
    "possum",
    "rabbit",
    "raccoon",
    "ray",
    "road",
    "rocket",
    "rose",
    "sea",
    "seal",
    "shark",
    "shrew",
    "skunk",
    "skyscraper",
    "snail",
    "snake",
    "spider",
    "squirrel",
    "streetcar",
    "sunflower",
    "sweet_pepper",
    "table",
    "tank",
    "telephone",
    "television",
    "tiger",
    "tractor",
    "train",
    "trout",
    "tulip",
    "turtle",
    "wardrobe",
    "whale",
    "willow_tree",
    "wolf",
    "woman",
    "worm",
];

impl Kind {
    fn record_bytes(self) -> u64 {
        self.labels.len() as u64 + PIXEL_BYTES
    }

    /// The kind of the records in `content`. The length and all labels decide. `None` if it is neither kind.
    fn recognised(content: &Content) -> Result<Option<Self>> {
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

/// Opens CIFAR's training set: the folder of the `.bin` files, or the original `.tar.gz` (feature `tar`). A
/// single `.bin` or `.bin.gz` file is opened too, even if it holds the test set.
///
/// The fields are `label` (CIFAR-100: `coarse_label` and `fine_label`) and `image` (`u8`, `[3, 32, 32]`). The
/// [classes](feedline_core::About::classes) are those of `label`, or of `fine_label`.
///
/// # Errors
/// `Data` if there is no file of the set, a file of `data_batch_1.bin`, `data_batch_2.bin`, ... is missing
/// before the last one, or a file cannot be read, is cut short or has a label that is not a class. The error
/// names the file.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    open_split(path.as_ref(), Split::Train)
}

/// As [`open`], for the test set in a folder or an archive.
///
/// # Errors
/// As [`open`].
pub fn open_test(path: impl AsRef<Path>) -> Result<Arrays> {
    open_split(path.as_ref(), Split::Test)
}

pub(crate) fn open_split(path: &Path, split: Split) -> Result<Arrays> {
    let open = || {
        if path.is_dir() {
            return of_folder(path, split);
        }
        let content = Content::open_unclaimed(path)?;
        #[cfg(feature = "tar")]
        if crate::formats::tar::is_tar(&content)? {
            let members = crate::formats::tar::members(&content)?;
            return of_archive(path, &content, &members, split);
        }
        of_content(path, content)?.ok_or_else(not_cifar)
    };
    open().map_err(|error| error.at_path(path))
}

/// The set in `content`. `None` if `content` is not CIFAR.
pub(crate) fn of_content(path: &Path, content: Content) -> Result<Option<Arrays>> {
    let Some(kind) = Kind::recognised(&content)? else { return Ok(None) };
    // Hold it in memory, for zero-copy loading.
    let content = content.within(MEMORY_LIMIT)?;
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
    let arrays = Arrays::new(kind.format, path, vec![content], arrays)?;
    Ok(Some(arrays.with_classes(kind.classes)))
}

/// The file name without its folders.
fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The split and the batch number in a file name. `None` if CIFAR has no file of this name.
fn set_of(name: &str) -> Option<(Split, Option<u8>)> {
    let name = file_name(name);
    let batch = name.strip_prefix("data_batch_").and_then(|rest| rest.strip_suffix(".bin"));
    match name {
        "train.bin" => Some((Split::Train, None)),
        "test.bin" | "test_batch.bin" => Some((Split::Test, None)),
        _ => batch.and_then(|number| number.parse().ok()).map(|number| (Split::Train, Some(number))),
    }
}

/// Whether one of `names` is the name of a CIFAR file.
pub(crate) fn has_files<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| set_of(name).is_some())
}

/// The files of `split`, sorted by name.
fn choose<T>(files: Vec<(String, T)>, split: Split) -> Result<Vec<(String, T)>> {
    let (mut files, others): (Vec<_>, Vec<_>) = files
        .into_iter()
        .filter(|file| set_of(&file.0).is_some())
        .partition(|file| set_of(&file.0).is_some_and(|(of, _)| of == split));
    files.sort_by(|one, two| one.0.cmp(&two.0));
    let mut names = HashSet::new();
    if let Some((name, _)) = files.iter().find(|(name, _)| !names.insert(file_name(name))) {
        let name = one_line(file_name(name));
        return Err(data(format!("there are two files {name}: remove one of them")));
    }
    if files.is_empty() {
        let names = match split {
            Split::Train => "data_batch_1.bin or train.bin",
            Split::Test => "test_batch.bin or test.bin",
            Split::Validation => {
                let test = named("Split::Test", "split=\"test\"");
                return Err(data(format!("CIFAR has no set to validate with: take {test}")));
            }
        };
        let why = match (others.is_empty(), split) {
            (true, _) => "put CIFAR's binary files there",
            (false, Split::Train) => named(
                "only the test set is there, see open_test and OpenOptions::split",
                "only the test set is there: open it by split=\"test\"",
            ),
            (false, _) => "only the training set is there",
        };
        return Err(data(format!("there is no {names}: {why}")));
    }
    let mut batches: Vec<_> = files.iter().filter_map(|file| set_of(&file.0)?.1).collect();
    batches.sort_unstable();
    if let Some((missing, _)) = (1..).zip(&batches).find(|(expected, batch)| expected != *batch) {
        return Err(data(format!("there is no data_batch_{missing}.bin, but a later one: fetch it again")));
    }
    Ok(files)
}

fn of_folder(path: &Path, split: Split) -> Result<Arrays> {
    let entries = std::fs::read_dir(path);
    let entries = entries.and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| data("cannot list the folder").with_source(error))?;
    let files = entries.into_iter().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, entry.path()))
    });
    let files = choose(files.collect(), split)?;
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
    members: &[crate::formats::tar::Member],
    split: Split,
) -> Result<Arrays> {
    let files = members.iter().map(|member| (member.name.clone(), member)).collect();
    let files = choose(files, split)?;
    let parts = files.iter().map(|(_, member)| (content, member.offset, member.bytes)).collect::<Vec<_>>();
    of_parts(path, &parts)
}

/// The set of several files, joined in memory. Each part is a content, an offset in it and a number of bytes.
fn of_parts(path: &Path, parts: &[(&Content, u64, u64)]) -> Result<Arrays> {
    let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.2));
    if bytes == 0 || bytes > MEMORY_LIMIT {
        return Err(not_cifar());
    }
    let mut memory = Memory::new(bytes)?;
    let mut rest = memory.bytes_mut();
    for &(content, first, bytes) in parts {
        // `rest` is long enough, as the sum includes `bytes`.
        let (to, after) = rest.split_at_mut(bytes as usize);
        content.read_at(first, to)?;
        content.check_unchanged()?;
        rest = after;
    }
    of_content(path, Content::Memory(memory))?.ok_or_else(not_cifar)
}

fn not_cifar() -> feedline_core::Error {
    data(
        "not CIFAR's binary version: the file is not a whole number of records of 3,073 or 3,074 bytes, or a \
         label is not a class; fetch the file again",
    )
}
