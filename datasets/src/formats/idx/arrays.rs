//! IDX files as data sets. A data set has one file of any type and rank, or MNIST's pair of files.

use std::path::Path;

use feedline_core::{Result, named};

use super::{IdxFile, names};
use crate::error::data;
use crate::{Arrays, Split};

/// One file, with the field `array`.
pub(crate) fn of_file(path: &Path, limit: u64) -> Result<Arrays> {
    let (content, array) = IdxFile::open_limited(path, limit)?.into_array("array", 0);
    Arrays::new("idx", path, vec![content], vec![array]).map_err(|error| error.at_path(path))
}

/// The array in `content`.
#[cfg(feature = "object-store")]
pub(crate) fn of_content(path: &Path, content: crate::io::bytes::Content) -> Result<Arrays> {
    let (content, array) = IdxFile::of_content(path, content)?.into_array("array", 0);
    Arrays::new("idx", path, vec![content], vec![array])
}

/// One of MNIST's sets in `folder`. Its fields are `image` and `label`.
pub(crate) fn of_folder(folder: &Path, split: Split, limit: u64) -> Result<Arrays> {
    let [images, labels] = match split {
        Split::Train => names::TRAIN,
        Split::Test => names::TEST,
        Split::Validation => {
            let test = named("Split::Test", "split=\"test\"");
            return Err(data(format!("MNIST has no set to validate with: take {test}")));
        }
    };
    let images = IdxFile::open_limited(&names::require(folder, images)?, limit)?;
    let labels = IdxFile::open_limited(&names::require(folder, labels)?, limit)?;
    if images.dims()[0] != labels.dims()[0] {
        let why = format!("{} labels here, but {} images", labels.dims()[0], images.dims()[0]);
        return Err(data(why + ": take two files of one set").at_path(labels.path()).at_offset(4));
    }
    let ((images, image), (labels, label)) = (images.into_array("image", 0), labels.into_array("label", 1));
    Arrays::new("idx", folder, vec![images, labels], vec![image, label])
        .map_err(|error| error.at_path(folder))
}
