//! Tests of ranks: the store, the group and its collectives.

mod collectives;
mod group;
#[cfg(feature = "nccl")]
mod nccl;
#[path = "../ranks/mod.rs"]
mod ranks;
mod store;
