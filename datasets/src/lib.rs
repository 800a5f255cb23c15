//! Data sets for feedline: one file per format, and one set that needs no download.
//!
//! 1. [`idx`]: LeCun's IDX files, the format of MNIST: [`Idx`] is the data set, [`IdxFile`] one file.
//! 2. [`digits`]: 70,000 handwritten-looking digits, drawn by the program and written as IDX files.
//! 3. [`records`]: records of one size in a plain file, without a header: [`Records`].
//!
//! A format to come takes the next number, a file of its own, and `bytes` for reading files.
// One exception, in `bytes`: to map a file is a promise that only the caller can make.
#![deny(unsafe_code)]

pub mod arrays;
mod bytes;
pub mod cifar;
pub mod digits;
mod disk;
mod fixed;
mod folder;
mod gzip;
pub mod idx;
pub mod npy;
#[cfg(feature = "npz")]
pub mod npz;
mod open;
mod reader;
pub mod records;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod schema;
mod shards;
#[cfg(feature = "tar")]
mod tar;
mod text;
mod tokens;

pub use arrays::Arrays;
pub use bytes::{MEMORY_LIMIT, MappedFile};
pub use fixed::Fixed;
pub use folder::Folder;
pub use idx::{Idx, IdxFile};
pub use open::{open, open_with_limit};
pub use reader::{Reader, Value, Values};
pub use records::Records;
pub use schema::{ElementType, Schema, SchemaField};
pub use shards::Shards;
#[cfg(feature = "tar")]
pub use tar::WebDataset;
pub use text::Lines;
pub use tokens::{TokenOptions, Tokens};
