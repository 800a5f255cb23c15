//! Tests of slots and their leases.

#[path = "../common/mod.rs"]
mod common;
#[cfg(not(loom))]
mod drops;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod send_sync;
mod shared_fill;
#[cfg(not(loom))]
mod stress;
