//! The state of one slot, with a generation, in one atomic word.
//!
//! The types of the leases already allow only the moves below. The word is the second lock on the same door: a
//! move from a state that is not the expected one is refused, so a defect shows as an error, never as two owners.

use crate::sync::{AtomicU32, Ordering};

/// Where a slot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// In the ring, with nothing to wait for.
    Free = 0,
    /// Held by a [`FillLease`](crate::FillLease).
    Filling = 1,
    /// Held by a [`ReadyLease`](crate::ReadyLease).
    Ready = 2,
    /// In the ring, while the copy that reads it may still run.
    InFlight = 3,
    /// Out of use: nobody knows whether a copy still reads it.
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

/// A state and the number of times the slot was acquired.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(State::Free as u32))
    }

    /// The state now; only a hint where others may move the slot.
    pub(crate) fn state(&self) -> State {
        State::of(self.0.load(Ordering::Acquire))
    }

    /// Moves from `from` to `to`; entering `Filling` from the ring starts a new generation.
    ///
    /// Returns whether the slot was in `from`. Acquire and release: who holds the slot after the move sees every
    /// write of who held it before.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: [State; 5] = [State::Free, State::Filling, State::Ready, State::InFlight, State::Lost];

    #[test]
    fn a_move_from_another_state_is_refused_and_changes_nothing() {
        for from in ALL {
            for expected in ALL.into_iter().filter(|&expected| expected != from) {
                let word = Word(AtomicU32::new(from as u32));
                assert!(!word.advance(expected, State::Free), "{from:?} is not {expected:?}");
                assert_eq!(word.state(), from);
            }
        }
    }

    #[test]
    fn each_filling_is_a_new_generation_for_ever() {
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
