//! Vector clocks: what each actor knows of the others.
//!
//! Fidge (1988) and Mattern (1989): an actor counts its own steps, and takes the pointwise maximum where it learns of
//! another's. A step of actor `a` numbered `n` happened before all that follows a clock whose component `a` is at least
//! `n`. Accesses are kept as (actor, number) pairs, as in FastTrack (Flanagan and Freund, PLDI 2009).

/// Who can touch memory: the host is number 0, stream `i` is number `i + 1`.
pub(super) type Actor = usize;

/// The host, all of its threads as one: their order among themselves is not the device's business.
pub(super) const HOST: Actor = 0;

/// For each actor, the number of its latest step that is known to be over.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// The latest known step of `actor`.
    pub(super) fn of(&self, actor: Actor) -> u64 {
        self.0.get(actor).copied().unwrap_or(0)
    }

    /// Counts one more step of `actor`, whose clock this is; its number.
    pub(super) fn tick(&mut self, actor: Actor) -> u64 {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] += 1;
        self.0[actor]
    }

    /// Learns all that `other` knows.
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
