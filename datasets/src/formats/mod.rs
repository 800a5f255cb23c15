//! The file formats: each one file or folder, with what several of them share.

pub mod arrays;
#[cfg(feature = "arrow")]
pub(crate) mod arrow;
pub mod cifar;
#[cfg(any(feature = "csv", feature = "jsonl"))]
pub(crate) mod column_type;
#[cfg(feature = "csv")]
pub(crate) mod csv;
pub(crate) mod folder;
pub(crate) mod headed;
pub mod idx;
#[cfg(any(feature = "jsonl", feature = "safetensors"))]
pub(crate) mod json;
#[cfg(feature = "jsonl")]
pub(crate) mod jsonl;
#[cfg(feature = "mds")]
pub mod mds;
pub mod npy;
#[cfg(feature = "npz")]
pub mod npz;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub mod records;
#[cfg(feature = "safetensors")]
pub mod safetensors;
pub(crate) mod sample_file;
#[cfg(feature = "tar")]
pub(crate) mod tar;
pub(crate) mod text;
#[cfg(feature = "tfrecord")]
pub(crate) mod tfrecord;
#[cfg(feature = "zarr")]
pub(crate) mod zarr;
