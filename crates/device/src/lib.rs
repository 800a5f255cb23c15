//! Device, stream and event, the same over every backend.
//!
//! | CUDA's word | here | file |
//! | --- | --- | --- |
//! | context | [`Device`] | `device.rs` |
//! | stream | [`Stream`] | `stream.rs` |
//! | event | [`Event`] | `event.rs` |
//! | page-locked memory | [`Pinned`] | `pinned.rs` |
//! | registered host memory | [`zero_copy`] | `zero_copy/` |
//! | device memory | [`Buffer`], [`View`], [`ViewMut`] | `buffer.rs`, `view.rs` |
//! | a slot of the device ring and its leases | [`slot`] | `slot/` |
//! | graph | [`Graph`] | `graph.rs`, `capture.rs` |
//! | results on their way back | [`Readback`] | `readback.rs` |
//! | none: whether the process was forked | [`forks`] | `process.rs` |
//! | a kernel, a cudarc stream | `cuda`, with the feature of that name | `cuda/` |
//!
//! The backends stand in crates of their own: the trait and the host in `feedline-backend`, an NVIDIA GPU in
//! `feedline-cuda`, a simulated device that finds missing waits in `feedline-sim`.
#![deny(unsafe_op_in_unsafe_fn)]

mod buffer;
mod capture;
mod device;
mod device_core;
mod event;
mod graph;
mod mark;
mod pinned;
mod process;
mod readback;
mod stats;
mod stream;
mod submit;
mod view;

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod slot;
pub mod zero_copy;

pub use buffer::Buffer;
pub use device::Device;
pub use event::Event;
pub use feedline_backend::{
    Access, Address, Backend, BackendKind, EventId, Gather, GatherField, GraphId, MAX_SPANS, Memory,
    Priority, Span, StreamId, Task, host,
};
pub use graph::Graph;
pub use pinned::Pinned;
pub use process::forks;
pub use readback::Readback;
pub use stats::{DeviceStats, Gauge};
pub use stream::Stream;
pub use submit::Submission;
pub use view::{Input, Output, View, ViewMut};
