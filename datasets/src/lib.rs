//! Data sets for feedline. This crate has readers of the file formats of training data, and one set that
//! needs no download.
//!
//! [`open`] recognises a file or a folder by its content, and returns a [`Reader`]. [`Ragged`] makes a data
//! set of any reader. [`Fixed`] makes one of a reader whose samples have one size. The README of this crate
//! has a table of the formats.
//!
//! | part | what |
//! | --- | --- |
//! | [`Schema`], [`Reader`], [`Fixed`] | the fields of a file; its samples; a data set of them |
//! | [`idx`] | LeCun's IDX files, the format of MNIST: [`Idx`] is the data set, [`IdxFile`] one file |
//! | [`cifar`] | CIFAR-10 and CIFAR-100, the binary version |
//! | [`npy`], `npz`, `safetensors` | arrays whose first dimension counts samples: [`Arrays`] |
//! | `WebDataset` | tar archives, plain or gzip, with samples grouped by key |
//! | `TfRecord` | records with checksums, such as `tf.train.Example` (feature `tfrecord`) |
//! | `Csv`, `JsonLines` | tables with typed columns (features `csv`, `jsonl`) |
//! | `Table` | any of these: columns chosen, stacked, cast, numbered, filled (feature `tabular`) |
//! | `TableWindows` | windows of time of a table, group by group (feature `tabular`) |
//! | `ArrowFile`, `ParquetFile` | columns in batches and row groups (features `arrow`, `parquet`) |
//! | `mds` | MosaicML Streaming's shards (feature `mds`) |
//! | `ImageDataset` | encoded pictures of any reader, decoded and transformed (feature `images`) |
//! | `SoundDataset`, `open_sounds` | sounds: crops, resampling, mel spectrograms (feature `audio`) |
//! | [`Manifest`], `open_pictures` | the files that a column of a table names |
//! | `ViewsDataset` | several random views of one decoded picture (feature `images`) |
//! | `Annotated` | pictures with the boxes of COCO, Pascal VOC and YOLO (feature `annotations`) |
//! | `JointDataset`, `Paired` | pictures with masks, boxes and points that move along (feature `images`) |
//! | `Remote`, `open_url` | files in object stores and on web servers (feature `object-store`) |
//! | [`Folder`], [`Lines`] | files as samples, with folders as classes; lines of a text |
//! | [`Tokens`] | token ids in streams, cut into windows |
//! | [`TokenDocuments`] | token ids in documents, as Megatron and llm.c write them |
//! | `Tokenized` | texts of any reader as token ids (feature `tokenizers`) |
//! | `Chats`, `ChatTemplate` | conversations as ids and labels, by a chat template (feature `tokenizers`) |
//! | [`Shards`] | several files of one format |
//! | [`records`] | records of one size in a plain file, without a header: [`Records`] |
//! | [`digits`] | 70,000 handwritten-looking digits, drawn by the program and written as IDX files |
#![cfg_attr(docsrs, feature(doc_cfg))]
// There is one exception, in `bytes`: mapping a file needs a promise that only the caller can make.
#![deny(unsafe_code)]

#[cfg(feature = "annotations")]
mod annotations;
pub mod arrays;
#[cfg(feature = "arrow")]
mod arrow;
#[cfg(any(feature = "csv", feature = "jsonl", feature = "object-store"))]
mod at_once;
mod bytes;
#[cfg(any(feature = "table", feature = "mds"))]
mod cache;
#[cfg(feature = "tokenizers")]
mod chats;
pub mod cifar;
#[cfg(any(feature = "csv", feature = "jsonl"))]
mod column_type;
mod concat;
#[cfg(feature = "csv")]
mod csv;
mod decoded;
pub mod digits;
mod disk;
mod error;
#[cfg(feature = "table")]
mod features;
mod fixed;
mod folder;
mod gzip;
mod headed;
pub mod idx;
#[cfg(feature = "images")]
mod images;
#[cfg(any(feature = "jsonl", feature = "safetensors"))]
mod json;
#[cfg(feature = "jsonl")]
mod jsonl;
pub mod labelled;
mod lengths;
mod manifest;
#[cfg(feature = "mds")]
pub mod mds;
mod memory;
pub mod npy;
#[cfg(feature = "npz")]
pub mod npz;
mod nulls;
mod open;
#[cfg(any(feature = "images", feature = "audio"))]
mod others;
#[cfg(any(feature = "arrow", feature = "object-store"))]
mod own_file;
#[cfg(feature = "arrow")]
mod pack;
#[cfg(any(feature = "table", feature = "tokenizers"))]
mod panics;
#[cfg(feature = "parquet")]
mod parquet;
mod plain_shuffle;
mod ragged;
mod read_ahead;
mod reader;
pub mod records;
#[cfg(feature = "object-store")]
mod remote;
mod row_memory;
#[cfg(feature = "arrow")]
mod rows;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod sample_file;
mod schema;
mod seek;
mod shared;
#[cfg(feature = "audio")]
mod sounds;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
mod system;
#[cfg(feature = "table")]
mod table;
#[cfg(feature = "tabular")]
mod tabular;
#[cfg(feature = "tar")]
mod tar;
#[cfg(feature = "tokenizers")]
mod template;
mod text;
#[cfg(feature = "tfrecord")]
mod tfrecord;
mod token_files;
#[cfg(feature = "tokenizers")]
mod tokenized;
mod tokens;

#[cfg(feature = "annotations")]
pub use annotations::Annotated;
pub use arrays::Arrays;
#[cfg(feature = "arrow")]
pub use arrow::ArrowFile;
pub use bytes::{MEMORY_LIMIT, MappedFile};
#[cfg(feature = "tokenizers")]
pub use chats::{ChatOptions, Chats, Learn, open_chats};
pub use concat::Shards;
#[cfg(feature = "csv")]
pub use csv::{Csv, CsvOptions};
pub use decoded::{Decoded, DecodedRows};
pub use fixed::Fixed;
pub use folder::Folder;
pub use idx::{Idx, IdxFile};
#[cfg(feature = "images")]
pub use images::{ImageDataset, JointDataset, Paired, Parts, Views, ViewsDataset};
#[cfg(feature = "jsonl")]
pub use jsonl::{JsonLines, JsonLinesOptions};
pub use manifest::{Manifest, ManifestOptions, open_pictures};
pub use nulls::Nulls;
#[cfg(feature = "object-store")]
pub use open::open_url;
pub use open::{OpenOptions, Split, open, open_with};
#[cfg(feature = "arrow")]
pub use pack::{PackOptions, PackSummary, PackedTokens, TokenPackOptions, pack, pack_tokens};
#[cfg(feature = "parquet")]
pub use parquet::ParquetFile;
pub use ragged::Ragged;
pub use reader::{Reader, Value, Values, Visit};
pub use records::Records;
#[cfg(feature = "object-store")]
pub use remote::{Remote, RemoteCache, RemoteOptions, RemoteStats};
pub use schema::{ElementType, Schema, SchemaField};
pub use seek::FieldStream;
#[cfg(feature = "audio")]
pub use sounds::{SoundDataset, open_sounds};
#[cfg(feature = "table")]
pub use table::TableOptions;
#[cfg(feature = "tabular")]
pub use tabular::{Class, FitOn, Missing, Table, TableDataset, TableWindows, WindowFate, Windows};
#[cfg(feature = "tar")]
pub use tar::WebDataset;
#[cfg(feature = "tokenizers")]
pub use template::ChatTemplate;
pub use text::Lines;
#[cfg(feature = "tfrecord")]
pub use tfrecord::TfRecord;
pub use token_files::TokenDocuments;
#[cfg(feature = "tokenizers")]
pub use tokenized::{Tokenized, TokenizedSource};
pub use tokens::{LeftOut, TokenOptions, Tokens};
