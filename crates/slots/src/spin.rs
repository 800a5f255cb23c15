//! A look before a sleep, where what is waited for comes within microseconds.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Whether the waits at one place look for what they wait for before they sleep.
///
/// To sleep costs a thread some 20 us, and the one who wakes it a system call. Three threads that hand over a batch every 6 us
/// would do little else. So a wait first looks for 20 us, as long as the waits before it were that short. Where they are long
/// it sleeps at once, but for one in 16: to look in vain is dear, and a pipeline that waits for its device is to be idle.
#[derive(Debug)]
pub struct Spin {
    /// Whether there is a core for who looks, beside those for whom it waits.
    able: bool,
    /// Waits that are to sleep at once.
    blind: AtomicU32,
}

/// How often there was something to see behind a lock: who looks before it sleeps looks at this, without the lock.
#[derive(Debug, Default)]
pub struct Moves(AtomicUsize);

impl Moves {
    /// There is something to see. For who has the lock alone: two at a time would count as one.
    pub fn count(&self) {
        self.0.store(self.now().wrapping_add(1), Ordering::Release);
    }

    /// How often until now; under the lock: what comes from here on is seen by [`Wait::looks_for`].
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// One wait.
#[derive(Debug)]
pub struct Wait<'a> {
    spin: &'a Spin,
    /// When it began, and whether it looks.
    begun: Option<(Instant, bool)>,
}

impl Spin {
    /// How long a wait looks.
    const LOOK: Duration = Duration::from_micros(20);
    /// A wait that slept and took no longer would have been worth a look: its wake-up took a part of it.
    const SHORT: Duration = Duration::from_micros(40);
    /// How many waits sleep at once after one that looked in vain.
    const BLIND: u32 = 15;
    /// Makers, the transfer thread and the consumer wait for each other, the driver has threads of its own, and the host device one
    /// for each stream. Who looks on a core that one of them needs holds it up: on two cores a batch of 1 KB then took twice as
    /// long.
    const CORES: usize = 8;

    /// For a place where no wait has been yet. Nothing is looked for where there are fewer than eight cores.
    pub fn new() -> Self {
        let cores = if cfg!(loom) { 1 } else { available_parallelism().map_or(1, usize::from) };
        Self { able: cores >= Self::CORES, blind: AtomicU32::new(0) }
    }

    /// A wait, which begins when it first asks whether to look; its end is its drop.
    pub fn wait(&self) -> Wait<'_> {
        Wait { spin: self, begun: None }
    }
}

impl Wait<'_> {
    /// Whether to look once more: false when it is time to sleep.
    pub fn looks(&mut self) -> bool {
        if !self.spin.able {
            return false;
        }
        let Some((begun, looks)) = self.begun else {
            // Relaxed: a count that guides, and guards nothing.
            let blind = self.spin.blind.load(Ordering::Relaxed);
            self.spin.blind.store(blind.saturating_sub(1), Ordering::Relaxed);
            self.begun = Some((Instant::now(), blind == 0));
            return blind == 0;
        };
        std::hint::spin_loop();
        looks && begun.elapsed() < Spin::LOOK
    }

    /// Looks until there was more to see than `before`, or it is time to sleep.
    pub fn looks_for(&mut self, moves: &Moves, before: usize) {
        while moves.now() == before && self.looks() {}
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some((begun, looked)) = self.begun else { return };
        let took = begun.elapsed();
        if looked && took > Spin::LOOK {
            self.spin.blind.store(Spin::BLIND, Ordering::Relaxed);
        } else if took <= Spin::SHORT {
            self.spin.blind.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn spin(able: bool) -> Spin {
        Spin { able, blind: AtomicU32::new(0) }
    }

    /// A wait that ends after so many looks, if it looks that often; whether it did.
    fn wait(spin: &Spin, looks: u32, slept: Duration) -> bool {
        let mut wait = spin.wait();
        let seen = (0..looks).all(|_| wait.looks());
        if !seen && wait.begun.is_some() {
            std::thread::sleep(slept);
        }
        seen
    }

    #[test]
    fn long_waits_sleep_at_once_but_for_one_in_16() {
        let spin = spin(true);
        assert!(!wait(&spin, u32::MAX, Spin::SHORT), "it looks in vain");
        for _ in 0..2 {
            for number in 0..Spin::BLIND {
                assert!(!wait(&spin, 1, 2 * Spin::SHORT), "wait {number} looks");
            }
            let mut last = spin.wait();
            assert!(last.looks());
            while last.looks() {}
        }
    }

    #[test]
    fn a_short_wait_is_looked_for_again() {
        let spin = spin(true);
        assert!(!wait(&spin, u32::MAX, Duration::ZERO), "it looks in vain");
        assert!(!wait(&spin, 1, 2 * Spin::SHORT));
        // Whatever this machine does meanwhile: one of them is short.
        let slept = (0..Spin::BLIND / 2).filter(|_| !wait(&spin, 1, Duration::ZERO)).count();
        assert!(slept < Spin::BLIND as usize / 2, "no wait looks, though they are short");
    }

    #[test]
    fn nobody_looks_where_there_are_few_cores() {
        let spin = spin(false);
        assert!(!wait(&spin, 1, Duration::ZERO));
        assert!(spin.wait().begun.is_none(), "nor at the clock");
    }
}
