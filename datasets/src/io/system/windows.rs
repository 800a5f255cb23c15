//! The functions that differ between operating systems, for Windows: reads at an offset, the identity of a
//! file, and folders.
//!
//! On Windows, the standard library returns neither the identity nor the change time of a file. So only
//! length and write time detect changes. A file with several names counts as the program's own.

use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::FileExt;

/// The properties of a file besides its length and write time. There are none on this system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode;

impl Inode {
    pub(crate) fn new(_: &Metadata) -> Self {
        Self
    }

    pub(crate) fn is_same_file(&self, _: &Self) -> bool {
        true
    }

    pub(crate) fn is_changed(&self, _: &Self) -> bool {
        false
    }

    #[cfg(any(feature = "arrow", feature = "object-store"))]
    pub(crate) fn has_other_names(&self) -> bool {
        false
    }
}

/// Fills `to` with the bytes of the file from `offset` on. Moves the file's own position.
/// [`DiskFile::reader`](crate::io::disk::DiskFile::reader) sets the position before it reads.
pub(crate) fn read_exact_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        match file.seek_read(to, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                to = &mut to[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads `length` bytes of the file from `offset` on.
pub(crate) fn read_vec_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    read_exact_at(file, &mut bytes, offset)?;
    Ok(bytes)
}

/// Does nothing. A new file has the permissions of its folder.
pub(crate) fn as_any_new_file(_: &mut tempfile::Builder<'_, '_>) {}
