//! Reusable host buffers (slots) in a fixed ring, and the leases that grant access to them.
//!
//! Each arrow is one transition of a lease:
//!
//! ```text
//!        acquire           ready          submit            acquire, after the copy
//!   Free ------> Filling ------> Ready -------> InFlight ------> Filling
//!    ^              |              |
//!    +--------------+-- dropped ---+
//! ```
//!
//! | part | file |
//! | --- | --- |
//! | the memory of a slot | `memory.rs` |
//! | the ring: acquire, release, close, count | `ring.rs` |
//! | the states of a slot; the leases: fill, ready, submit | `lease.rs` |
//! | a slot that several workers fill together | `shared.rs` |
//! | copies of rows into a slot | `copy.rs` |
//! | a locked value that threads wait for (spin, then sleep); messages to one thread | `monitor.rs` |
//!
//! The README beside this file proves that no slot is lost, leased twice, or freed during a copy.

mod copy;
mod lease;
mod memory;
mod monitor;
mod ring;
mod shared;
mod sync;

pub use copy::{copy_rows, stream_rows};
pub use lease::{FillLease, ReadyLease};
pub use memory::{HeapMemory, HostMemory};
pub use monitor::{Backoff, Mailbox, Monitor, WAKE_UP, Wait};
pub use ring::{Counts, Ring};
pub use shared::{Claim, SharedFill};
