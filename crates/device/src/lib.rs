//! Devices, streams, events, buffers and slots: the safe layer over every backend.
//!
//! | CUDA term | here | file |
//! | --- | --- | --- |
//! | context | [`Device`] | `device.rs` |
//! | stream | [`Stream`] | `stream.rs` |
//! | event | [`Event`] | `event.rs` |
//! | pinned memory | [`Pinned`] | `pinned.rs` |
//! | registered host memory | [`zero_copy`] | `zero_copy/` |
//! | device memory | [`Buffer`], [`View`], [`ViewMut`] | `buffer.rs`, `view.rs` |
//! | (none) device slots and their leases | [`slot`] | `slot/` |
//! | graph | [`Graph`] | `graph.rs`, `capture.rs` |
//! | (none) memory that several streams use | [`SharedBuffer`] | `shared.rs` |
//! | (none) asynchronous results | [`Readback`] | `readback.rs` |
//! | (none) fork detection | [`forks`] | `process.rs` |
//! | kernels, cudarc streams | `cuda`, with the feature of that name | `cuda/` |
//!
//! The backends are separate crates: the trait and the host in `feedline-backend`, NVIDIA GPUs in
//! `feedline-cuda`, and a simulated device that finds missing waits in `feedline-sim`.
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

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod slot;
pub mod zero_copy;

pub use buffer::Buffer;
pub use device::{Device, backend, with_backend};
pub use event::Event;
pub use feedline_backend::{
    Access, Address, Backend, BackendKind, EventId, Gather, GatherField, GraphId, MAX_SPANS, Memory,
    Priority, Span, StreamId, Task, host,
};
pub use graph::{Graph, record_graph};
pub use pinned::Pinned;
pub use process::forks;
pub use readback::Readback;
pub use shared::SharedBuffer;
pub use stats::{DeviceStats, Gauge};
pub use stream::Stream;
pub use submit::{Submission, launch_host, submit};
pub use view::{Input, Output, View, ViewMut};
