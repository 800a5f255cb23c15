//! The trait that a device implements, and the host backend.
//!
//! | part | file |
//! | --- | --- |
//! | [`Backend`]: the calls | `calls.rs` |
//! | handles, addresses and other plain values | `types.rs` |
//! | host code to run on a stream | `task.rs` |
//! | a kernel launch | `launch.rs` |
//! | gathers of host memory rows | `gather.rs` |
//! | the source line of a call | `call_site.rs` |
//! | [`Synchronous`]: waits for the work of each call | `synchronous.rs` |
//! | [`host`]: a backend whose streams are threads and whose device memory is host memory | `host/` |
//!
//! CUDA (`cuda::driver`) and the simulator (the crate `feedline-sim`) implement the same trait. Programs use
//! the safe layer at the top of this crate. Use this module to write a backend, or to make a call that the
//! safe layer lacks.

mod call_site;
mod calls;
mod gather;
pub mod host;
mod launch;
mod synchronous;
mod task;
mod types;

pub use call_site::CallSite;
pub use calls::Backend;
pub use gather::{Gather, GatherField, MAX_LAUNCH_IDS, fits_launch};
pub use launch::{Grid, Launch};
pub use synchronous::Synchronous;
pub use task::{MAX_SPANS, Memory, Span, Task, TypedSpan};
pub use types::{Access, Address, BackendKind, EventId, GraphId, KernelId, Priority, StreamId};
