//! Shared parts of feedline's tests: misbehaving data sets, self-describing bytes, leak checks. Not
//! published.
//!
//! | part | file |
//! | --- | --- |
//! | data sets and sources, good and bad | [`fixtures`] |
//! | self-describing bytes | [`pattern`] |
//! | `check_dataset` for one sample | [`audit`] |
//! | aborts a test that hangs | [`watchdog`] |
//! | threads, files and memory before and after a test | [`leaks`] |
//! | heap allocations per thread | [`alloc`] |
//! | work in a forked child | [`fork`] |
//! | the GPU of a test | [`gpu`](mod@gpu) |
//! | tests that run beside no other | [`exclusive`](fn@exclusive) |
//! | tests in a process of their own | [`own_process`](fn@own_process) |
//! | the time of a thread, and whether other work takes the cores | [`cpu_time`], [`OtherWork`] |
//! | reports tests that did not run | [`not_run`](mod@not_run) |
//! | independent parts of a test at the same time | [`at_once`](fn@at_once) |
//! | makes every call fail in turn | [`nth`] |
//! | a device that does nothing | [`NullDevice`] |
//! | restores a pipeline at every step | [`restore`] |
//!
//! The checks are made for Linux: leak checks need `/proc`, and allocations per thread need thread names. On
//! other systems, [`leaks`] and [`alloc`] report that they did not run. Windows has no [`mod@fork`].

pub mod alloc;
mod at_once;
pub mod audit;
mod busy;
mod exclusive;
pub mod fixtures;
#[cfg(unix)]
pub mod fork;
pub mod gpu;
pub mod leaks;
pub mod not_run;
pub mod nth;
mod null_device;
mod own_process;
pub mod pattern;
pub mod restore;
pub mod watchdog;

pub use at_once::{AT_ONCE, at_once};
pub use busy::{OtherWork, cpu_time};
pub use exclusive::{Exclusive, exclusive};
pub use gpu::gpu;
pub use leaks::Census;
pub use not_run::{emulated, not_run, time_limit};
pub use null_device::NullDevice;
pub use own_process::own_process;
pub use watchdog::{Watchdog, with_watchdog};
