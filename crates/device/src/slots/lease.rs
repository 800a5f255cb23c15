//! The leases: the rights to write a slot, to read it, and to submit it to the device.
//!
//! Each transition takes the lease by value, so a slot cannot be written after `ready` or submitted twice.
//! The state of a slot, an atomic number, is a second check: a transition from an unexpected state fails. So
//! a bug becomes an error and never leads to two owners.

use std::marker::PhantomData;

use feedline_core::Result;

use crate::slots::memory::HostMemory;
use crate::slots::ring::{Shared, Slot};
use crate::slots::sync::Arc;

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// In the free list, with no copy in flight.
    Free = 0,
    /// Held by a [`FillLease`](crate::slots::FillLease).
    Filling = 1,
    /// Held by a [`ReadyLease`](crate::slots::ReadyLease).
    Ready = 2,
    /// In the free list, while the copy that reads it may still run.
    InFlight = 3,
    /// Never used again, because a copy may still read it.
    Lost = 4,
}

impl State {
    /// The state that is stored as `word`.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Free,
            1 => Self::Filling,
            2 => Self::Ready,
            3 => Self::InFlight,
            _ => Self::Lost,
        }
    }
}

/// The right to write a slot. Dropping it releases the slot.
pub struct FillLease<M: HostMemory, T = ()> {
    shared: Arc<Shared<M, T>>,
    index: usize,
    /// The state of the slot. In a [`FillLease`] it is Filling, or before that the state in which the slot
    /// was taken off the free list. In a [`ReadyLease`] it is Ready or InFlight.
    state: State,
    /// Whether this value is still the only lease of the slot.
    armed: bool,
    /// Makes the lease `Sync` only if `T` is `Sync`, because `info` returns a `&T`.
    info: PhantomData<T>,
}

/// The right to read a filled slot, and to submit it once. Dropping it releases the slot.
pub struct ReadyLease<M: HostMemory, T = ()> {
    lease: FillLease<M, T>,
}

impl<M: HostMemory, T> FillLease<M, T> {
    /// The lease of a slot that was taken off the free list in `state`.
    pub(crate) fn new(shared: Arc<Shared<M, T>>, index: usize, state: State) -> Self {
        Self { shared, index, state, armed: true, info: PhantomData }
    }

    /// All bytes of the slot. They still contain the bytes of the previous batch.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.parts_mut().0
    }

    /// The info that travels with the bytes.
    pub fn info(&self) -> &T {
        // SAFETY: only the slot's one lease accesses the info (`Slot::advance`), and `self` is that lease.
        unsafe { &*self.slot().info.get() }
    }

    /// The info that travels with the bytes, for writing.
    pub fn info_mut(&mut self) -> &mut T {
        // SAFETY: only the slot's one lease accesses the info (`Slot::advance`); `self` is that lease,
        // mutably borrowed.
        unsafe { &mut *self.slot().info.get() }
    }

    /// The bytes and the info, borrowed together.
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut T) {
        let slot = self.slot();
        let memory = &*slot.memory;
        // SAFETY: the slot is Filling and this is its one lease (`Slot::advance`), mutably borrowed; the
        // memory is valid for `len` bytes (`HostMemory`), and no copy reads it: `Ring::claim` waited for the
        // last copy.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
        // SAFETY: as above: only the slot's one lease accesses the info.
        let info = unsafe { &mut *slot.info.get() };
        (bytes, info)
    }

    /// The slot's memory.
    pub fn memory(&self) -> &M {
        &self.slot().memory
    }

    /// The slot's index in its ring.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Ends the writing. The slot can then be read and submitted, but not written any more.
    pub fn ready(mut self) -> ReadyLease<M, T> {
        let moved = self.advance(State::Ready);
        debug_assert!(moved, "slot {} was not Filling", self.index);
        ReadyLease { lease: self }
    }

    fn slot(&self) -> &Slot<M, T> {
        &self.shared.slots[self.index]
    }

    /// Moves the slot to state `to`. Returns false, and disarms the lease, when the slot is not in the
    /// lease's state.
    pub(crate) fn advance(&mut self, to: State) -> bool {
        self.armed &= self.slot().advance(self.state, to);
        self.state = to;
        self.armed
    }

    /// Releases the slot in its present state and ends the lease.
    fn release(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.release(self.index);
        }
    }
}

/// Releases the slot, or marks it Lost when a copy may read it.
impl<M: HostMemory, T> Drop for FillLease<M, T> {
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

impl<M: HostMemory, T> ReadyLease<M, T> {
    /// All bytes of the slot.
    pub fn bytes(&self) -> &[u8] {
        let memory = self.memory();
        // SAFETY: the slot is Ready and this is its one lease, so nothing writes it; the memory is valid for
        // `len` bytes (`HostMemory`).
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) }
    }

    /// The info that travels with the bytes.
    pub fn info(&self) -> &T {
        self.lease.info()
    }

    /// The info that travels with the bytes, for writing.
    pub fn info_mut(&mut self) -> &mut T {
        self.lease.info_mut()
    }

    /// The slot's memory.
    pub fn memory(&self) -> &M {
        self.lease.memory()
    }

    /// The slot's index in its ring.
    pub fn index(&self) -> usize {
        self.lease.index
    }

    /// Calls `copy` to start a copy out of the slot, then releases the slot. It is acquired again only after
    /// [`HostMemory::wait_landed`].
    ///
    /// If `copy` fails or panics, the device may or may not read the bytes, so the slot is lost.
    ///
    /// # Errors
    /// The error of `copy`.
    pub fn submit<R>(self, copy: impl FnOnce(&M, &T) -> Result<R>) -> Result<R> {
        let Self { mut lease } = self;
        // The state changes before the copy starts, because a panic in `copy` must not release a slot that
        // the device may read.
        let moved = lease.advance(State::InFlight);
        debug_assert!(moved, "slot {} was not Ready", lease.index);
        let result = copy(lease.memory(), lease.info());
        if result.is_ok() {
            lease.release();
        }
        result
    }
}

impl<M: HostMemory, T> std::fmt::Debug for FillLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FillLease(slot {})", self.index)
    }
}

impl<M: HostMemory, T> std::fmt::Debug for ReadyLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadyLease(slot {})", self.index())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::slots::{HeapMemory, Ring};

    const ALL: [State; 5] = [State::Free, State::Filling, State::Ready, State::InFlight, State::Lost];

    #[test]
    fn a_transition_from_an_unexpected_state_changes_nothing() {
        let ring = Ring::<_, ()>::new(vec![HeapMemory::new(1).expect("a byte")]);
        let slot = &ring.shared.slots[0];
        for from in ALL {
            assert!(slot.advance(slot.state(), from));
            for expected in ALL.into_iter().filter(|&expected| expected != from) {
                assert!(!slot.advance(expected, State::Free), "{from:?} is not {expected:?}");
                assert_eq!(slot.state(), from);
            }
        }
    }
}
