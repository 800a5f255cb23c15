//! The functions that differ between operating systems, for Unix: reads at an offset, the identity of a file,
//! and folders.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// The properties of a file besides its length and write time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    /// The number of the device, and the number of the file on it.
    id: [u64; 2],
    /// Seconds and nanoseconds of the last change of content, name or permissions. No program can set it.
    changed: [i64; 2],
    /// The number of the file's names.
    links: u64,
}

impl Inode {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        Self {
            id: [metadata.dev(), metadata.ino()],
            changed: [metadata.ctime(), metadata.ctime_nsec()],
            links: metadata.nlink(),
        }
    }

    pub(crate) fn is_same_file(&self, now: &Self) -> bool {
        self.id == now.id
    }

    /// Whether the change time differs. A new or removed link changes it too. A process that has a replaced
    /// file open keeps reading the old content.
    pub(crate) fn is_changed(&self, now: &Self) -> bool {
        self.links == now.links && self.changed != now.changed
    }

    /// Whether the file may have another name. Some file systems do not count names.
    #[cfg(any(feature = "arrow", feature = "object-store"))]
    pub(crate) fn has_other_names(&self) -> bool {
        self.links > 1
    }
}

/// Fills `to` with the bytes of the file from `offset` on.
pub(crate) fn read_exact_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(to, offset)
}

/// Reads `length` bytes of the file from `offset` on. Their memory is not zeroed first.
pub(crate) fn read_vec_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = offset.saturating_add(bytes.len() as u64);
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have returned more than requested.
    bytes.truncate(length);
    Ok(bytes)
}

/// Gives a temporary file the permissions of an ordinary new file. So other users of a shared folder can read
/// it.
pub(crate) fn as_any_new_file(builder: &mut tempfile::Builder<'_, '_>) {
    builder.permissions(Permissions::from_mode(0o666));
}
