//! The ring of device slots, and the leases that control who may write or read a slot.
//!
//! ```text
//!           acquire              upload             wait_on(stream)
//!   free ------------> WriteLease ------> Loaded ------------------> Reader, also_on(stream) -> Reader ...
//!    ^                     |                |                           |
//!    +---------------------+---- dropped ---+-- last reader dropped ----+
//! ```
//!
//! `gather` fills a slot instead of `upload`, with rows that the device reads itself
//! ([`StridedColumns`](crate::zero_copy::StridedColumns)), and `produce` by any work of a stream. All of them
//! order their work in the same way.
//!
//! Two waits protect a slot. `upload` makes the copy stream wait for the `consumed` event of *every*
//! reader before it overwrites the slot; `wait_on` makes the reader's stream wait for `copied`. A slot is
//! released only when every reader has recorded its `consumed` event, since waiting for an event that is
//! not recorded yet would return at once. If the batch was dropped unread, the next writer waits for `copied`
//! in place of the readers: a ring may have several writers ([`SlotRing::set_writers`]).
//!
//! `mem::forget` of a lease loses its slot for the life of the ring and leaks the memory; nothing is ever
//! aliased.

mod lease;
mod produce;
mod ring;

pub use lease::{Loaded, Reader, WriteLease};
pub use produce::{PinnedSlot, SlotMut};
pub(crate) use ring::SlotRef;
pub use ring::{Held, MAX_READERS, MAX_SLOTS, SlotRing};
