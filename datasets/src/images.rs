//! Encoded pictures as samples of a data set, and a single picture as a file (feature `images`).

mod dataset;
mod file;

pub use dataset::ImageDataset;
pub(crate) use file::ImageFile;
