//! Stage 3: the hand-off of a batch to the streams that read it.
//!
//! | part | file |
//! | --- | --- |
//! | a delivered batch: only `wait_on` leads to its data | `batch.rs` |
//! | a batch open to one stream: typed views of its fields | `ready.rs` |
//! | the data of a batch on the host | `host.rs` |
//! | a step recorded once per slot, and replayed | `replay.rs` |
//! ! | how long the stream waited for data | `meter.rs` |

mod batch;
mod host;
mod meter;
mod ready;
mod replay;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use host::{HostBatch, HostFields};
pub use meter::WaitMeter;
pub use ready::{Padded, Ragged, Ready};
pub use replay::Replay;
