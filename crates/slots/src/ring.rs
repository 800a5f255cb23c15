//! The ring: a fixed set of slots, handed out first in, first out.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use feedline_core::{Error, ErrorKind, Result};

use crate::memory::HostMemory;
use crate::spin::{Moves, Spin};
use crate::state::{State, Word};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock};

pub(crate) struct Slot<M, T> {
    pub(crate) word: Word,
    pub(crate) memory: ManuallyDrop<M>,
    /// What travels with the bytes; touched only by the holder of the slot's lease.
    pub(crate) note: UnsafeCell<T>,
}

// SAFETY: `note` is reached only through a lease, and the word gives a slot to one lease at a time (`state.rs`).
unsafe impl<M: HostMemory, T: Send> Sync for Slot<M, T> {}

pub(crate) struct Line {
    /// Slots that wait for a new filling, the one that came home first in front: Free or InFlight.
    pub(crate) waiting: VecDeque<usize>,
    /// Slots that never come home again.
    lost: usize,
    closed: bool,
    /// Threads that sleep until a slot comes home: to wake nobody costs a system call all the same.
    pub(crate) sleepers: usize,
}

pub(crate) struct Shared<M: HostMemory, T> {
    pub(crate) slots: Box<[Slot<M, T>]>,
    pub(crate) line: Mutex<Line>,
    pub(crate) home: Condvar,
    /// How often `home` was rung, or would have been.
    pub(crate) moves: Moves,
    /// The waits for a slot, and those for its copy.
    pub(crate) slot_waits: Spin,
    pub(crate) copy_waits: Spin,
}

/// How many slots are in each state; the sum is the number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// With nothing to wait for.
    pub free: usize,
    /// Being filled.
    pub filling: usize,
    /// Filled, not yet submitted.
    pub ready: usize,
    /// Read by a copy that was not yet seen to end.
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
/// let ring: Ring<HeapMemory, u64> = Ring::new((0..2).map(|_| HeapMemory::new(64)).collect::<Result<_, _>>()?);
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
        let line =
            Mutex::new(Line { waiting: (0..slots.len()).collect(), lost: 0, closed: false, sleepers: 0 });
        let (slot_waits, copy_waits) = (Spin::new(), Spin::new());
        let (home, moves) = (Condvar::new(), Moves::default());
        Self { shared: Arc::new(Shared { slots, line, home, moves, slot_waits, copy_waits }) }
    }
}

impl<M: HostMemory, T> Ring<M, T> {
    /// Ends every wait for a slot, now and later, with `Stopped`; leases already out stay valid. Calling it again
    /// does nothing.
    pub fn close(&self) {
        let mut line = lock(&self.shared.line);
        line.closed = true;
        self.shared.moves.count();
        drop(line);
        #[cfg(not(planted = "close_no_notify"))]
        self.shared.home.notify_all();
    }

    /// How many slots are in each state. A snapshot: exact while nobody moves a lease.
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

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.shared.slots.len()
    }

    /// Whether there are no slots; such a ring refuses every acquire.
    pub fn is_empty(&self) -> bool {
        self.shared.slots.is_empty()
    }
}

impl<M: HostMemory, T> Shared<M, T> {
    /// Puts a slot back in line, in the state it is in, and wakes all who wait.
    ///
    /// All, because one is not enough: a waiter with a time limit may be the one, and leave a slot whose copy still
    /// runs to another, who would then sleep on.
    pub(crate) fn come_home(&self, index: usize) {
        let mut line = lock(&self.line);
        line.waiting.push_back(index);
        #[cfg(planted = "double_home")]
        line.waiting.push_back(index);
        self.wake(line);
    }

    /// Counts a slot that never comes home, so that nobody waits on when it was the last.
    pub(crate) fn lose(&self) {
        let mut line = lock(&self.line);
        line.lost += 1;
        self.wake(line);
    }

    /// Lets go of the line and wakes all who sleep.
    fn wake(&self, line: MutexGuard<'_, Line>) {
        self.moves.count();
        let asleep = line.sleepers > 0;
        drop(line);
        if asleep {
            self.home.notify_all();
        }
    }

    /// Whether a slot may still come home.
    pub(crate) fn check_open(&self, line: &Line) -> Result<()> {
        if line.closed {
            return Err(Error::new(ErrorKind::Stopped, "the slots were closed"));
        }
        let total = self.slots.len();
        if line.lost == total {
            let message = format!("no slot is left: {total} of {total} were lost to device failures");
            return Err(Error::new(ErrorKind::Device, message));
        }
        Ok(())
    }
}

impl<M: HostMemory, T> Drop for Shared<M, T> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // A copy may still read an InFlight or Lost slot: wait for it, and leak the memory when that fails.
            let drained = match slot.word.state() {
                State::InFlight | State::Lost => slot.memory.wait_drained(),
                State::Free | State::Filling | State::Ready => Ok(()),
            };
            // SAFETY: the slots are dropped once, here, and no lease is left: each holds an Arc of this value.
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
