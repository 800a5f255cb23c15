//! Device, stream and event over CUDA, the host and a simulator.
//!
//! | CUDA's word | here | file |
//! | --- | --- | --- |
//! | context | [`Device`] | `device.rs` |
//! | stream | [`Stream`] | `stream.rs` |
//! | event | [`Event`] | `event.rs` |
//! | page-locked memory | [`Pinned`] | `pinned.rs` |
//! | registered host memory | [`slot::Tables`] | `registered.rs`, `gather.rs`, `slot/tables.rs` |
//! | device memory | [`Buffer`], [`View`], [`ViewMut`] | `buffer.rs`, `view.rs` |
//! | a slot of the device ring and its leases | [`slot`] | `slot/` |
//! | graph | [`Graph`] | `graph.rs`, `capture.rs` |
//! | results on their way back | [`Readback`] | `readback.rs` |
//! | none: a device in virtual time that finds missing waits | [`sim`] | `sim/` |
//! | none: whether the process was forked | [`forks`] | `process.rs` |
//! | the driver's calls | [`Driver`] | `driver.rs`; `cuda/`, `host/`, `sim/` implement it |
//! | faults, chaos and counts around a driver | [`wrap`] | `wrap/` |
#![deny(unsafe_op_in_unsafe_fn)]

mod buffer;
mod capture;
mod device;
mod driver;
mod event;
mod graph;
mod ledger;
mod mark;
mod pinned;
mod process;
mod readback;
mod registered;
mod stream;
mod task;
mod view;

#[cfg(feature = "cuda")]
pub mod cuda;
#[doc(hidden)]
pub mod floor;
pub mod gather;
pub mod host;
pub mod sim;
pub mod slot;
pub mod wrap;

pub use buffer::Buffer;
pub use device::Device;
pub use driver::{Access, Address, Driver, EventId, GraphId, Kind, Priority, StreamId};
pub use event::Event;
pub use gather::{Gather, GatherField};
pub use graph::Graph;
pub use ledger::{Gauge, Ledger};
pub use pinned::Pinned;
pub use process::forks;
pub use readback::Readback;
pub use stream::Stream;
pub use task::{MAX_SPANS, Memory, Span, Task, TypedSpan};
pub use view::{Input, Output, View, ViewMut};
