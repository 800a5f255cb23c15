//! Tests of the readers.

#[cfg(feature = "annotations")]
mod annotations;
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
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod category;
mod changed_files;
#[cfg(all(feature = "tokenizers", feature = "jsonl"))]
mod chats;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "csv")]
mod csv;
#[path = "../described/mod.rs"]
mod described;
mod idx_errors;
mod idx_rows;
#[cfg(all(feature = "images", feature = "tar"))]
mod images;
#[cfg(feature = "images")]
mod joint;
#[cfg(feature = "jsonl")]
mod jsonl;
#[cfg(feature = "tar")]
mod links;
#[path = "../made/mod.rs"]
mod made;
#[cfg(all(
    feature = "arrow",
    feature = "csv",
    feature = "images",
    feature = "jsonl",
    feature = "parquet",
    feature = "tar"
))]
mod manifest;
#[cfg(feature = "mds")]
mod mds;
mod mnist;
#[cfg(feature = "csv")]
mod no_threads;
#[cfg(all(
    feature = "arrow",
    feature = "csv",
    feature = "images",
    feature = "jsonl",
    feature = "mds",
    feature = "npz",
    feature = "parquet",
    feature = "tar",
    feature = "tfrecord"
))]
mod options;
#[cfg(feature = "arrow")]
mod pack;
#[cfg(all(feature = "arrow", feature = "tokenizers"))]
mod pack_tokens;
mod ragged;
mod records;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod row_memory;
mod samples;
#[cfg(all(feature = "arrow", feature = "npz"))]
mod saved;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod saved_tables;
mod shared_data;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod standardized;
mod streams;
#[cfg(all(feature = "arrow", feature = "parquet"))]
mod table_lists;
#[cfg(all(feature = "arrow", feature = "parquet"))]
mod tables;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod tabular;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod tabular_jobs;
#[cfg(feature = "tokenizers")]
mod template_bounds;
#[cfg(feature = "tokenizers")]
mod template_edges;
#[cfg(feature = "tokenizers")]
mod template_golden;
#[cfg(feature = "tfrecord")]
mod tfrecord;
mod token_files;
#[cfg(all(feature = "tokenizers", feature = "jsonl"))]
mod tokenized;
#[cfg(all(feature = "tokenizers", feature = "jsonl"))]
mod tokenized_steps;
mod tokens;
#[path = "../training/mod.rs"]
mod training;
mod training_packing;
#[cfg(feature = "images")]
mod views;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod whole_numbers;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod wide_tables;
#[cfg(all(feature = "arrow", feature = "csv", feature = "jsonl", feature = "parquet"))]
mod windows;
#[cfg(feature = "zarr")]
mod zarr;
