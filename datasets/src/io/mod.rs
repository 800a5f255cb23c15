//! How content is read: memory, disk, archives, caches, reading ahead.

#[cfg(any(feature = "csv", feature = "jsonl", feature = "object-store"))]
pub(crate) mod at_once;
pub(crate) mod buffers;
pub(crate) mod bytes;
#[cfg(any(feature = "mds", feature = "table", feature = "zarr"))]
pub(crate) mod cache;
pub(crate) mod decoded;
#[cfg(any(feature = "arrow", feature = "parquet", feature = "zarr"))]
pub(crate) mod decoded_groups;
pub(crate) mod disk;
pub(crate) mod gzip;
pub(crate) mod indexed_folder;
pub(crate) mod memory;
#[cfg(any(feature = "arrow", feature = "object-store"))]
pub(crate) mod own_file;
#[cfg(any(feature = "table", feature = "tokenizers"))]
pub(crate) mod panics;
pub(crate) mod read_ahead;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
pub(crate) mod system;

/// The methods of [`Dataset`](feedline_core::Dataset) that are the same for all sets of one file: its spec,
/// its path, and its fingerprint, with what that covers.
macro_rules! of_one_file {
    ($self:ident => $spec:expr, $path:expr; $(#[$covers:meta])*) => {
        fn spec(&$self) -> &feedline_core::Spec {
            &$spec
        }

        fn path(&$self, _: u64) -> Option<&std::path::Path> {
            Some(&$path)
        }

        $(#[$covers])*
        fn fingerprint(&$self) -> u64 {
            $self.fingerprint
        }
    };
}
pub(crate) use of_one_file;
