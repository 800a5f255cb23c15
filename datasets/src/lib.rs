//! Data sets for feedline: one file per format, and one set that needs no download.
//!
//! 1. [`idx`]: LeCun's IDX files, the format of MNIST: [`Idx`] is the data set, [`IdxFile`] one file.
//! 2. [`digits`]: 70,000 handwritten-looking digits, drawn by the program and written as IDX files.
//! 3. [`records`]: records of one size in a plain file, without a header: [`Records`].
//!
//! The README says how to add a format.
// One exception, in `bytes`: mapping a file needs a promise that only the caller can make.
#![deny(unsafe_code)]

mod bytes;
pub mod digits;
mod disk;
mod gzip;
pub mod idx;
pub mod records;

pub use bytes::{MEMORY_LIMIT, MappedFile};
pub use idx::{Idx, IdxFile};
pub use records::Records;
