//! The state of one slot and its generation, in one atomic word.
//!
//! The lease types already allow only valid transitions. The word is a second check: a transition from an
//! unexpected state fails, so a bug shows as an error and never as two owners.

use crate::sync::{AtomicU32, Ordering};

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
