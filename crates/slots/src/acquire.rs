//! Acquiring a slot: the wait for a free slot, and the host's wait for the copy that still reads it.

use feedline_core::{Error, ErrorKind, Result};

use crate::lease::{FillLease, Hold};
use crate::memory::HostMemory;
use crate::ring::{FreeList, Ring, Shared};
use crate::state::State;
use crate::sync::lock;

impl<M: HostMemory, T> Ring<M, T> {
    /// Takes the slot that was released first. Blocks until there is one and its last copy has ended.
    ///
    /// The wait for a slot ends when a lease is dropped or submitted, when the last slot is lost, or on
    /// [`close`](Self::close). The wait for the copy ends only with the copy.
    ///
    /// # Errors
    /// - `Stopped`: the ring is closed.
    /// - `Device`: every slot is lost, or the wait for the copy failed; the slot waited for is then lost.
    pub fn acquire(&self) -> Result<FillLease<M, T>> {
        let mut wait = self.shared.slot_waits.wait();
        let mut free_list = lock(&self.shared.free_list);
        let index = loop {
            self.shared.check_open(&free_list)?;
            if let Some(index) = free_list.queue.pop_front() {
                break index;
            }
            let before = self.shared.version.get();
            if wait.should_spin() {
                drop(free_list);
                wait.spin_until_changed(&self.shared.version, before);
                free_list = lock(&self.shared.free_list);
                continue;
            }
            free_list.sleepers += 1;
            free_list = self.shared.released.wait(free_list).unwrap_or_else(|poisoned| poisoned.into_inner());
            free_list.sleepers -= 1;
        };
        drop(free_list);
        drop(wait);
        self.claim(index, |memory| self.shared.wait_landed(memory))
    }

    /// Takes the slot that was released first; `None` when there is none or its copy still runs. Never
    /// blocks.
    ///
    /// # Errors
    /// `Stopped` once the ring is closed; `Device` once every slot is lost, or on a device failure.
    pub fn try_acquire(&self) -> Result<Option<FillLease<M, T>>> {
        let landed = self.shared.pop_landed(&mut lock(&self.shared.free_list))?;
        landed.map(|index| self.claim(index, |_| Ok(()))).transpose()
    }

    /// Leases the slot at `index`, just taken off the free list; `wait` waits for a copy in flight.
    fn claim(&self, index: usize, wait: impl FnOnce(&M) -> Result<()>) -> Result<FillLease<M, T>> {
        let slot = &self.shared.slots[index];
        let state = slot.word.state();
        if !matches!(state, State::Free | State::InFlight) {
            return Err(broken(index));
        }
        // From here on, an error or a panic drops `hold`, which releases the slot or marks it Lost.
        let mut hold = Hold::new(self.shared.clone(), index, state);
        // The host's wait: a slot is not written while a copy still reads it.
        if cfg!(not(planted = "host_gate")) && state == State::InFlight {
            wait(&slot.memory)?;
        }
        if !hold.advance(State::Filling) {
            return Err(broken(index));
        }
        slot.memory.on_acquire()?;
        Ok(FillLease::new(hold))
    }
}

impl<M: HostMemory, T> Shared<M, T> {
    /// Blocks until the copy out of `memory` has ended.
    fn wait_landed(&self, memory: &M) -> Result<()> {
        let mut wait = self.copy_waits.wait();
        while memory.is_quick_to_ask() && wait.should_spin() {
            if memory.landed()? {
                return Ok(());
            }
            // Polls are spaced out: the thread that starts the copies needs the driver's lock too.
            (0..16).for_each(|_| std::hint::spin_loop());
        }
        memory.wait_landed()
    }

    /// Takes the first slot off the free list, if no copy reads it.
    fn pop_landed(&self, free_list: &mut FreeList) -> Result<Option<usize>> {
        self.check_open(free_list)?;
        let Some(&index) = free_list.queue.front() else { return Ok(None) };
        let slot = &self.slots[index];
        let in_flight = cfg!(not(planted = "host_gate")) && slot.word.state() == State::InFlight;
        if in_flight && !slot.memory.landed()? {
            return Ok(None);
        }
        free_list.queue.pop_front();
        Ok(Some(index))
    }
}

fn broken(index: usize) -> Error {
    Error::new(
        ErrorKind::Stopped,
        format!(
            "slot {index} is in the free list and leased at once: this is a bug in feedline, please report it"
        ),
    )
}
