//! The ring: a fixed set of slots, reused first in, first out.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use feedline_core::{Error, ErrorKind, Result};

use crate::backoff::{Backoff, Version};
use crate::memory::HostMemory;
use crate::state::{State, Word};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock};

pub(crate) struct Slot<M, T> {
    pub(crate) word: Word,
    pub(crate) memory: ManuallyDrop<M>,
    /// The note that travels with the bytes; accessed only by the holder of the slot's lease.
    pub(crate) note: UnsafeCell<T>,
}

// SAFETY: `note` is accessed only through a lease, and a slot has one lease at a time (the word, `state.rs`).
unsafe impl<M: HostMemory, T: Send> Sync for Slot<M, T> {}

pub(crate) struct FreeList {
    /// Slots to acquire, Free or InFlight, in the order of their release.
    pub(crate) queue: VecDeque<usize>,
    /// Number of slots that are Lost.
    lost: usize,
    closed: bool,
    /// Threads asleep on `released`: a notification costs a system call even when there are none.
    pub(crate) sleepers: usize,
}

pub(crate) struct Shared<M: HostMemory, T> {
    pub(crate) slots: Box<[Slot<M, T>]>,
    pub(crate) free_list: Mutex<FreeList>,
    pub(crate) released: Condvar,
    /// Counts the changes that `released` announces.
    pub(crate) version: Version,
    /// For waits for a slot.
    pub(crate) slot_waits: Backoff,
    /// For waits for a slot's copy.
    pub(crate) copy_waits: Backoff,
}

/// How many slots are in each state; the sum is the number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Released, with no copy in flight.
    pub free: usize,
    /// Being filled.
    pub filling: usize,
    /// Filled, not yet submitted.
    pub ready: usize,
    /// Submitted to a copy that has not been seen to end.
    pub in_flight: usize,
    /// Out of use after a device failure.
    pub lost: usize,
}

/// A fixed set of slots of host memory `M`, each with a note `T` that travels with its bytes.
///
/// Allocated once, never grown. Clones share the slots.
///
/// ```
/// use feedline_slots::{HeapMemory, Ring};
/// let memory = vec![HeapMemory::new(64)?, HeapMemory::new(64)?];
/// let ring: Ring<HeapMemory, u64> = Ring::new(memory);
/// let mut lease = ring.acquire()?;
/// lease.bytes_mut()[0] = 7;
/// *lease.note_mut() = 42;
/// let ready = lease.ready();
/// assert_eq!((ready.bytes()[0], *ready.note()), (7, 42));
/// assert_eq!(ring.counts().ready, 1);
/// drop(ready);
/// assert_eq!(ring.counts().free, 2);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Ring<M: HostMemory, T = ()> {
    pub(crate) shared: Arc<Shared<M, T>>,
}

impl<M: HostMemory, T: Default> Ring<M, T> {
    /// A ring of one slot for each block of `memory`.
    pub fn new(memory: Vec<M>) -> Self {
        let slots: Box<[_]> = memory
            .into_iter()
            .map(|memory| Slot {
                word: Word::new(),
                memory: ManuallyDrop::new(memory),
                note: UnsafeCell::new(T::default()),
            })
            .collect();
        let free_list =
            Mutex::new(FreeList { queue: (0..slots.len()).collect(), lost: 0, closed: false, sleepers: 0 });
        let (slot_waits, copy_waits) = (Backoff::new(), Backoff::new());
        let (released, version) = (Condvar::new(), Version::default());
        Self { shared: Arc::new(Shared { slots, free_list, released, version, slot_waits, copy_waits }) }
    }
}

impl<M: HostMemory, T> Ring<M, T> {
    /// Closes the ring: every current and later wait for a slot ends with `Stopped`. Existing leases stay
    /// valid. Closing twice has no effect.
    pub fn close(&self) {
        let mut free_list = lock(&self.shared.free_list);
        free_list.closed = true;
        self.shared.version.bump();
        drop(free_list);
        #[cfg(not(planted = "close_no_notify"))]
        self.shared.released.notify_all();
    }

    /// How many slots are in each state. A snapshot; exact only while no lease changes state.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for slot in &self.shared.slots {
            match slot.word.state() {
                State::Free => counts.free += 1,
                State::Filling => counts.filling += 1,
                State::Ready => counts.ready += 1,
                State::InFlight => counts.in_flight += 1,
                State::Lost => counts.lost += 1,
            }
        }
        counts
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.shared.slots.len()
    }

    /// Whether the ring has no slots. Every acquire from such a ring fails.
    pub fn is_empty(&self) -> bool {
        self.shared.slots.is_empty()
    }
}

impl<M: HostMemory, T> Shared<M, T> {
    /// Appends a slot to the free list in its present state, and wakes every waiting thread.
    ///
    /// Waking one is not enough: it could be a thread with a time limit that times out on the slot's running
    /// copy, and the other threads would sleep on.
    pub(crate) fn release(&self, index: usize) {
        let mut free_list = lock(&self.free_list);
        free_list.queue.push_back(index);
        #[cfg(planted = "double_release")]
        free_list.queue.push_back(index);
        self.wake(free_list);
    }

    /// Counts a lost slot, and wakes every waiting thread: it may have been the last slot.
    pub(crate) fn lose(&self) {
        let mut free_list = lock(&self.free_list);
        free_list.lost += 1;
        self.wake(free_list);
    }

    /// Unlocks the free list and wakes every sleeping thread.
    fn wake(&self, free_list: MutexGuard<'_, FreeList>) {
        self.version.bump();
        let asleep = free_list.sleepers > 0;
        drop(free_list);
        if asleep {
            self.released.notify_all();
        }
    }

    /// Fails when no slot can become available any more.
    pub(crate) fn check_open(&self, free_list: &FreeList) -> Result<()> {
        if free_list.closed {
            return Err(Error::new(ErrorKind::Stopped, "the ring of host slots is closed"));
        }
        let total = self.slots.len();
        if free_list.lost == total {
            let message = format!("no slot is left: {total} of {total} were lost to device failures");
            return Err(Error::new(ErrorKind::Device, message));
        }
        Ok(())
    }
}

impl<M: HostMemory, T> Drop for Shared<M, T> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // A copy may still read an InFlight or Lost slot: wait for it, and leak the memory if that fails.
            let drained = match slot.word.state() {
                State::InFlight | State::Lost => slot.memory.wait_drained(),
                State::Free | State::Filling | State::Ready => Ok(()),
            };
            // SAFETY: taken once, in this drop; no lease exists any more, because each holds an Arc of this
            // value.
            let memory = unsafe { ManuallyDrop::take(&mut slot.memory) };
            match drained {
                Ok(()) => drop(memory),
                Err(error) => memory.leak(error),
            }
        }
    }
}

impl<M: HostMemory, T> Clone for Ring<M, T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<M: HostMemory, T> std::fmt::Debug for Ring<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("counts", &self.counts()).finish()
    }
}
