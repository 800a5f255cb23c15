//! Zero-copy transfer: the device reads rows from the data set's own memory, and no worker copies them on
//! the host.
//!
//! It serves data sets whose fields are strided columns in host memory
//! ([`Storage::column`](feedline_core::Storage::column)), such as a mapped file. [`StridedColumns::new`]
//! registers that memory with the device once, which pins it. After that a batch is a list of sample ids:
//!
//! 1. [`GatherOrder::write`] writes the ids of the batch into a host slot, in gather order.
//! 2. [`WriteLease::gather`](crate::device_slots::WriteLease::gather) queues the work that fills a device
//!    slot, on the copy stream. As `upload` does, it first makes the stream wait for every reader
//!    of the slot's last batch.
//!    - Consecutive ids of densely packed rows use the copy engine, one copy per field.
//!    - All other ids use one kernel, which gathers the rows of all fields.
//! 3. The consumer gets the slot as after any other copy. The host slot is reused once the work has read
//!    the ids.
//!
//! | part | file |
//! | --- | --- |
//! | registered memory: pinned while the device may read it | `registered.rs` |
//! | the columns of a set, checked against the batch layout, and the work that fills a slot | `columns.rs` |
//! | resident memory: the columns of a set, copied to the device once | `resident.rs` |
//! | gather order: the order in which the rows of a batch are read | `gather_order.rs` |
//!
//! # Gather order
//!
//! A GPU reads host memory by pages and caches few of their addresses at a time. So rows of a large set
//! arrive faster when neighbouring rows are read one after the other. [`GatherOrder`] sorts the ids of a
//! batch into buckets, and stores the batch row of each id after the ids. Small sets and small batches keep
//! the order of the batch.
//!
//! # Resident
//!
//! [`StridedColumns::resident`] copies the set to the device instead of registering it. Every sample is read
//! once, by [`read_many`](feedline_core::Dataset::read_many), so the set needs no columns. After that a batch
//! is gathered as above, but from device memory. Only ids cross the bus.
//!
//! If the set exceeds its budget, only the first samples that fit are kept. After them is space for the rows
//! of one batch. One stream first copies the rows that workers have read into this space, and then gathers
//! all rows ([`Rest`]).
//!
//! # Soundness
//!
//! Every registration holds an `Arc` of the set, and nothing writes the set's bytes. One stream reads them,
//! and a registration waits for this stream before it ends. If the wait fails, the set is kept for the life
//! of the process. An id outside the set reads nothing, and its row is filled with zeros.
//!
//! # Limits
//!
//! The set is registered completely or not at all, within the budget of pinned memory. A field of
//! variable length would need two columns, offsets and values, and its own kind of entry in
//! [`StridedColumns`].

mod columns;
mod gather_order;
mod registered;
mod resident;
mod rest;

pub use columns::StridedColumns;
pub use gather_order::GatherOrder;
pub use rest::Rest;
