//! Data sets for feedline. This crate has data sets of the file formats of training data, and one set that
//! needs no download.
//!
//! [`open`] recognises a file or a folder by its content, and returns a [`Dataset`](feedline_core::Dataset)
//! of its samples. Their fields may have no limit, and [`Bounded`] gives them one. The README of this crate
//! has a table of the formats.
//!
//! | part | what |
//! | --- | --- |
//! | [`Bounded`] | any data set, with a limit for each field: what a loader takes |
//! | [`idx`] | LeCun's IDX files, the format of MNIST: [`Idx`] is the data set, [`IdxFile`] one file |
//! | [`cifar`] | CIFAR-10 and CIFAR-100, the binary version |
//! | [`npy`], `npz`, `safetensors` | arrays whose first dimension counts samples: [`Arrays`] |
//! | `WebDataset` | tar archives, plain or gzip, with samples grouped by key |
//! | `TfRecord` | records with checksums, such as `tf.train.Example` (feature `tfrecord`) |
//! | `Csv`, `JsonLines` | tables with typed columns (features `csv`, `jsonl`) |
//! | `Table` | any of these: columns chosen, stacked, cast, numbered, filled (feature `tabular`) |
//! | `TableWindows` | windows of time of a table, group by group (feature `tabular`) |
//! | `ArrowFile`, `ParquetFile` | columns in batches and row groups (features `arrow`, `parquet`) |
//! | `ArrowTable` | a table in memory, in place of a path (features `arrow`, `parquet`) |
//! | `mds` | MosaicML Streaming's shards (feature `mds`) |
//! | `Zarr` | arrays in chunks, in the folder of a store (feature `zarr`) |
//! | `Pictures` | encoded pictures of any data set: one, its views, or its parts (feature `images`) |
//! | `SoundDataset`, `open_sounds` | sounds: crops, resampling, mel spectrograms (feature `audio`) |
//! | [`Manifest`], `open_pictures` | the files that a column of a table names |
//! | `Annotated` | pictures with the boxes of COCO, Pascal VOC and YOLO (feature `annotations`) |
//! | `Paired` | pictures and masks in two folders (feature `images`) |
//! | `Remote`, `open_url` | files in object stores and on web servers (feature `object-store`) |
//! | [`Folder`], [`Lines`] | files as samples, with folders as classes; lines of a text |
//! | [`Tokens`] | token ids in streams, cut into windows |
//! | [`TokenDocuments`] | token ids in documents, as Megatron and llm.c write them |
//! | `Tokenized` | texts of any data set as token ids (feature `tokenizers`) |
//! | `Chats`, `ChatTemplate` | conversations as ids and labels, by a chat template (feature `tokenizers`) |
//! | [`shards`] | several files of one format |
//! | [`records`] | records of one size in a plain file, without a header: [`Records`] |
#![cfg_attr(docsrs, feature(doc_cfg))]
// There is one exception, in `bytes`: mapping a file needs a promise that only the caller can make.
#![deny(unsafe_code)]

mod bounded;
mod error;
mod formats;
mod io;
mod open;
mod over;
#[cfg(feature = "arrow")]
mod pack;
mod pictures;
#[cfg(feature = "object-store")]
mod remote;
#[cfg(feature = "arrow")]
mod rows;
mod shards;
#[cfg(feature = "audio")]
mod sounds;
mod tables;
mod text;

pub use bounded::Bounded;
pub use feedline_core::{Decoded, DecodedRows, FieldStream, Groups, Value, Values};
#[cfg(feature = "tokenizers")]
pub use feedline_template::ChatTemplate;
pub use formats::arrays;
pub use formats::arrays::Arrays;
#[cfg(feature = "arrow")]
pub use formats::arrow::ArrowFile;
pub use formats::cifar;
#[cfg(feature = "csv")]
pub use formats::csv::{Csv, CsvOptions};
pub use formats::folder::Folder;
pub use formats::idx;
pub use formats::idx::{Idx, IdxFile};
#[cfg(feature = "jsonl")]
pub use formats::jsonl::{JsonLines, JsonLinesOptions};
#[cfg(feature = "mds")]
pub use formats::mds;
pub use formats::npy;
#[cfg(feature = "npz")]
pub use formats::npz;
#[cfg(feature = "parquet")]
pub use formats::parquet::ParquetFile;
pub use formats::records;
pub use formats::records::Records;
#[cfg(feature = "safetensors")]
pub use formats::safetensors;
#[cfg(feature = "tar")]
pub use formats::tar::WebDataset;
pub use formats::text::Lines;
#[cfg(feature = "tfrecord")]
pub use formats::tfrecord::TfRecord;
#[cfg(feature = "zarr")]
pub use formats::zarr::Zarr;
pub(crate) use io::buffers::Buffers;
pub use io::bytes::{MEMORY_LIMIT, MappedFile};
#[cfg(feature = "object-store")]
pub use open::open_url;
pub use open::{OpenOptions, PathOrTable, Split, open, open_with};
#[cfg(feature = "arrow")]
pub use pack::{PackOptions, PackSummary, PackedTokens, TokenPackOptions, pack, pack_tokens};
#[cfg(feature = "annotations")]
pub use pictures::annotations::Annotated;
#[cfg(feature = "images")]
pub use pictures::images::{Form, Paired, Parts, Pictures, Views};
pub use pictures::labelled;
#[cfg(feature = "object-store")]
pub use remote::{Remote, RemoteCache, RemoteOptions, RemoteStats};
pub use shards::shards;
#[cfg(feature = "audio")]
pub use sounds::{SoundDataset, open_sounds};
#[cfg(feature = "table")]
pub use tables::in_memory::ArrowTable;
pub use tables::manifest::{Manifest, ManifestOptions, open_pictures};
pub use tables::nulls::Nulls;
#[cfg(feature = "table")]
pub use tables::table::TableOptions;
#[cfg(feature = "tabular")]
pub use tables::tabular::{Class, FitOn, Missing, Table, TableWindows, WindowFate, Windows};
#[cfg(feature = "tokenizers")]
pub use text::chats::{ChatOptions, Chats, Learn, open_chats};
pub use text::token_files::TokenDocuments;
#[cfg(feature = "tokenizers")]
pub use text::tokenized::{Tokenized, TokenizedSource};
pub use text::tokens::{LeftOut, TokenOptions, Tokens};
