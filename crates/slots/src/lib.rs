//! Recycled host slots: a fixed ring of buffers, and the leases that say who may touch one.
//!
//! A slot's life is a circle, and every arrow is one move of a lease:
//!
//! ```text
//!          acquire              ready                submit
//!   Free ───────────▶ Filling ─────────▶ Ready ───────────────▶ InFlight
//!    ▲                   │                 │                        │
//!    └───────────────────┴── lease dropped ┘      acquire, after the copy has landed ──▶ Filling
//! ```
//!
//! | part | file |
//! | --- | --- |
//! | the states, as one atomic word a slot | `state.rs` |
//! | memory a slot can stand on | `memory.rs` |
//! | the ring: release, close, count | `ring.rs` |
//! | taking a slot from the ring | `acquire.rs` |
//! | the leases: fill, ready, submit | `lease.rs` |
//! | a slot that several workers fill at once | `shared.rs` |
//! | rows copied into a slot | `copy.rs` |
//! | a look before a sleep | `spin.rs` |
//!
//! The proof that no slot is lost, doubled or freed under a copy stands in the crate's README.
#![deny(unsafe_op_in_unsafe_fn)]

mod acquire;
mod copy;
mod lease;
mod memory;
mod ring;
mod shared;
mod spin;
mod state;
mod sync;

pub use copy::{copy_rows, stream_rows};
pub use lease::{FillLease, ReadyLease};
pub use memory::{HeapMemory, HostMemory};
pub use ring::{Counts, Ring};
pub use shared::{Claim, SharedFill};
pub use spin::{Moves, Spin, Wait};
