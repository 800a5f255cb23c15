//! The ring of device slots, and the leases that control who may write or read a slot.
//!
//! ```text
//!           acquire              upload             wait_on(stream)
//!   free ------------> WriteLease ------> Loaded ------------------> Reader, also_on(stream) -> Reader ...
//!    ^                     |                |                           |
//!    +---------------------+---- dropped ---+-- last reader dropped ----+
//! ```
//!
//! `gather` and `produce` fill a slot instead of `upload`. `gather` fills it with rows that the device reads
//! itself ([`StridedColumns`](crate::zero_copy::StridedColumns)), and `produce` with any work of a stream.
//! All three order their work in the same way.
//!
//! Two waits protect a slot. `upload` makes the copy stream wait for the `consumed` event of *every* reader
//! before it overwrites the slot. `wait_on` makes the reader's stream wait for `copied`. A slot is released
//! only when every reader has recorded its `consumed` event, because a wait for an event that is not recorded
//! yet would return at once. If the batch was dropped unread, the next writer waits for `copied` instead of
//! the readers, because a ring may have several writers ([`SlotRing::set_writers`]).
//!
//! `mem::forget` of a lease leaks the slot's memory and makes the slot unusable for the life of the ring. It
//! never causes aliasing.

mod lease;
mod produce;
mod ring;

pub use lease::{Loaded, Reader, WriteLease};
pub use produce::{PinnedSlot, SlotMut};
pub(crate) use ring::SlotRef;
pub use ring::{Held, MAX_READERS, MAX_SLOTS, SlotRing};
