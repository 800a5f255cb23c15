//! The trait that a device implements, and the host backend.
//!
//! | part | file |
//! | --- | --- |
//! | [`Backend`]: the calls | `backend.rs` |
//! | handles, addresses and other plain values | `types.rs` |
//! | host code to run on a stream | `task.rs` |
//! | a kernel launch | `launch.rs` |
//! | gathers of host memory rows | `gather.rs` |
//! | the source line of a call | `call_site.rs` |
//! | [`Synchronous`]: waits for the work of each call | `synchronous.rs` |
//! | [`host`]: a backend whose streams are threads and whose device memory is host memory | `host/` |
//!
//! CUDA (`feedline-cuda`) and the simulator (`feedline-sim`) implement the same trait in their own
//! crates. Programs use `feedline-device`, which is built on top of the trait. Use this crate to write a
//! backend, or to make a call that the safe interface lacks.

mod backend;
mod call_site;
mod gather;
pub mod host;
mod launch;
mod synchronous;
mod task;
mod types;

pub use backend::Backend;
pub use call_site::CallSite;
pub use gather::{Gather, GatherField, MAX_LAUNCH_IDS, fits_launch};
pub use launch::{Grid, Launch};
pub use synchronous::Synchronous;
pub use task::{MAX_SPANS, Memory, Span, Task, TypedSpan};
pub use types::{Access, Address, BackendKind, EventId, GraphId, KernelId, Priority, StreamId};
