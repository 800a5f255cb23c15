//! The names of MNIST's files. Finds the files in a folder.

use std::path::{Path, PathBuf};

use feedline_core::{Error, ErrorKind, Result, named};

/// Images and labels of the training set.
pub(crate) const TRAIN: [&str; 2] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"];
/// Images and labels of the test set.
pub(crate) const TEST: [&str; 2] = ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// The spellings of `name`. Plain files come first, as they need not be inflated.
fn spellings(name: &str) -> [String; 4] {
    let dotted = name.replace("-idx", ".idx");
    [name.to_owned(), dotted.clone(), format!("{name}.gz"), format!("{dotted}.gz")]
}

/// The file called `name` in `dir`, in any spelling. `None` if there is none.
pub(crate) fn find(dir: &Path, name: &str) -> Result<Option<PathBuf>> {
    for spelling in spellings(name) {
        let path = dir.join(spelling);
        match path.try_exists() {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(error) => {
                return Err(Error::new(ErrorKind::Data, "cannot look for the file")
                    .with_source(error)
                    .at_path(path));
            }
        }
    }
    Ok(None)
}

/// Whether `dir` contains the images of one of MNIST's sets.
pub(crate) fn has_set(dir: &Path) -> Result<bool> {
    Ok(find(dir, TRAIN[0])?.is_some() || find(dir, TEST[0])?.is_some())
}

/// The file called `name` in `dir`, in any spelling. An error if there is none.
pub(crate) fn require(dir: &Path, name: &str) -> Result<PathBuf> {
    let missing = |message: String| Error::new(ErrorKind::Data, message).at_path(dir);
    match std::fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(missing("this is a file: give the folder that holds the four IDX files".into())),
        Err(error) => {
            return Err(missing("cannot open the folder of the four IDX files, check the path".into())
                .with_source(error));
        }
    }
    find(dir, name)?.ok_or_else(|| {
        let names = spellings(name).join(", ");
        // Do not fall back to the other split: training on the test set would look like a good result.
        let other = if TRAIN.contains(&name) { ("test", TEST[0]) } else { ("training", TRAIN[0]) };
        let beside = match find(dir, other.1) {
            Ok(Some(_)) => {
                format!("; only the {} set is there, see {}", other.0, named("OpenOptions::split", "split="))
            }
            _ => String::new(),
        };
        missing(format!(
            "missing {name} (looked for {names}): put the file there, or give the folder that has it{beside}"
        ))
    })
}
