//! Stage 1: a worker pool decodes the rows of a batch, in place, into a page-locked slot.
//!
//! What enters: the plan (which ids make up which batch), a data set or a source, and commands (which epoch to run).
//! What leaves: ready leases, in the order of the steps, through a bounded channel.
//!
//! | part | file |
//! | --- | --- |
//! | what the makers ask of their data | `feed.rs` |
//! | the batches of a data set | `dataset.rs` |
//! | the batches of a set that the device reads itself | `direct.rs` |
//! | the batches of a source | `source.rs` |
//! | a rank's shards, read one after the other | `line.rs` |
//! | one batch: rows over workers, panics and errors named | `batch.rs` |
//! | the makers: take a batch, fill it, put it in line | `maker.rs` |
//! | whose turn it is to take a batch, and what the others do | `turn.rs` |
//! | for how many copies who takes a slot waits at a time | `patience.rs` |
//! | how long who has no batch waits before the next look | `pace.rs` |
//! | the line in which batches leave | `delivery.rs` |
//! | the stage and its start | `stage.rs` |
//! | the threads, called `fl-decode-N` | `workers.rs` |
//! | who reads what since when | `activity.rs` |
#![forbid(unsafe_code)]

mod activity;
mod batch;
mod dataset;
mod delivery;
mod direct;
mod feed;
mod line;
mod maker;
mod pace;
mod patience;
mod source;
mod stage;
mod turn;
mod workers;

pub use activity::{Activity, Reading};
pub use feed::Input;
pub use stage::{Run, Stage};
pub use workers::Workers;
