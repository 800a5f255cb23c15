//! Stage 1: a pool of workers decodes batches in place, into pinned host slots.
//!
//! The transfer thread queues the batches to decode, in order. A worker takes one, reads its rows, and sends
//! the filled slot back. `README.md` in this folder explains the steps, and why no wake-up is lost.
//!
//! | part | file |
//! | --- | --- |
//! | the worker threads | `pool.rs` |
//! | the queue of their work | `queue.rs` |
//! | one worker: its activity and scratch memory | `worker.rs` |
//! | a batch to decode, by one worker or by several | `batch.rs` |
//! | what the workers share about a loader; the end of a batch | `decoder.rs` |
//! | a range of rows read by one worker; errors, panics, substitutes | `rows.rs` |
//! | the threads of a batch filler, and its trait | `fill.rs`, `filler.rs` |
//! | the samples of a batch, of a data set or a source | `input.rs` |
//! | samples that the data set prepares ahead | `prefetch.rs` |
//! | the user's hook on a filled batch | `map_batch.rs` |
//! | the records of a source, read in sequence | `source.rs` |
//! | the same, shuffled within a number of bytes | `shuffle_buffer.rs` |

mod batch;
mod decoder;
mod fill;
pub mod filler;
mod input;
mod map_batch;
mod pool;
mod prefetch;
mod queue;
mod rows;
mod shuffle_buffer;
mod source;
#[cfg(test)]
mod tests;
mod worker;

#[doc(hidden)] // For feedline-report.
pub use batch::piece_rows;
pub(crate) use batch::{CACHED, Undecoded};
pub(crate) use decoder::{Decoder, Delivery, Filled, Message};
pub(crate) use fill::{Filling, start as start_filling};
pub(crate) use input::{HostInfo, Input};
pub use map_batch::FilledBatch;
pub(crate) use map_batch::{MapBatch, position};
pub(crate) use pool::ActiveWorkers;
pub use pool::{MAX_WORKERS, WorkerPool, Workers};
pub(crate) use source::SourceReader;
