//! The training and test sets: a folder of IDX files, or the built-in digits.

use std::path::{Path, PathBuf};

use feedline::{Error, ErrorKind, Result};
use feedline_datasets::{Idx, digits};

use crate::progress;

/// The training and the test set.
pub struct Data {
    pub train: Idx,
    pub test: Idx,
}

impl Data {
    /// Opens the folder `dir`, or draws the built-in digits if it is `None`; checks that every label is
    /// a class.
    pub fn open(dir: Option<&Path>, classes: usize, quiet: bool) -> Result<Self> {
        let dir = match dir {
            Some(dir) => dir.to_path_buf(),
            None => drawn_digits(quiet)?,
        };
        let data = Self { train: Idx::open_train(&dir)?, test: Idx::open_test(&dir)? };
        for set in [&data.train, &data.test] {
            set.check_labels(classes)?;
        }
        if data.train.shape() != data.test.shape() {
            let why = format!(
                "training images are {:?} pixels, test images {:?}: both sets must have one size",
                data.train.shape(),
                data.test.shape()
            );
            return Err(Error::new(ErrorKind::Data, why).at_path(dir));
        }
        Ok(data)
    }
}

/// The folder of the built-in digits, which are drawn if they are missing.
fn drawn_digits(quiet: bool) -> Result<PathBuf> {
    // In the source tree the files are kept next to the code that draws them; elsewhere in the current
    // folder.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets");
    let dir = if source.is_dir() { source } else { PathBuf::from("datasets") }.join("digits");
    draw(&dir, quiet)?;
    Ok(dir)
}

/// Draws the digits in `dir` if they are missing.
pub fn draw(dir: &Path, quiet: bool) -> Result<()> {
    let bar = progress::drawing(quiet);
    let drawn = digits::ensure(dir, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    drawn.map_err(|error| {
        let why =
            "cannot draw the built-in digits: make their folder writable, or give images with --data DIR";
        Error::new(error.kind(), why).caused_by(error)
    })
}
