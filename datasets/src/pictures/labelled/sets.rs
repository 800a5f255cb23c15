//! The training and the test set of a path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{Dataset, Error, ErrorKind, Result};

use super::{Labelled, LabelledOptions};
use crate::{Idx, formats::cifar, open};

/// If the data has no test set, this share of the samples is held out as test set.
const HELD_OUT: f64 = 0.1;
/// The seed that chooses the held-out samples. All runs have the same seed, so that a resumed run is not
/// tested on its training samples.
const SPLIT_SEED: u64 = 1;

/// A training and a test set with the fields "image" and "label" (`u8` both).
pub struct LabelledSets {
    /// The training set.
    pub train: Box<dyn Dataset>,
    /// The test set.
    pub test: Box<dyn Dataset>,
    /// The file or folder that holds the whole training set. `None` if a part of it is held out.
    pub train_path: Option<PathBuf>,
    /// The number of values of an image, over all colours.
    pub pixels: usize,
    /// Files that the two sets do not name.
    pub files: Vec<PathBuf>,
}

impl LabelledSets {
    /// Opens the sets of `path`. It is a folder of MNIST's files, or data that [`open`] reads. Unless it has
    /// entries called `train` and `test`, a tenth is held out. Checks labels that are in memory.
    ///
    /// # Errors
    /// As [`open`] and [`Labelled::new`].
    pub fn open(path: &Path, options: &LabelledOptions) -> Result<Self> {
        if !(1..=256).contains(&options.classes) {
            let why = format!("{} classes: a label is a byte, so there are 1 to 256", options.classes);
            return Err(Error::new(ErrorKind::Config, why));
        }
        if has_mnist_names(path) {
            return Self::mnist(path, options);
        }
        let labelled = |inner| Labelled::new(inner, options);
        let mut train_path = path.to_path_buf();
        let (train, test) = match parts(path)? {
            Some([train, test]) => {
                train_path = train;
                (labelled(open(&train_path)?)?, labelled(open(test)?)?)
            }
            None => {
                let inner = open(path)?;
                if inner.about().format == "idx" {
                    let why = "this is a file: give the folder that holds images and labels";
                    return Err(Error::new(ErrorKind::Data, why).at_path(path));
                }
                if !(inner.about().format.starts_with("cifar") && is_whole_cifar(path)) {
                    let all = labelled(inner)?;
                    let pixels = all.pixels();
                    let [train, test] = all.split([1.0 - HELD_OUT, HELD_OUT], SPLIT_SEED)?;
                    return Ok(Self {
                        train: Box::new(train),
                        test: Box::new(test),
                        train_path: None,
                        pixels,
                        files: Vec::new(),
                    });
                }
                (labelled(inner)?, labelled(Arc::new(cifar::open_test(path)?))?)
            }
        };
        if let Err(how) = train.spec().clone().widened(test.spec()) {
            let why = format!(
                "the images of the test set are not like those of the training set: {how}; both must have \
                 one size"
            );
            return Err(Error::new(ErrorKind::Data, why).at_path(path));
        }
        let pixels = train.pixels();
        let train_path = std::path::absolute(train_path).ok();
        let (train, test) = (Box::new(train), Box::new(test));
        Ok(Self { train, test, train_path, pixels, files: Vec::new() })
    }

    /// Opens the folder of MNIST's four files.
    fn mnist(dir: &Path, options: &LabelledOptions) -> Result<Self> {
        for (option, name, own) in [("input", &options.input, "image"), ("label", &options.label, "label")] {
            if let Some(name) = name.as_deref().filter(|name| *name != own) {
                let why = format!("--{option} {name} is not a field: MNIST's files have image and label");
                return Err(Error::new(ErrorKind::Config, why).at_path(dir));
            }
        }
        let (train, test) = (Idx::open_train(dir)?, Idx::open_test(dir)?);
        for set in [&train, &test] {
            set.check_labels(options.classes)?;
        }
        if train.shape() != test.shape() {
            let why = format!(
                "training images are {:?} pixels, test images {:?}: both sets must have one size",
                train.shape(),
                test.shape()
            );
            return Err(Error::new(ErrorKind::Data, why).at_path(dir));
        }
        let files = [&train, &test].iter().flat_map(|set| set.paths()).map(Path::to_path_buf).collect();
        let pixels = train.shape().iter().product();
        let train_path = std::path::absolute(dir).ok();
        Ok(Self { train: Box::new(train), test: Box::new(test), train_path, pixels, files })
    }
}

/// Whether `path` is a folder with one of MNIST's files, or with a file that was probably meant to be one.
fn has_mnist_names(path: &Path) -> bool {
    let entries = path.read_dir().into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.into_iter().any(|name| name.contains("idx3-ubyte") || name.contains("idx1-ubyte"))
}

/// The entries `train` and `test` of a folder, with any extension. `None` if one of them is missing.
///
/// # Errors
/// `Data` for a folder that cannot be listed.
pub fn parts(path: &Path) -> Result<Option<[PathBuf; 2]>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let cannot =
        |error| Error::new(ErrorKind::Data, "cannot list the folder").with_source(error).at_path(path);
    let (mut train, mut test) = (None, None);
    for entry in path.read_dir().map_err(cannot)? {
        let entry = entry.map_err(cannot)?.path();
        match entry.file_stem().and_then(OsStr::to_str) {
            Some("train") => train = Some(entry),
            Some("test") => test = Some(entry),
            _ => {}
        }
    }
    Ok(train.zip(test).map(<[PathBuf; 2]>::from))
}

/// Whether `path` is CIFAR's folder or archive. These hold a test set too.
fn is_whole_cifar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_dir() || name.contains(".tar") || name.ends_with(".tgz")
}
