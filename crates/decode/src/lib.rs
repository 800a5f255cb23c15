//! Stage 1: a worker pool decodes the rows of a batch, in place, into a page-locked slot.
//!
//! What enters: the plan (which ids make up which batch), a data set or a source, and commands (which epoch to run).
//! What leaves: ready leases, in the order of the steps, through a bounded channel.
//!
//! | part | file |
//! | --- | --- |
//! | what the loop asks of its data | `feed.rs` |
//! | the batches of a data set | `dataset.rs` |
//! | the batches of a set that the device reads itself | `direct.rs` |
//! | the batches of a source | `source.rs` |
//! | a rank's shards, read one after the other | `line.rs` |
//! | one batch: rows over workers, panics and errors named | `batch.rs` |
//! | the loop over steps and epochs | `stage.rs` |
//! | the threads, called `fl-decode-N` | `workers.rs` |
//! | who reads what since when | `activity.rs` |
#![forbid(unsafe_code)]

mod activity;
mod batch;
mod dataset;
mod direct;
mod feed;
mod line;
mod source;
mod stage;
mod workers;

pub use activity::{Activity, Reading};
pub use feed::Input;
pub use stage::{Run, Stage};
pub use workers::Workers;
