//! Short spinning before a thread sleeps, for events that arrive within microseconds.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Decides whether the waits at one place spin before they sleep.
///
/// A sleep costs the sleeping thread some 20 us, and the waking thread a system call: too much for three
/// threads that hand over a batch every 6 us. So a wait first spins for up to 20 us, if recent waits were
/// that short. After long waits, 15 of 16 waits sleep at once: failed spinning wastes CPU, and a pipeline
/// that waits for its device should be idle.
#[derive(Debug)]
pub struct Backoff {
    /// Whether the machine has enough cores for spinning threads.
    able: bool,
    /// How many of the next waits sleep at once.
    skipped: AtomicU32,
}

/// Counts the changes of a locked value. A spinning thread polls it without taking the lock.
#[derive(Debug, Default)]
pub struct Version(AtomicUsize);

impl Version {
    /// Records a change. Call it with the lock held: two calls at the same time would count as one.
    pub fn bump(&self) {
        self.0.store(self.get().wrapping_add(1), Ordering::Release);
    }

    /// The present version. Read it with the lock held: [`Wait::spin_until_changed`] sees every later change.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// One wait. Its drop ends the wait.
#[derive(Debug)]
pub struct Wait<'a> {
    backoff: &'a Backoff,
    /// The start of the wait, and whether it spins.
    begun: Option<(Instant, bool)>,
}

impl Backoff {
    /// The longest a wait spins.
    const SPIN: Duration = Duration::from_micros(20);
    /// A wait that slept and took at most this long should have spun: the wake-up itself took a part of the
    /// time.
    const SHORT: Duration = Duration::from_micros(40);
    /// How many waits sleep at once after a wait that spun and still slept.
    const SKIPPED: u32 = 15;
    /// Threads spin only on machines with at least this many cores. Workers, the transfer thread and the
    /// consumer wait for each other, the driver has threads of its own, and the host device has one per
    /// stream. A spinning thread slows down a thread that needs its core: on two cores, a batch of 1 KB took
    /// twice as long.
    const CORES: usize = 8;

    /// A new instance. Its waits never spin on a machine with fewer than eight cores.
    pub fn new() -> Self {
        let cores = if cfg!(loom) { 1 } else { available_parallelism().map_or(1, usize::from) };
        Self { able: cores >= Self::CORES, skipped: AtomicU32::new(0) }
    }

    /// A new wait. It begins with the first call of [`Wait::should_spin`].
    pub fn wait(&self) -> Wait<'_> {
        Wait { backoff: self, begun: None }
    }
}

impl Wait<'_> {
    /// Whether to check the condition once more; false when it is time to sleep.
    pub fn should_spin(&mut self) -> bool {
        if !self.backoff.able {
            return false;
        }
        let Some((begun, spins)) = self.begun else {
            // Relaxed: the count is a heuristic and guards nothing.
            let skipped = self.backoff.skipped.load(Ordering::Relaxed);
            self.backoff.skipped.store(skipped.saturating_sub(1), Ordering::Relaxed);
            self.begun = Some((Instant::now(), skipped == 0));
            return skipped == 0;
        };
        std::hint::spin_loop();
        spins && begun.elapsed() < Backoff::SPIN
    }

    /// Spins until `version` differs from `before`, or it is time to sleep.
    pub fn spin_until_changed(&mut self, version: &Version, before: usize) {
        while version.get() == before && self.should_spin() {}
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some((begun, spun)) = self.begun else { return };
        let took = begun.elapsed();
        if spun && took > Backoff::SPIN {
            self.backoff.skipped.store(Backoff::SKIPPED, Ordering::Relaxed);
        } else if took <= Backoff::SHORT {
            self.backoff.skipped.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn backoff(able: bool) -> Backoff {
        Backoff { able, skipped: AtomicU32::new(0) }
    }

    /// A wait that spins up to `checks` times. Returns whether it spun that often; otherwise sleeps for
    /// `sleep`.
    fn wait(backoff: &Backoff, checks: u32, sleep: Duration) -> bool {
        let mut wait = backoff.wait();
        let spun = (0..checks).all(|_| wait.should_spin());
        if !spun && wait.begun.is_some() {
            std::thread::sleep(sleep);
        }
        spun
    }

    #[test]
    fn one_in_16_long_waits_spins() {
        let backoff = backoff(true);
        assert!(!wait(&backoff, u32::MAX, Backoff::SHORT), "the first wait spins until its limit");
        for _ in 0..2 {
            for number in 0..Backoff::SKIPPED {
                assert!(!wait(&backoff, 1, 2 * Backoff::SHORT), "wait {number} spins");
            }
            let mut last = backoff.wait();
            assert!(last.should_spin());
            while last.should_spin() {}
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "under miri no wait is short")]
    fn waits_spin_again_after_a_short_wait() {
        let backoff = backoff(true);
        assert!(!wait(&backoff, u32::MAX, Duration::ZERO), "the first wait spins until its limit");
        assert!(!wait(&backoff, 1, 2 * Backoff::SHORT));
        // On a loaded machine some of these waits are long, but at least one is short.
        let slept = (0..Backoff::SKIPPED / 2).filter(|_| !wait(&backoff, 1, Duration::ZERO)).count();
        assert!(slept < Backoff::SKIPPED as usize / 2, "no wait spins, although the waits are short");
    }

    #[test]
    fn waits_never_spin_on_few_cores() {
        let backoff = backoff(false);
        assert!(!wait(&backoff, 1, Duration::ZERO));
        assert!(backoff.wait().begun.is_none(), "the clock is not read");
    }
}
