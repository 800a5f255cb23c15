//! How content is read: memory, disk, archives, caches, reading ahead.

#[cfg(any(feature = "csv", feature = "jsonl", feature = "object-store"))]
pub(crate) mod at_once;
pub(crate) mod bytes;
#[cfg(any(feature = "mds", feature = "table", feature = "zarr"))]
pub(crate) mod cache;
pub(crate) mod decoded;
pub(crate) mod disk;
pub(crate) mod gzip;
pub(crate) mod memory;
#[cfg(any(feature = "arrow", feature = "object-store"))]
pub(crate) mod own_file;
#[cfg(any(feature = "table", feature = "tokenizers"))]
pub(crate) mod panics;
pub(crate) mod read_ahead;
pub(crate) mod seek;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
pub(crate) mod system;
