//! An example of streams: serves the MLP over HTTP, from a pool of streams.
//!
//! ```text
//! requests ──▶ bounded queue ──▶ micro-batch ──▶ stream 0..N: copy, forward, copy back ──▶ answers
//!                  │ full: 429        └ when it is full, or its first request has waited for the delay
//! ```
//!
//! | part | file |
//! | --- | --- |
//! | the queue, the micro-batches, the threads of the streams | `pool.rs` |
//! | one copy of the model on one stream | `replica.rs` |
//! | HTTP: routes, errors, the drain | `server.rs` |
//! | counters, in the text format of Prometheus | `metrics.rs` |
//! | a load generator | `load.rs` |
#![forbid(unsafe_code)]

pub mod load;
mod metrics;
mod pool;
mod replica;
mod server;

pub use metrics::Metrics;
pub use pool::{Pool, PoolOptions, Refused};
pub use replica::{Answer, Model};
pub use server::Server;
