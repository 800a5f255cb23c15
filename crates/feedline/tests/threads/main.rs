//! Worker threads, and the reports and traces of a run.

#[path = "../common/mod.rs"]
mod common;
mod devices;
mod ledger;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod metrics;
mod modes;
mod shared_pool;
mod shrinking;
mod synchronous;
mod trace;
mod tune;
mod whatif;
mod worker_threads;
