//! The system calls that differ between systems, on Unix: reads and writes at an offset, and paths as bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Fills `to` with the bytes of the file from `offset` on.
pub(crate) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(to, offset)
}

/// Writes all of `from` at `offset`.
pub(crate) fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(from, offset)
}

/// The bytes of a path; [`path_of`] returns the same path.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// The path with these bytes.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}
