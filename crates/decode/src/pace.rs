//! How long a maker that has no batch waits before it looks for something to do, and the help it gives meanwhile.

use std::time::{Duration, Instant};

use rayon::Yield;

/// How long to wait before the next look for pieces: not at all while there are some, then longer each time.
pub(crate) struct Pace {
    wait: Duration,
    /// Looks for a slot, one soon after the other, since there was something to help with.
    looks: u32,
}

impl Pace {
    const FIRST: Duration = Duration::from_micros(100);
    const LAST: Duration = Duration::from_millis(10);
    /// Who has the head looks for a slot so many times before it sleeps, and this long after one another: nothing wakes it when a
    /// copy ends, and a copy of a batch that workers fill together takes about as long as the first sleep.
    const LOOKS: u32 = 20;
    const BETWEEN_LOOKS: Duration = Duration::from_micros(10);

    pub(crate) fn new() -> Self {
        Self { wait: Duration::ZERO, looks: 0 }
    }

    /// How long to wait now.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Reads pieces while there are any.
    pub(crate) fn help(&mut self) {
        if !self.has_helped() {
            self.wait = (2 * self.wait).clamp(Self::FIRST, Self::LAST);
        }
    }

    /// The same, for who had the head and will look for a slot again.
    pub(crate) fn help_and_look(&mut self) {
        if self.looks == Self::LOOKS {
            return self.help();
        }
        let start = Instant::now();
        if !self.has_helped() {
            (self.wait, self.looks) = (Duration::ZERO, self.looks + 1);
            while start.elapsed() < Self::BETWEEN_LOOKS {
                std::thread::yield_now();
            }
        }
    }

    fn has_helped(&mut self) -> bool {
        let mut helped = false;
        // Nothing but pieces is ever in the pool's queues: all makers were running before the first batch was begun.
        while rayon::yield_now() == Some(Yield::Executed) {
            helped = true;
        }
        if helped {
            *self = Self::new();
        }
        helped
    }
}

/// Waits without sleeping until it is `done`, or `until` has come.
pub(crate) fn stay_awake(until: Instant, done: impl Fn() -> bool) {
    while !done() && Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_head_looks_often_before_it_sleeps_and_others_do_not() {
        let mut pace = Pace::new();
        for _ in 0..Pace::LOOKS {
            let start = Instant::now();
            pace.help_and_look();
            assert_eq!(pace.wait(), Duration::ZERO);
            assert!(start.elapsed() >= Pace::BETWEEN_LOOKS);
        }
        let mut other = Pace::new();
        for wait in
            [1, 2, 4, 8, 16, 32, 64].map(|times| times * Pace::FIRST).into_iter().chain([Pace::LAST; 2])
        {
            pace.help_and_look();
            other.help();
            assert_eq!([pace.wait(), other.wait()], [wait; 2]);
        }
    }
}
