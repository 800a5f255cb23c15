//! The ring: a fixed set of slots, which are reused first in, first out. A thread that acquires a slot waits
//! for a free slot, and then for the copy that still reads this slot.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use feedline_core::{Error, ErrorKind, Result};

use crate::slots::lease::{FillLease, State};
use crate::slots::memory::HostMemory;
use crate::slots::monitor::{Backoff, Monitor};
use crate::slots::sync::{Arc, AtomicU32, Ordering};

pub(crate) struct Slot<M, T> {
    /// A [`State`].
    state: AtomicU32,
    pub(crate) memory: ManuallyDrop<M>,
    /// The info that travels with the bytes. Only the holder of the slot's lease accesses it.
    pub(crate) info: UnsafeCell<T>,
}

// SAFETY: `info` is accessed only through a lease, and a slot has one lease at a time (its `state`).
unsafe impl<M: HostMemory, T: Send> Sync for Slot<M, T> {}

impl<M, T> Slot<M, T> {
    /// The present state. It is only a hint while another thread may change it.
    pub(crate) fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    /// Changes the state from `from` to `to`. If the state is not `from`, returns false and changes nothing.
    /// The ordering is acquire and release, so the next holder of the slot sees every write of the previous
    /// holder.
    pub(crate) fn advance(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

pub(crate) struct Shared<M: HostMemory, T> {
    pub(crate) slots: Box<[Slot<M, T>]>,
    /// The slots to acquire, Free or InFlight, in the order of their release. After the end, the error that
    /// says why there are none.
    free_list: Monitor<Result<VecDeque<usize>>>,
    /// The backoff of waits for a slot's copy.
    copy_waits: Backoff,
}

/// The number of slots in each state. Their sum is the number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Released, with no copy in flight.
    pub free: usize,
    /// Being filled.
    pub filling: usize,
    /// Filled, not yet submitted.
    pub ready: usize,
    /// Submitted, and the copy is not known to have ended.
    pub in_flight: usize,
    /// Out of use after a device failure.
    pub lost: usize,
}

/// A fixed set of slots of host memory `M`, each with an info `T` that travels with its bytes.
///
/// The slots are allocated once, and the ring never grows. Clones share the slots.
///
/// ```
/// use feedline_device::slots::{HeapMemory, Ring};
/// let memory = vec![HeapMemory::new(64)?, HeapMemory::new(64)?];
/// let ring: Ring<HeapMemory, u64> = Ring::new(memory);
/// let mut lease = ring.acquire()?;
/// lease.bytes_mut()[0] = 7;
/// *lease.info_mut() = 42;
/// let ready = lease.ready();
/// assert_eq!((ready.bytes()[0], *ready.info()), (7, 42));
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
                state: AtomicU32::new(State::Free as u32),
                memory: ManuallyDrop::new(memory),
                info: UnsafeCell::new(T::default()),
            })
            .collect();
        let free_list = if slots.is_empty() { Err(all_lost(0)) } else { Ok((0..slots.len()).collect()) };
        let (free_list, copy_waits) = (Monitor::new(free_list), Backoff::new());
        Self { shared: Arc::new(Shared { slots, free_list, copy_waits }) }
    }
}

impl<M: HostMemory, T> Ring<M, T> {
    /// Takes the slot that was released first. Blocks until there is one and its last copy has ended.
    ///
    /// The wait for a slot ends when a lease is dropped or submitted, when the last slot is lost, or on
    /// [`close`](Self::close). The wait for the copy ends only with the copy.
    ///
    /// # Errors
    /// - `Stopped`: the ring is closed.
    /// - `Device`: every slot is lost, or the wait for the copy failed. A failed wait loses its slot.
    pub fn acquire(&self) -> Result<FillLease<M, T>> {
        let taken = self.shared.free_list.wait(None, |free_list| match free_list {
            Ok(queue) => queue.pop_front().map(Ok),
            Err(why) => Some(Err(why.clone())),
        });
        // A wait without a limit ends with a slot or an error.
        let index = taken.ok_or_else(closed)??;
        self.claim(index, |memory| self.shared.wait_landed(memory))
    }

    /// Takes the slot that was released first; `None` if there is no slot, or if its copy still runs. Never
    /// blocks.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; `Device` once every slot is lost, or on a device failure.
    pub fn try_acquire(&self) -> Result<Option<FillLease<M, T>>> {
        let landed = self.shared.free_list.with(|free_list| self.shared.pop_landed(free_list))?;
        landed.map(|index| self.claim(index, |_| Ok(()))).transpose()
    }

    /// Leases the slot at `index`, which was just taken off the free list. `wait` waits for a copy in flight.
    fn claim(&self, index: usize, wait: impl FnOnce(&M) -> Result<()>) -> Result<FillLease<M, T>> {
        let slot = &self.shared.slots[index];
        let state = slot.state();
        if !matches!(state, State::Free | State::InFlight) {
            return Err(broken(index));
        }
        // From here on, an error or a panic drops `lease`, which releases the slot or marks it Lost.
        let mut lease = FillLease::new(self.shared.clone(), index, state);
        // The host waits here, because a slot must not be written while a copy still reads it.
        if cfg!(not(planted = "host_gate")) && state == State::InFlight {
            wait(&slot.memory)?;
        }
        if !lease.advance(State::Filling) {
            return Err(broken(index));
        }
        slot.memory.on_acquire()?;
        Ok(lease)
    }

    /// Closes the ring. Every current and later wait for a slot ends with `Stopped`. Existing leases stay
    /// valid. Closing twice has no effect.
    pub fn close(&self) {
        self.shared.free_list.change(|free_list| *free_list = Err(closed()));
    }

    /// How many slots are in each state. The counts are exact only while no lease changes state.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for slot in &self.shared.slots {
            match slot.state() {
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
    /// Appends a slot to the free list in its present state, and wakes a thread that waits for one.
    pub(crate) fn release(&self, index: usize) {
        self.free_list.add(1, |free_list| {
            let Ok(queue) = free_list else { return ((), 0) };
            queue.push_back(index);
            #[cfg(planted = "double_release")]
            queue.push_back(index);
            ((), queue.len())
        });
    }

    /// Wakes every waiting thread after a slot was lost, because it may have been the last slot.
    pub(crate) fn lose(&self) {
        self.free_list.change(|free_list| {
            if free_list.is_ok() && self.slots.iter().all(|slot| slot.state() == State::Lost) {
                *free_list = Err(all_lost(self.slots.len()));
            }
        });
    }

    /// Blocks until the copy out of `memory` has ended.
    fn wait_landed(&self, memory: &M) -> Result<()> {
        let mut wait = self.copy_waits.wait();
        while memory.is_quick_to_ask() && wait.should_spin() {
            if memory.landed()? {
                return Ok(());
            }
            // A pause between polls, because the thread that starts the copies also needs the driver's lock.
            (0..16).for_each(|_| std::hint::spin_loop());
        }
        memory.wait_landed()
    }

    /// Takes the first slot off the free list if no copy reads this slot.
    fn pop_landed(&self, free_list: &mut Result<VecDeque<usize>>) -> Result<Option<usize>> {
        let queue = free_list.as_mut().map_err(|why| why.clone())?;
        let Some(&index) = queue.front() else { return Ok(None) };
        let slot = &self.slots[index];
        let in_flight = cfg!(not(planted = "host_gate")) && slot.state() == State::InFlight;
        if in_flight && !slot.memory.landed()? {
            return Ok(None);
        }
        queue.pop_front();
        Ok(Some(index))
    }
}

impl<M: HostMemory, T> Drop for Shared<M, T> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // A copy may still read an InFlight or Lost slot. So wait for the copy, and leak the memory if
            // the wait fails.
            let drained = match slot.state() {
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

fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the ring of host slots is closed")
}

fn all_lost(slots: usize) -> Error {
    Error::new(ErrorKind::Device, format!("no slot is left: {slots} of {slots} were lost to device failures"))
}

fn broken(index: usize) -> Error {
    Error::new(
        ErrorKind::Stopped,
        format!(
            "slot {index} is in the free list and leased at once: this is a bug in feedline, please report it"
        ),
    )
}
