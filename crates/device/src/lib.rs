//! Host slots, the backends of devices, and the safe layer over them: devices, streams, events, buffers and
//! device slots.
//!
//! | CUDA term | here | file |
//! | --- | --- | --- |
//! | context | [`Device`] | `device.rs` |
//! | stream | [`Stream`] | `stream.rs` |
//! | event | [`Event`] | `event.rs` |
//! | pinned memory | [`Pinned`] | `pinned.rs` |
//! | registered host memory | [`zero_copy`] | `zero_copy/` |
//! | device memory | [`Buffer`], [`View`], [`ViewMut`] | `buffer.rs`, `view.rs` |
//! | (none) device slots and their leases | [`device_slots`] | `device_slots/` |
//! | graph | [`Graph`] | `graph.rs`, `capture.rs` |
//! | (none) memory that several streams use | [`SharedBuffer`] | `shared.rs` |
//! | (none) asynchronous results | [`Readback`] | `readback.rs` |
//! | (none) fork detection | [`forks`] | `process.rs` |
//! | kernels, cudarc streams | `cuda`, with the feature of that name | `cuda/` |
//! | (none) host slots and their leases | [`slots`] | `slots/` |
//! | the calls of a driver; the host as a device | [`mod@backend`] | `backend/` |
//! | the driver of a GPU | `cuda`, with the feature of that name | `cuda/driver/` |
//!
//! Each of `slots`, `backend`, `cuda::driver` and the safe layer imports only those before it
//! (`ci/layers.sh`). The crate `feedline-sim` is one more backend: a simulated device that finds missing
//! waits.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

mod buffer;
mod capture;
mod device;
mod device_core;
mod event;
mod graph;
mod pinned;
mod process;
mod readback;
mod shared;
mod stats;
mod stream;
mod submit;
mod view;

pub mod backend;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device_slots;
pub mod slots;
pub mod zero_copy;

pub use backend::{
    Access, Address, Backend, BackendKind, EventId, Gather, GatherField, GraphId, MAX_SPANS, Memory,
    Priority, Span, StreamId, Task, host,
};
pub use buffer::Buffer;
pub use device::{Device, backend, with_backend};
pub use event::Event;
pub use graph::{Graph, record_graph};
pub use pinned::Pinned;
pub use process::forks;
pub use readback::Readback;
pub use shared::SharedBuffer;
pub use stats::{DeviceStats, Gauge};
pub use stream::Stream;
pub use submit::{Submission, launch_host, submit};
pub use view::{Input, Output, View, ViewMut};
