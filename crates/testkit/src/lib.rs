//! What feedline's tests share: data sets that misbehave, bytes that know where they belong, and a watch over what a
//! test leaves behind. Not published.
//!
//! | part | file |
//! | --- | --- |
//! | data sets, good and bad | [`fixtures`] |
//! | self-describing bytes | [`pattern`] |
//! | the check of a data set, for one sample | [`canary`] |
//! | the end of a test that hangs | [`watchdog`] |
//! | threads, files and memory before and after | [`leaks`] |
//! | heap allocations, by thread | [`alloc`] |
//! | a forked child | [`fork`] |
//! | the GPU of a test, counted | [`gpu`](mod@gpu) |
//! | tests that did not run, said aloud | [`not_run`](mod@not_run) |
//! | the loop over the n-th failing call | [`nth`] |
//! | a device that does nothing | [`NullDevice`] |
//! | a pipeline restored at every step | [`restore`] |
//!
//! `/proc` and thread names are read as Linux has them.

pub mod alloc;
pub mod canary;
pub mod fixtures;
pub mod fork;
pub mod gpu;
pub mod leaks;
pub mod not_run;
pub mod nth;
mod null_device;
pub mod pattern;
pub mod restore;
pub mod watchdog;

pub use gpu::gpu;
pub use leaks::Census;
pub use not_run::not_run;
pub use null_device::NullDevice;
pub use watchdog::{Watchdog, with_watchdog};
