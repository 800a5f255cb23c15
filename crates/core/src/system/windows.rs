//! The system calls that differ between systems, on Windows: reads and writes at an offset, and paths as
//! bytes.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt;
use std::path::{Path, PathBuf};

/// Fills `to` with the bytes of the file from `offset` on. Moves the file's own position, which nothing here
/// uses.
pub(crate) fn read_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        match file.seek_read(to, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                to = &mut to[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// Writes all of `from` at `offset`. Moves the file's own position, which nothing here uses.
pub(crate) fn write_at(file: &File, mut from: &[u8], mut offset: u64) -> io::Result<()> {
    while !from.is_empty() {
        match file.seek_write(from, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                from = &from[written..];
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// The bytes of a path, as UTF-8. Characters that are not valid Unicode are replaced, so [`path_of`] then
/// returns another path.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.to_string_lossy().into_owned().into_bytes()
}

/// The path with these bytes.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}
