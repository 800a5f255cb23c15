//! The leases: who may write a slot, who may read it, and how it gets to the device.
//!
//! Each move takes the lease by value, so a slot cannot be written after it is ready, nor submitted twice.

use std::marker::PhantomData;

use feedline_core::Result;

use crate::memory::HostMemory;
use crate::ring::Shared;
use crate::state::State;
use crate::sync::Arc;

/// The right to write a slot. Dropped, it sends the slot home.
pub struct FillLease<M: HostMemory, T = ()> {
    held: Held<M, T>,
    /// Shared between threads only when `T` may be: `note` gives out a `&T`.
    note: PhantomData<T>,
}

/// The right to read a filled slot, and to submit it once. Dropped, it sends the slot home.
pub struct ReadyLease<M: HostMemory, T = ()> {
    held: Held<M, T>,
    /// Shared between threads only when `T` may be: `note` gives out a `&T`.
    note: PhantomData<T>,
}

impl<M: HostMemory, T> FillLease<M, T> {
    /// `held` is of a slot that is Filling.
    pub(crate) fn new(held: Held<M, T>) -> Self {
        Self { held, note: PhantomData }
    }

    /// All bytes of the slot; what an earlier batch left is still in them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.parts_mut().0
    }

    /// What travels with the bytes.
    pub fn note(&self) -> &T {
        // SAFETY: the note belongs to the holder of the lease (`state.rs`).
        unsafe { &*self.held.shared.slots[self.held.index].note.get() }
    }

    /// What travels with the bytes, to change it.
    pub fn note_mut(&mut self) -> &mut T {
        self.parts_mut().1
    }

    /// The bytes and the note at once.
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut T) {
        let slot = &self.held.shared.slots[self.held.index];
        let memory = &*slot.memory;
        // SAFETY: the slot is Filling and this is its one lease (`state.rs`), borrowed mutably; the memory is valid
        // for `len` bytes (`HostMemory`), and no copy reads it: `Ring::claim` waited for the last one.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
        // SAFETY: as above: the note belongs to the holder of the lease.
        let note = unsafe { &mut *slot.note.get() };
        (bytes, note)
    }

    /// The memory the slot stands on.
    pub fn memory(&self) -> &M {
        &self.held.shared.slots[self.held.index].memory
    }

    /// The slot's number in its ring.
    pub fn index(&self) -> usize {
        self.held.index
    }

    /// Ends the writing.
    pub fn ready(self) -> ReadyLease<M, T> {
        let mut held = self.held;
        let moved = held.advance(State::Ready);
        debug_assert!(moved, "slot {} was not Filling", held.index);
        ReadyLease { held, note: PhantomData }
    }
}

impl<M: HostMemory, T> ReadyLease<M, T> {
    /// All bytes of the slot.
    pub fn bytes(&self) -> &[u8] {
        let memory = self.memory();
        // SAFETY: the slot is Ready and this is its one lease: nobody writes it; valid for `len` bytes (`HostMemory`).
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) }
    }

    /// What travels with the bytes.
    pub fn note(&self) -> &T {
        // SAFETY: the note belongs to the holder of the lease.
        unsafe { &*self.held.shared.slots[self.held.index].note.get() }
    }

    /// What travels with the bytes, to change or to take.
    pub fn note_mut(&mut self) -> &mut T {
        // SAFETY: the note belongs to the holder of the lease, borrowed mutably.
        unsafe { &mut *self.held.shared.slots[self.held.index].note.get() }
    }

    /// The memory the slot stands on.
    pub fn memory(&self) -> &M {
        &self.held.shared.slots[self.held.index].memory
    }

    /// The slot's number in its ring.
    pub fn index(&self) -> usize {
        self.held.index
    }

    /// Starts a copy out of the slot by `copy`, and sends the slot home: it is handed out again only after
    /// [`HostMemory::wait_landed`].
    ///
    /// When `copy` fails, nobody knows whether the device reads the bytes: the slot is taken out of use.
    ///
    /// # Errors
    /// What `copy` returned.
    pub fn submit<R>(self, copy: impl FnOnce(&M, &T) -> Result<R>) -> Result<R> {
        let mut held = self.held;
        // Before the copy starts: a panic in `copy` must not send a slot home that the device may read.
        let moved = held.advance(State::InFlight);
        debug_assert!(moved, "slot {} was not Ready", held.index);
        let slot = &held.shared.slots[held.index];
        // SAFETY: this is still the slot's one lease; the note is read within the call only.
        let note = unsafe { &*slot.note.get() };
        let result = copy(&slot.memory, note);
        if result.is_ok() {
            held.go_home();
        }
        result
    }
}

/// One lease's hold on a slot in `state`. Dropped, it sends the slot home, or out of use when a copy may read it.
pub(crate) struct Held<M: HostMemory, T> {
    shared: Arc<Shared<M, T>>,
    index: usize,
    state: State,
    /// Whether this is still the slot's one hold.
    armed: bool,
}

impl<M: HostMemory, T> Held<M, T> {
    pub(crate) fn new(shared: Arc<Shared<M, T>>, index: usize, state: State) -> Self {
        Self { shared, index, state, armed: true }
    }

    /// Moves the slot on; refused when the slot is not in this hold's state: then the slot is another's.
    pub(crate) fn advance(&mut self, to: State) -> bool {
        self.armed &= self.shared.slots[self.index].word.advance(self.state, to);
        self.state = to;
        self.armed
    }

    /// Puts the slot in line in the state it is in, and ends the hold.
    fn go_home(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.come_home(self.index);
        }
    }
}

impl<M: HostMemory, T> Drop for Held<M, T> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if self.state == State::InFlight {
            if self.advance(State::Lost) {
                self.shared.lose();
            }
        } else if self.advance(State::Free) {
            self.go_home();
        }
    }
}

impl<M: HostMemory, T> std::fmt::Debug for FillLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FillLease(slot {})", self.held.index)
    }
}

impl<M: HostMemory, T> std::fmt::Debug for ReadyLease<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadyLease(slot {})", self.held.index)
    }
}
