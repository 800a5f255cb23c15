//! Words and pure logic of feedline: no unsafe code, no device, and no threads but those that `check` joins.
//!
//! | term | meaning | module |
//! | --- | --- | --- |
//! | sample | one item of a data set, known by its id | [`dataset`] |
//! | field | a named, typed, shaped part of every sample | [`spec`] |
//! | spec | the fields of a sample | [`spec`] |
//! | layout | where each field of a batch lies in one slab | [`layout`] |
//! | source | data without a length: shards of records | [`source`] |
//! | table | one field of every sample, as it lies in memory | [`column`] |
//! | row | the place of one sample in a slab, being written | [`row`] |
//! | order | which sample stands at which position of an epoch | [`sampler`] |
//! | world | which rank of how many this process is | [`world`] |
//! | plan | which samples make up which batch | [`batch_sampler`] |
//! | cursor | what was delivered: a checkpoint | [`cursor`] |
//! | proof | that every sample was delivered exactly once | [`proof`] |
//! | quarantine | the samples that could not be read | [`bad_sample_report`] |
//! | batch info | what is known of a batch beside its bytes | [`batch_info`] |
//! | stop | the first cause that ended a pipeline | [`stop`] |
//! | check | whether a data set keeps what it promises | [`check`] |
//! | fingerprint | a number that tells data sets apart | [`fingerprint`] |
//! | error | a value that says what, where and what to do | [`error`] |
#![forbid(unsafe_code)]

pub mod bad_samples;
pub mod batch_info;
pub mod batch_sampler;
pub mod check;
pub mod column;
pub mod cursor;
pub mod dataset;
pub mod dtype;
pub mod error;
pub mod fingerprint;
pub mod layout;
mod panics;
pub mod proof;
pub mod random;
pub mod row;
pub mod sampler;
pub mod source;
pub mod spec;
pub mod stop;

pub mod world;

pub use bad_samples::{BadSampleReport, BadSamples, Budget};
pub use batch_info::{BatchInfo, Failure, Substituted};
pub use batch_sampler::{BatchSampler, BatchSamplerOptions, LastBatch};
pub use check::{CheckOptions, check_dataset};
pub use column::StridedColumn;
pub use cursor::Cursor;
pub use dataset::{Context, Dataset, ReadError};
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result, Stage};
pub use fingerprint::Fingerprint;
pub use layout::Layout;
pub use panics::catch_panic;
pub use proof::{OrderHash, Proof};
pub use random::Random;
pub use row::{CopyRows, Row, Rows};
pub use sampler::Sampler;
pub use source::{Next, Shard, Source, SourcePosition};
pub use spec::{Field, Spec};
pub use stop::Stop;

pub use world::World;
