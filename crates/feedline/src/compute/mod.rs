//! Stage 3: the hand-off of a batch to the streams that read it.
//!
//! | part | file |
//! | --- | --- |
//! | a delivered batch: only `wait_on` leads to its data; typed views of its fields | `batch.rs` |
//! | the data of a batch on the host | `host.rs` |
//! | a step recorded once per slot, and replayed | `replay.rs` |

mod batch;
mod host;
mod replay;
#[cfg(test)]
mod tests;

pub use batch::{Batch, PaddedView, RaggedView, Ready};
pub use host::HostBatch;
pub use replay::Replay;
