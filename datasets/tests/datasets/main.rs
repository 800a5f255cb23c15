//! Tests of the readers.

mod any_bytes;
mod arrays;
#[path = "../bounded/mod.rs"]
mod bounded;
mod bounds;
#[cfg(all(
    feature = "arrow",
    feature = "csv",
    feature = "jsonl",
    feature = "mds",
    feature = "parquet",
    feature = "tfrecord"
))]
mod bounds_formats;
mod changed_files;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "csv")]
mod csv;
#[path = "../described/mod.rs"]
mod described;
mod digits;
mod idx_errors;
mod idx_rows;
#[cfg(all(feature = "images", feature = "tar"))]
mod images;
#[cfg(feature = "jsonl")]
mod jsonl;
#[path = "../made/mod.rs"]
mod made;
#[cfg(feature = "mds")]
mod mds;
mod mnist;
#[cfg(feature = "arrow")]
mod pack;
mod ragged;
mod records;
mod samples;
mod shared_data;
#[cfg(all(feature = "arrow", feature = "parquet"))]
mod tables;
#[cfg(feature = "tfrecord")]
mod tfrecord;
#[cfg(all(feature = "tokenizers", feature = "jsonl"))]
mod tokenized;
