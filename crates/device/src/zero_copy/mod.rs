//! Batches that the device gathers from a set's own memory, with no copy on the host.

mod registered;
mod tables;
mod visits;

pub use tables::Tables;
pub use visits::Visits;
