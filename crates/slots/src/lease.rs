//! The leases: the rights to write a slot, to read it, and to submit it to the device.
//!
//! Each transition takes the lease by value, so a slot cannot be written after `ready` or submitted twice.
//! The state of a slot and its generation, in one atomic word, are a second check: a transition from an
//! unexpected state fails, so a bug shows as an error and never as two owners.

use std::marker::PhantomData;

use feedline_core::Result;

use crate::memory::HostMemory;
use crate::ring::Shared;
use crate::sync::{Arc, AtomicU32, Ordering};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// In the free list, with no copy in flight.
    Free = 0,
    /// Held by a [`FillLease`](crate::FillLease).
    Filling = 1,
    /// Held by a [`ReadyLease`](crate::ReadyLease).
    Ready = 2,
    /// In the free list, while the copy that reads it may still run.
    InFlight = 3,
    /// Out of use: it is unknown whether a copy still reads it.
    Lost = 4,
}

const STATE_BITS: u32 = 3;

impl State {
    fn of(word: u32) -> Self {
        match word & ((1 << STATE_BITS) - 1) {
            0 => Self::Free,
            1 => Self::Filling,
            2 => Self::Ready,
            3 => Self::InFlight,
            _ => Self::Lost,
        }
    }
}

/// A state, and the number of times the slot was acquired.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(State::Free as u32))
    }

    /// The present state; only a hint while another thread may change it.
    pub(crate) fn state(&self) -> State {
        State::of(self.0.load(Ordering::Acquire))
    }

    /// Changes the state from `from` to `to`; a transition to `Filling` starts a new generation.
    ///
    /// Returns false, and changes nothing, when the state is not `from`. Acquire and release ordering: the
    /// next holder of the slot sees every write of the previous one.
    pub(crate) fn advance(&self, from: State, to: State) -> bool {
        let word = self.0.load(Ordering::Acquire);
        if State::of(word) != from {
            return false;
        }
        let generation = word >> STATE_BITS;
        let generation = if to == State::Filling { generation.wrapping_add(1) } else { generation };
        let next = generation << STATE_BITS | to as u32;
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The right to write a slot. Dropping it releases the slot.
pub struct FillLease<M: HostMemory, T = ()> {
    hold: Hold<M, T>,
    /// Makes the lease `Sync` only when `T` is: `info` returns a `&T`.
    info: PhantomData<T>,
}

/// The right to read a filled slot, and to submit it once. Dropping it releases the slot.
pub struct ReadyLease<M: HostMemory, T = ()> {
    hold: Hold<M, T>,
    /// Makes the lease `Sync` only when `T` is: `info` returns a `&T`.
    info: PhantomData<T>,
}

impl<M: HostMemory, T> FillLease<M, T> {
    /// The slot of `hold` must be Filling.
    pub(crate) fn new(hold: Hold<M, T>) -> Self {
        Self { hold, info: PhantomData }
    }

    /// All bytes of the slot. They still contain the bytes of the previous batch.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.parts_mut().0
    }

    /// The info that travels with the bytes.
    pub fn info(&self) -> &T {
        // SAFETY: only the slot's one lease accesses the info (`Word`), and `self` is that lease.
        unsafe { &*self.hold.shared.slots[self.hold.index].info.get() }
    }

    /// The info that travels with the bytes, for writing.
    pub fn info_mut(&mut self) -> &mut T {
        self.parts_mut().1
    }

    /// The bytes and the info, borrowed together.
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut T) {
        let slot = &self.hold.shared.slots[self.hold.index];
        let memory = &*slot.memory;
        // SAFETY: the slot is Filling and this is its one lease (`Word`), mutably borrowed; the memory is
        // valid for `len` bytes (`HostMemory`), and no copy reads it: `Ring::claim` waited for the last copy.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
        // SAFETY: as above: only the slot's one lease accesses the info.
        let info = unsafe { &mut *slot.info.get() };
        (bytes, info)
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
        ReadyLease { hold, info: PhantomData }
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
        // SAFETY: only the slot's one lease accesses the info (`Word`), and `self` is that lease.
        unsafe { &*self.hold.shared.slots[self.hold.index].info.get() }
    }

    /// The info that travels with the bytes, for writing.
    pub fn info_mut(&mut self) -> &mut T {
        // SAFETY: only the slot's one lease accesses the info (`Word`); `self` is that lease, mutably
        // borrowed.
        unsafe { &mut *self.hold.shared.slots[self.hold.index].info.get() }
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
        // SAFETY: this is still the slot's one lease (`Word`), and the reference does not outlive this
        // call.
        let info = unsafe { &*slot.info.get() };
        let result = copy(&slot.memory, info);
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

    /// Moves the slot to state `to`. Returns false, and disarms the hold, when the slot is not in the hold's
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: [State; 5] = [State::Free, State::Filling, State::Ready, State::InFlight, State::Lost];

    #[test]
    fn a_transition_from_an_unexpected_state_changes_nothing() {
        for from in ALL {
            for expected in ALL.into_iter().filter(|&expected| expected != from) {
                let word = Word(AtomicU32::new(from as u32));
                assert!(!word.advance(expected, State::Free), "{from:?} is not {expected:?}");
                assert_eq!(word.state(), from);
            }
        }
    }

    #[test]
    fn each_filling_starts_a_generation_and_the_counter_wraps() {
        let word = Word(AtomicU32::new(u32::MAX << STATE_BITS));
        assert!(word.advance(State::Free, State::Filling));
        assert_eq!((word.state(), word.0.load(Ordering::Acquire) >> STATE_BITS), (State::Filling, 0));
        for to in [State::Ready, State::InFlight, State::Filling] {
            assert!(word.advance(word.state(), to));
            assert_eq!(word.state(), to);
        }
        assert_eq!(word.0.load(Ordering::Acquire) >> STATE_BITS, 1);
    }
}
