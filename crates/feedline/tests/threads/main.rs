//! Worker threads, and what a run says of itself.

#[path = "../common/mod.rs"]
mod common;
mod devices;
mod ledger;
mod shared_pool;
mod shrinking;
mod synchronous;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod told;
mod trace;
mod tune;
mod whatif;
mod worker_threads;
