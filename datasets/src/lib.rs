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
pub mod digits;
mod disk;
mod fixed;
mod gzip;
pub mod idx;
pub mod npy;
mod reader;
pub mod records;
mod schema;

pub use arrays::Arrays;
pub use bytes::{MEMORY_LIMIT, MappedFile};
pub use fixed::Fixed;
pub use idx::{Idx, IdxFile};
pub use reader::{Reader, Value, Values};
pub use records::Records;
pub use schema::{ElementType, Schema, SchemaField};
