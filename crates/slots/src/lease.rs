//! The leases: the rights to write a slot, to read it, and to submit it to the device.
//!
//! Each transition takes the lease by value, so a slot cannot be written after `ready` or submitted twice.

use std::marker::PhantomData;

use feedline_core::Result;

use crate::memory::HostMemory;
use crate::ring::Shared;
use crate::state::State;
use crate::sync::Arc;

/// The right to write a slot. Dropping it releases the slot.
pub struct FillLease<M: HostMemory, T = ()> {
    hold: Hold<M, T>,
    /// Makes the lease `Sync` only when `T` is: `note` returns a `&T`.
    note: PhantomData<T>,
}

/// The right to read a filled slot, and to submit it once. Dropping it releases the slot.
pub struct ReadyLease<M: HostMemory, T = ()> {
    hold: Hold<M, T>,
    /// Makes the lease `Sync` only when `T` is: `note` returns a `&T`.
    note: PhantomData<T>,
}

impl<M: HostMemory, T> FillLease<M, T> {
    /// The slot of `hold` must be Filling.
    pub(crate) fn new(hold: Hold<M, T>) -> Self {
        Self { hold, note: PhantomData }
    }

    /// All bytes of the slot. They still contain what the previous batch wrote.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.parts_mut().0
    }

    /// The note that travels with the bytes.
    pub fn note(&self) -> &T {
        // SAFETY: only the slot's one lease accesses the note (`state.rs`), and `self` is that lease.
        unsafe { &*self.hold.shared.slots[self.hold.index].note.get() }
    }

    /// The note that travels with the bytes, for writing.
    pub fn note_mut(&mut self) -> &mut T {
        self.parts_mut().1
    }

    /// The bytes and the note, borrowed together.
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut T) {
        let slot = &self.hold.shared.slots[self.hold.index];
        let memory = &*slot.memory;
        // SAFETY: the slot is Filling and this is its one lease (`state.rs`), mutably borrowed; the memory is
        // valid for `len` bytes (`HostMemory`), and no copy reads it: `Ring::claim` waited for the last copy.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
        // SAFETY: as above: only the slot's one lease accesses the note.
        let note = unsafe { &mut *slot.note.get() };
        (bytes, note)
    }

    /// The slot's memory.
    pub fn memory(&self) -> &M {
        &self.hold.shared.slots[self.hold.index].memory
    }

    /// The slot's index in its ring.
    pub fn index(&self) -> usize {
        self.hold.index
    }

    /// Ends the writing: the slot can be read and submitted, but not written any more.
    pub fn ready(self) -> ReadyLease<M, T> {
        let mut hold = self.hold;
        let moved = hold.advance(State::Ready);
        debug_assert!(moved, "slot {} was not Filling", hold.index);
        ReadyLease { hold, note: PhantomData }
    }
}

impl<M: HostMemory, T> ReadyLease<M, T> {
    /// All bytes of the slot.
    pub fn bytes(&self) -> &[u8] {
        let memory = self.memory();
        // SAFETY: the slot is Ready and this is its one lease, so nothing writes it; the memory is valid for
        // `len` bytes (`HostMemory`).
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) }
    }

    /// The note that travels with the bytes.
    pub fn note(&self) -> &T {
        // SAFETY: only the slot's one lease accesses the note (`state.rs`), and `self` is that lease.
        unsafe { &*self.hold.shared.slots[self.hold.index].note.get() }
    }

    /// The note that travels with the bytes, for writing.
    pub fn note_mut(&mut self) -> &mut T {
        // SAFETY: only the slot's one lease accesses the note (`state.rs`); `self` is that lease, mutably
        // borrowed.
        unsafe { &mut *self.hold.shared.slots[self.hold.index].note.get() }
    }

    /// The slot's memory.
    pub fn memory(&self) -> &M {
        &self.hold.shared.slots[self.hold.index].memory
    }

    /// The slot's index in its ring.
    pub fn index(&self) -> usize {
        self.hold.index
    }

    /// Calls `copy` to start a copy out of the slot, then releases the slot. It is acquired again only after
    /// [`HostMemory::wait_landed`].
    ///
    /// If `copy` fails or panics, the device may or may not read the bytes, so the slot is lost.
    ///
    /// # Errors
    /// The error of `copy`.
    pub fn submit<R>(self, copy: impl FnOnce(&M, &T) -> Result<R>) -> Result<R> {
        let mut hold = self.hold;
        // Before the copy starts: a panic in `copy` must not release a slot that the device may read.
        let moved = hold.advance(State::InFlight);
        debug_assert!(moved, "slot {} was not Ready", hold.index);
        let slot = &hold.shared.slots[hold.index];
        // SAFETY: this is still the slot's one lease (`state.rs`), and the reference does not outlive this
        // call.
        let note = unsafe { &*slot.note.get() };
        let result = copy(&slot.memory, note);
        if result.is_ok() {
            hold.release();
        }
        result
    }
}

/// A lease's hold on a slot in `state`. Dropping it releases the slot, or marks it Lost when a copy may read
/// it.
pub(crate) struct Hold<M: HostMemory, T> {
    shared: Arc<Shared<M, T>>,
    index: usize,
    state: State,
    /// Whether this is still the only hold on the slot.
    armed: bool,
}

impl<M: HostMemory, T> Hold<M, T> {
    pub(crate) fn new(shared: Arc<Shared<M, T>>, index: usize, state: State) -> Self {
        Self { shared, index, state, armed: true }
    }

    /// Version the slot to `to`. Returns false, and disarms the hold, when the slot is not in the hold's
    /// state.
    pub(crate) fn advance(&mut self, to: State) -> bool {
        self.armed &= self.shared.slots[self.index].word.advance(self.state, to);
        self.state = to;
        self.armed
    }

    /// Releases the slot in its present state and ends the hold.
    fn release(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.release(self.index);
        }
    }
}

impl<M: HostMemory, T> Drop for Hold<M, T> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if self.state == State::InFlight {
            if self.advance(State::Lost) {
                self.shared.lose();
            }
        } else if self.advance(State::Free) {
            self.release();
        }
    }
}

impl<M: HostMemory, T> std::fmt::Debug for FillLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FillLease(slot {})", self.hold.index)
    }
}

impl<M: HostMemory, T> std::fmt::Debug for ReadyLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadyLease(slot {})", self.hold.index)
    }
}
