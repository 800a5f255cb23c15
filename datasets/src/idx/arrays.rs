//! IDX files as readers: one file of any type and rank, or MNIST's pair.

use std::path::Path;

use feedline_core::Result;

use super::{IdxFile, names};
use crate::Arrays;
use crate::error::data;

/// One file, with the field `array`.
pub(crate) fn of_file(path: &Path, limit: u64) -> Result<Arrays> {
    let (content, array) = IdxFile::open_with_limit(path, limit)?.into_array("array", 0);
    Arrays::new("idx", path, vec![content], vec![array]).map_err(|error| error.at_path(path))
}

/// MNIST's training set in `folder`, or its test set where there is no training set: fields `image`, `label`.
pub(crate) fn of_folder(folder: &Path, limit: u64) -> Result<Arrays> {
    let has_train = names::find(folder, names::TRAIN[0])?.is_some();
    let [images, labels] = if has_train { names::TRAIN } else { names::TEST };
    let images = IdxFile::open_with_limit(names::require(folder, images)?, limit)?;
    let labels = IdxFile::open_with_limit(names::require(folder, labels)?, limit)?;
    if images.dims()[0] != labels.dims()[0] {
        let why = format!("{} labels here, but {} images", labels.dims()[0], images.dims()[0]);
        return Err(data(why + ": take two files of one set").at_path(labels.path()).at_offset(4));
    }
    let ((images, image), (labels, label)) = (images.into_array("image", 0), labels.into_array("label", 1));
    Arrays::new("idx", folder, vec![images, labels], vec![image, label])
        .map_err(|error| error.at_path(folder))
}
