//! NumPy's `.npy` files. A file has one array. Its first dimension is the number of samples.
//!
//! Reads header versions 1 to 3, every numeric type and bool, strings of bytes and of code points, C and
//! Fortran order, and both byte orders (NumPy Enhancement Proposal 1). Refuses object arrays and structured
//! types.

use std::path::Path;

use feedline_core::{DType, Result};

use crate::OpenOptions;
use crate::error::data;
use crate::formats::arrays::Arrays;
use crate::io::bytes::Content;

pub(crate) mod header;
mod literal;

use header::Header;

/// Opens a `.npy` file, plain or gzip. Samples have one field, `array`.
///
/// Plain files of up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) are held in memory. Larger files stay on disk.
/// An array without dimensions is one sample.
///
/// # Errors
/// `Data` if the file is missing, not a `.npy` file, cut short or longer than its header says, or holds
/// objects or a structured type. The error names the file and the byte.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    open_with(path, &OpenOptions::default())
}

/// As [`open`], with [`OpenOptions::memory_limit`].
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Arrays> {
    let path = path.as_ref();
    options
        .check("npy", false)
        .and_then(|()| read(path, options.memory_limit))
        .map_err(|error| error.at_path(path))
}

fn read(path: &Path, limit: u64) -> Result<Arrays> {
    let content = Content::open_checked(
        path,
        limit,
        |start, len| Header::parse(start)?.check(len),
        |start| Ok(Header::parse(start)?.file_bytes()),
    )?;
    of_content(path, content)
}

/// The array in `content`.
pub(crate) fn of_content(path: &Path, content: Content) -> Result<Arrays> {
    let mut start = vec![0; content.len().min(header::MAX_BYTES) as usize];
    content.read_at(0, &mut start)?;
    let header = Header::parse(&start)?;
    header.check(content.len())?;
    let array = header.array("array".into(), 0).ok_or_else(|| data("the array is too large"))?;
    Arrays::new("npy", path, vec![content], vec![array])
}

/// The dtype, the first byte and the number of the integers in an array of one dimension.
pub(crate) fn numbers(content: &Content) -> Result<(DType, u64, u64)> {
    let start = content.read(0, content.len().min(header::MAX_BYTES) as usize)?;
    let header = Header::parse(&start)?;
    header.check(content.len())?;
    header.numbers()
}
