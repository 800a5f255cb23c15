//! The ring: a fixed set of slots, handed out first in, first out.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
#[cfg(not(loom))]
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};

use crate::lease::{FillLease, Held};
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

struct Line {
    /// Slots that wait for a new filling, the one that came home first in front: Free or InFlight.
    waiting: VecDeque<usize>,
    /// Slots that never come home again.
    lost: usize,
    closed: bool,
    /// Threads that sleep until a slot comes home: to wake nobody costs a system call all the same.
    sleepers: usize,
}

pub(crate) struct Shared<M: HostMemory, T> {
    pub(crate) slots: Box<[Slot<M, T>]>,
    line: Mutex<Line>,
    home: Condvar,
    /// How often `home` was rung, or would have been.
    moves: Moves,
    /// The waits for a slot, and those for its copy.
    slot_waits: Spin,
    copy_waits: Spin,
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
    shared: Arc<Shared<M, T>>,
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
    /// Takes the slot that came home first, waiting for one, and for the end of the copy that reads it.
    ///
    /// Blocks until a slot is home, woken by a lease that is dropped or submitted, by the loss of the last slot and
    /// by [`close`](Self::close); then until the slot's copy has ended, which only the device can end.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; `Device` once every slot is lost; a device failure while waiting for the
    /// copy, after which that slot is lost.
    pub fn acquire(&self) -> Result<FillLease<M, T>> {
        let mut wait = self.shared.slot_waits.wait();
        let mut line = lock(&self.shared.line);
        let index = loop {
            self.shared.check_open(&line)?;
            if let Some(index) = line.waiting.pop_front() {
                break index;
            }
            let before = self.shared.moves.now();
            if wait.looks() {
                drop(line);
                wait.looks_for(&self.shared.moves, before);
                line = lock(&self.shared.line);
                continue;
            }
            line.sleepers += 1;
            line = self.shared.home.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner());
            line.sleepers -= 1;
        };
        drop(line);
        drop(wait);
        self.claim(index, |memory| self.shared.wait_landed(memory))
    }

    /// Like [`acquire`](Self::acquire), but where the slot's copy has not ended, this waits also for those of the slots behind it,
    /// `copies` in all: the next calls then need not sleep. The caller knows that they end one after the other, and
    /// that nobody waits for what it would fill meanwhile.
    ///
    /// Slots that are not in line yet are not waited for: when there are fewer than `copies`, this is `acquire`.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); a device failure while waiting for the copy of a slot behind costs no slot.
    pub fn acquire_after(&self, copies: usize) -> Result<FillLease<M, T>> {
        if copies > 1 {
            let line = lock(&self.shared.line);
            self.shared.check_open(&line)?;
            if let Some(last) = self.shared.running(&line, copies)? {
                drop(line);
                self.shared.slots[last].memory.wait_landed()?;
            }
        }
        self.acquire()
    }

    /// Takes the slot that came home first when its copy has ended; never blocks.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; `Device` once every slot is lost; a device failure.
    pub fn try_acquire(&self) -> Result<Option<FillLease<M, T>>> {
        let landed = self.shared.pop_landed(&mut lock(&self.shared.line))?;
        landed.map(|index| self.claim(index, |_| Ok(()))).transpose()
    }

    /// Like [`acquire`](Self::acquire), for at most `limit`; `None` when it passed. No limit is too long.
    ///
    /// # Errors
    /// As for [`try_acquire`](Self::try_acquire).
    #[cfg(not(loom))]
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Option<FillLease<M, T>>> {
        // While a copy runs nothing here is notified at its end, so it is asked for, at this pace.
        const PACE: Duration = Duration::from_micros(200);
        let start = Instant::now();
        let mut line = lock(&self.shared.line);
        let index = loop {
            if let Some(index) = self.shared.pop_landed(&mut line)? {
                break index;
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let pace = if line.waiting.is_empty() { left } else { left.min(PACE) };
            line.sleepers += 1;
            line =
                self.shared.home.wait_timeout(line, pace).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            line.sleepers -= 1;
        };
        drop(line);
        self.claim(index, |_| Ok(())).map(Some)
    }

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

    /// Makes the slot at `index`, just taken off the line, the caller's, after `wait` for a copy in flight.
    fn claim(&self, index: usize, wait: impl FnOnce(&M) -> Result<()>) -> Result<FillLease<M, T>> {
        let slot = &self.shared.slots[index];
        let state = slot.word.state();
        if !matches!(state, State::Free | State::InFlight) {
            return Err(broken(index));
        }
        // From here on an error or a panic drops `held`, and that puts the slot where it belongs.
        let mut held = Held::new(self.shared.clone(), index, state);
        // The host's wait: nobody writes a slot that a copy still reads.
        if cfg!(not(planted = "host_gate")) && state == State::InFlight {
            wait(&slot.memory)?;
        }
        if !held.advance(State::Filling) {
            return Err(broken(index));
        }
        slot.memory.on_acquire()?;
        Ok(FillLease::new(held))
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

    /// Blocks until the copy out of `memory` has ended.
    fn wait_landed(&self, memory: &M) -> Result<()> {
        let mut wait = self.copy_waits.wait();
        while memory.is_quick_to_ask() && wait.looks() {
            if memory.landed()? {
                return Ok(());
            }
            // Not at every moment: who gives the copies needs the driver's lock too.
            (0..16).for_each(|_| std::hint::spin_loop());
        }
        memory.wait_landed()
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
    fn check_open(&self, line: &Line) -> Result<()> {
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

    /// The last of the first `count` slots in line, when there are as many and a copy reads it and the first.
    fn running(&self, line: &Line, count: usize) -> Result<Option<usize>> {
        let Some((&first, &last)) = line.waiting.front().zip(line.waiting.get(count - 1)) else {
            return Ok(None);
        };
        let in_flight = |index: usize| self.slots[index].word.state() == State::InFlight;
        let running = in_flight(first) && in_flight(last) && !self.slots[first].memory.landed()?;
        Ok(running.then_some(last))
    }

    /// Takes the first slot off the line, when no copy reads it.
    fn pop_landed(&self, line: &mut Line) -> Result<Option<usize>> {
        self.check_open(line)?;
        let Some(&index) = line.waiting.front() else { return Ok(None) };
        let slot = &self.slots[index];
        let in_flight = cfg!(not(planted = "host_gate")) && slot.word.state() == State::InFlight;
        if in_flight && !slot.memory.landed()? {
            return Ok(None);
        }
        line.waiting.pop_front();
        Ok(Some(index))
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

fn broken(index: usize) -> Error {
    Error::new(
        ErrorKind::Stopped,
        format!("slot {index} stood in line while it was held: please report this defect"),
    )
}
