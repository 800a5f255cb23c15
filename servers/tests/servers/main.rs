//! Batches from servers are those of the workers, whatever happens to the servers.

mod common;
mod faults;
mod order;
mod processes;
mod python;
mod refusals;
mod sharing;
mod trainer;
