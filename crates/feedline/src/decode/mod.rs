//! Stage 1: a pool of workers decodes batches in place, into pinned host slots.
//!
//! The transfer thread queues the batches to decode, in order. A worker takes one, reads its rows, and sends
//! the filled slot back. `README.md` in this folder explains the steps, and why no wake-up is lost.
//!
//! | part | file |
//! | --- | --- |
//! | the worker threads | `pool.rs` |
//! | the queue of their work | `queue.rs` |
//! | one worker: how it decodes a batch; its activity and scratch memory | `worker.rs` |
//! | when a batch is split; a batch that several workers decode | `split.rs` |
//! | what the workers share about a loader; the end of a batch | `decoder.rs` |
//! | a range of rows read by one worker; errors, panics, substitutes | `rows.rs` |
//! | the threads of a batch filler, and its trait | `fill.rs`, `filler.rs` |
//! | the data: a data set or a source | `input.rs` |
//! | samples that the data set prepares ahead | `prefetch.rs` |
//! | the user's hook on a filled batch | `map_batch.rs` |
//!
//! The jobs, the requests and the reader of a source are in `../job`.

mod decoder;
mod fill;
pub mod filler;
mod input;
mod map_batch;
mod pool;
mod prefetch;
mod queue;
mod rows;
mod split;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use decoder::Decoder;
pub(crate) use fill::{Filling, start as start_filling};
pub(crate) use input::Input;
pub use map_batch::FilledBatch;
pub(crate) use map_batch::{MapBatch, position};
pub(crate) use pool::ActiveWorkers;
pub use pool::{MAX_WORKERS, WorkerPool, Workers};
pub(crate) use split::CACHED;
pub use split::piece_rows;
