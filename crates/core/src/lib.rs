//! Types and logic that the other crates share: no unsafe code, no device, and no threads outside [`check`].
//!
//! | term | meaning | module |
//! | --- | --- | --- |
//! | sample | one item of a data set, identified by its id | [`dataset`] |
//! | field | a named, typed, shaped part of every sample | [`spec`] |
//! | spec | the fields of a sample | [`spec`] |
//! | ragged field | a field of variable length: items and offsets | [`mod@ragged`] |
//! | packed set | documents laid into windows of one size | [`packed`] |
//! | unpadded batch | documents of a batch as one sequence | [`unpadded`] |
//! | layout | the offset of each field of a batch in one slab | [`layout`] |
//! | source | data without a length: shards of records | [`source`] |
//! | composition | data sets made of other data sets | [`compose`] |
//! | stable data set | a data set with its length and spec read once | [`StableDataset`] |
//! | context | the epoch, random numbers and scratch memory of a read | [`Context`] |
//! | strided column | one field of every sample, in memory at a fixed stride | [`mod@column`] |
//! | row | the bytes of one sample in a slab, for writing | [`rows`] |
//! | scratch | memory that a worker keeps from sample to sample | [`Scratch`] |
//! | sampler | the order of the samples of an epoch | [`sampler`] |
//! | world | the rank of this process and the number of ranks | [`world`] |
//! | batch sampler | the samples of each batch | [`batch_sampler`] |
//! | cursor | a checkpoint: what was delivered | [`cursor`] |
//! | proof | that every sample was delivered exactly once | [`proof`] |
//! | bad-sample report | the samples that could not be read | [`bad_samples`] |
//! | batch info | the ids and position of a batch | [`batch_info`] |
//! | timeline | when each stage worked on a batch | [`timeline`] |
//! | check | a test of a data set against its contract | [`check`] |
//! | fingerprint | a number that identifies a data set | [`fingerprint`] |
//! | error | a value that says what is wrong, where, and what to do | [`error`] |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod about;
pub mod bad_samples;
pub mod batch_info;
pub mod batch_sampler;
pub mod check;
pub mod column;
pub mod compose;
mod content;
mod context;
pub mod cursor;
pub mod dataset;
mod deadline;
mod decoded;
pub mod dtype;
pub mod error;
mod field_stream;
pub mod fingerprint;
mod items;
pub mod layout;
mod lengths;
mod memory;
mod named;
mod on_threads;
pub mod packed;
mod panics;
mod prefetch;
pub mod proof;
pub mod ragged;
pub mod random;
mod region;
pub mod rows;
pub mod sampler;
mod scratch;
mod sink;
pub mod source;
mod source_order;
pub mod spec;
mod stable;
mod storage;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
mod system;
pub mod timeline;
pub mod unpadded;
mod user_cache;
mod values;
pub mod world;

pub use about::{About, Groups};
pub use bad_samples::{BadSampleReport, BadSamples, Budget};
pub use batch_info::{BatchInfo, Failure, HostRows, Substituted};
pub use batch_sampler::{BatchSampler, BatchSamplerOptions, LastBatch};
pub use check::{CheckOptions, check_dataset};
pub use column::StridedColumn;
pub use compose::{InMemory, Mix, Sample, from_fn};
pub use content::BatchContent;
pub use context::{Context, Watch};
pub use cursor::Cursor;
pub use dataset::{Dataset, ReadError, RowError};
pub use deadline::deadline;
pub use decoded::{Decoded, DecodedRows};
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result, Stage};
pub use field_stream::FieldStream;
pub use fingerprint::Fingerprint;
pub use layout::Layout;
pub use lengths::{OneRow, ReadRow, before_labels, lengths, lengths_with_labels};
pub use named::{named, speak_python, speaks_python};
pub use on_threads::on_threads;
pub use packed::{Cost, Fate, Long, Packed, PackedBuilder, PackedOptions, PackedSource, PackedSourceBuilder};
pub use panics::{catch_panic, panic_text};
pub use prefetch::Prefetched;
pub use proof::{BatchProof, Proof};
pub use ragged::{Extent, Pad, RaggedField};
pub use random::Random;
pub use rows::{Row, RowFields, Rows};
pub use sampler::Sampler;
pub use scratch::Scratch;
pub use sink::Sink;
pub use source::{Next, Shard, Source};
pub use source_order::{RecordOrder, SourcePosition, record_id};
pub use spec::{ElementType, Field, FieldId, Meaning, Spec};
pub use stable::StableDataset;
pub use storage::{Storage, TakeItems};
pub use timeline::Timeline;
pub use unpadded::{Unpadded, UnpaddedBuilder};
pub use user_cache::{CACHE_VARIABLE, user_cache};
pub use values::{Value, Values};
pub use world::World;
