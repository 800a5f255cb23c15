//! Errors, faults, limits, and the end of a loader.

mod bad_samples;
#[path = "../common/mod.rs"]
mod common;
mod drops;
mod failures;
mod fault_matrix;
mod faults;
mod fillers;
#[cfg(unix)]
mod forked;
mod held_slots;
mod iterable_errors;
mod killed;
mod limits;
#[path = "../matrix/mod.rs"]
mod matrix;
mod ragged_errors;
#[path = "../restoring/mod.rs"]
mod restoring;
mod shutdown;
mod unused_fills;
