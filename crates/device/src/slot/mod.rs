//! The ring of device slots, and the leases that say who may write or read one.
//!
//! ```text
//!            acquire             upload                 wait_on(stream)
//!   free ───────────▶ WriteLease ──────▶ Loaded ───────────────────────▶ Reader, also_on(stream) ─▶ Reader ...
//!    ▲                    │                 │                               │
//!    └────────────────────┴───── dropped ───┴── last reader dropped ────────┘
//! ```
//!
//! `gather` fills a slot in place of `upload`, with rows that the device reads itself ([`StridedColumns`](crate::zero_copy::StridedColumns)). Both order the work alike.
//!
//! Two waits keep a slot whole. `upload` makes the copy stream wait for the `consumed` event of *every* reader before
//! it overwrites; `wait_on` makes the reader's stream wait for `copied`. A slot comes home only when every reader has
//! recorded its `consumed`: waiting for an event that is not recorded yet would pass at once.
//!
//! `mem::forget` of a lease costs its slot for the life of the ring, and leaks the memory; nothing is ever aliased.

mod lease;
mod line;
mod ring;

pub use lease::{Loaded, Reader, WriteLease};
pub(crate) use ring::SlotRef;
pub use ring::{MAX_READERS, MAX_SLOTS, SlotRing};
