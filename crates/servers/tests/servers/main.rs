//! Servers give the batches that the workers give, whatever happens to the servers.

mod common;
mod faults;
mod order;
mod processes;
mod python;
mod refusals;
mod sharing;
mod trainer;
