//! Stage 1: a pool of workers decodes batches in place, into pinned host slots.
//!
//! The transfer thread queues the batches to decode, in order. A worker takes one, reads its rows, and
//! sends the filled slot back. `README.md` in this folder explains how, and why no wake-up is lost.
//!
//! | part | file |
//! | --- | --- |
//! | the worker threads | `pool.rs` |
//! | the queue of their work | `queue.rs` |
//! | one loader's decoding | `decoder/` |
//! | a batch to decode; a batch split over workers | `decoder/job.rs`, `decoder/share.rs` |
//! | a range of rows read by one worker; errors, panics, substitutes | `rows.rs` |
//! | the samples of a batch, of a data set or a source | `input.rs` |
//! | the user's hook on a filled batch | `map_batch.rs` |
//! | what is read of a set that is partly on the device | `rest.rs` |
//! | the records of a source, read in sequence | `source.rs` |
//! | what every worker is reading | `activity.rs` |
//! | one worker: what it reads, its scratch memory | `worker.rs` |
//! | numbers chosen by measurement | `tuning.rs` |

mod activity;
mod decoder;
mod input;
mod map_batch;
mod pool;
mod queue;
mod rest;
mod rows;
mod source;
mod sync;
#[cfg(test)]
mod tests;
mod tuning;
mod worker;

pub use activity::Reading;
pub(crate) use decoder::{Decoder, DecoderOptions, EpochEnd, Job, Message, Outcome, Undecoded};
pub(crate) use input::{Input, Note};
pub use map_batch::FilledBatch;
pub(crate) use map_batch::MapBatch;
pub(crate) use pool::ActiveWorkers;
pub use pool::{MAX_WORKERS, WorkerPool, Workers};
pub(crate) use rest::RestOfSet;
pub(crate) use source::SourceReader;
#[doc(hidden)] // For feedline-report.
pub use tuning::piece_rows;
