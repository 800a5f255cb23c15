//! Taking a slot from the ring: the waits for a slot, and the host's wait for the copy that reads it.

#[cfg(not(loom))]
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};

use crate::lease::{FillLease, Held};
use crate::memory::HostMemory;
use crate::ring::{Line, Ring, Shared};
use crate::state::State;
use crate::sync::lock;

impl<M: HostMemory, T> Ring<M, T> {
    /// Takes the slot that came home first, waiting for one, and for the end of the copy that reads it.
    ///
    /// Blocks until a slot is home, woken by a lease that is dropped or submitted, by the loss of the last
    /// slot and by [`close`](Self::close); then until the slot's copy has ended, which only the device can
    /// end.
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

    /// Like [`acquire`](Self::acquire), but where the slot's copy has not ended, this waits also for those of
    /// the slots behind it,
    /// `copies` in all: the next calls then need not sleep. The caller knows that they end one after the other, and
    /// that nobody waits for what it would fill meanwhile.
    ///
    /// Slots that are not in line yet are not waited for: when there are fewer than `copies`, this is
    /// `acquire`.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); a device failure while waiting for the copy of a slot behind costs
    /// no slot.
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

fn broken(index: usize) -> Error {
    Error::new(
        ErrorKind::Stopped,
        format!("slot {index} stood in line while it was held: please report this defect"),
    )
}
