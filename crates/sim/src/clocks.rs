//! Vector clocks. Each clock holds the steps of other actors that its actor knows to be complete.
//!
//! The clocks follow Fidge (1988) and Mattern (1989). An actor counts its own steps, and takes the pointwise
//! maximum when it synchronises with another actor. If component `a` of a clock is at least `n`, step `n` of
//! actor `a` happened before everything after this clock. Accesses are stored as (actor, step) pairs, as in
//! FastTrack (Flanagan and Freund, PLDI 2009).

/// An actor that can access memory: 0 is the host, `i + 1` is stream `i`.
pub(super) type Actor = usize;

/// The host. All of its threads are one actor, because the device does not order them.
pub(super) const HOST: Actor = 0;

/// The latest step of each actor that is known to be complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// The latest known step of `actor`.
    pub(super) fn of(&self, actor: Actor) -> u64 {
        self.0.get(actor).copied().unwrap_or(0)
    }

    /// Advances the step of `actor`, the owner of this clock, and returns it.
    pub(super) fn tick(&mut self, actor: Actor) -> u64 {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] += 1;
        self.0[actor]
    }

    /// Merges `other` into this clock.
    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_is_the_pointwise_maximum() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        assert_eq!((a.tick(1), a.tick(1), b.tick(1), b.tick(3)), (1, 2, 1, 1));
        b.join(&a);
        assert_eq!((b.of(0), b.of(1), b.of(2), b.of(3), b.of(9)), (0, 2, 0, 1, 0));
        a.join(&b);
        assert_eq!((a.of(1), a.of(3)), (2, 1));
    }
}
