//! The calls that a device must offer, and the host as one such device.
//!
//! | part | file |
//! | --- | --- |
//! | [`Backend`]: the calls | `backend.rs` |
//! | handles, addresses and other plain values | `types.rs` |
//! | host code to run on a stream | `task.rs` |
//! | a kernel launch | `launch.rs` |
//! | rows gathered from host memory | `gather.rs` |
//! | [`host`]: streams are threads, device memory is host memory | `host/` |
//!
//! CUDA (`feedline-cuda`) and the simulator (`feedline-sim`) implement the same trait in crates of their own. Programs
//! use `feedline-device`, which is written on top of the trait; this crate is for those who write a backend, or make a
//! call that the safe interface lacks.

mod backend;
mod gather;
pub mod host;
mod launch;
mod task;
mod types;

pub use backend::Backend;
pub use gather::{Gather, GatherField};
pub use launch::{Grid, Launch};
pub use task::{MAX_SPANS, Memory, Span, Task, TypedSpan};
pub use types::{Access, Address, BackendKind, EventId, GraphId, KernelId, Priority, StreamId};
