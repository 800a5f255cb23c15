//! Worker threads, and the reports and traces of a run.

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
