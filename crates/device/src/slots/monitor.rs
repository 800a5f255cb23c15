//! A locked value that threads wait for. A wait spins for a moment and then sleeps. A queue of messages from
//! many threads to one thread is such a value.
//!
//! Threads wait for slots, requests and leases by these types, and `ci/loom.sh` checks that no wake-up is
//! lost. The consumer waits for its batches in a channel instead. Only the constants below state the cost of
//! a wake-up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::slots::sync::{AtomicUsize, Condvar, Mutex, Ordering, lock, sleep};

/// The cost of a sleep and a wake-up: 15 us of CPU time on both sides, and up to 20 us until the thread runs.
/// Other constants are multiples of this time.
///
/// Machine: 16 cores of a Xeon beside an H200, 2026-11-22. Bench: `idle` (CPU time), `tiny` (latency).
pub const WAKE_UP: Duration = Duration::from_micros(20);

/// Max time of a short wait. A wait that slept and was short should have spun, because the wake-up was a part
/// of its time. Machine, date and bench as for [`WAKE_UP`].
const SHORT: Duration = Duration::from_micros(40);

/// The number of waits that sleep at once after a wait that spun in vain. Spinning in vain wastes CPU time,
/// and a pipeline that waits for its device should be idle. Machine, date and bench as for [`WAKE_UP`].
const SKIPPED: u32 = 15;

/// Threads spin only on machines with at least this many cores. Workers, the transfer thread and the consumer
/// wait for each other. The driver also has threads, and the host device has one thread per stream. A
/// spinning thread slows down a thread that needs its core: on two cores, a batch of 1 KB took twice as long.
///
/// Machine: 2 cores of a Xeon, 2026-11-22. Bench: `handoff`.
const CORES: usize = 8;

/// The number of times that the receiver of a mailbox yields its core before it sleeps. Each sleep ends with
/// a wake-up that takes a core from another thread, often from the consumer in its step. Without yields, the
/// transfer thread slept twice as often beside 15 busy workers, and the 99th percentile of a step rose from
/// 1.40 to 1.71 of the median.
///
/// Machine: 16 cores beside an H200, 2026-11-24. Bench: `noisy`.
const YIELDS: u32 = 10;

/// A wait with a shorter limit does not spin, because its thread also polls something else.
const POLL: Duration = Duration::from_millis(20);

/// A value behind a lock, and threads that wait until they can take something out of it.
///
/// ```
/// use feedline_device::slots::Monitor;
/// let queue = Monitor::new(Vec::new());
/// std::thread::scope(|scope| {
///     let taken = scope.spawn(|| queue.wait(None, Vec::pop));
///     queue.add(1, |items| (items.push(7), items.len()));
///     assert_eq!(taken.join().unwrap(), Some(7));
/// });
/// ```
#[derive(Debug)]
pub struct Monitor<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    signals: Signals,
    backoff: Backoff,
}

/// The values that a spinning thread reads without the lock. They have their own cache lines. Otherwise
/// spinning threads would slow down the holder of the lock.
#[derive(Debug)]
#[repr(align(128))]
struct Signals {
    /// Number of changes so far. Every waiting thread watches it.
    changes: AtomicUsize,
    /// About the number of items that no thread has taken yet. A spinning thread takes the lock only if it
    /// has claimed an item, so that one item does not make all threads take the lock.
    items: AtomicUsize,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    /// Number of spinning threads. They take added items before they sleep.
    spinning: usize,
    /// Number of sleeping threads. Notifying the condition costs a system call even if there are none.
    asleep: usize,
}

/// Messages from many threads to one, in their order.
///
/// A wake-up costs both threads more than a short piece of work. So a sender may let the receiver sleep, send
/// more messages, and wake it once.
///
/// ```
/// use feedline_device::slots::Mailbox;
/// let mailbox = Mailbox::new(2);
/// std::thread::scope(|scope| {
///     let received = scope.spawn(|| [mailbox.recv(None), mailbox.recv(None)]);
///     mailbox.send("a", false);
///     mailbox.send("b", true);
///     assert_eq!(received.join().unwrap(), [Some("a"), Some("b")]);
/// });
/// ```
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Monitor<VecDeque<T>>,
    /// The number of messages, which can be read without the lock. It changes only under the lock.
    len: AtomicUsize,
}

/// Decides whether the waits at one place spin before they sleep. They spin while recent waits were short.
#[derive(Debug)]
pub struct Backoff {
    /// Whether the machine has enough cores.
    able: bool,
    /// The number of next waits that sleep at once.
    skipped: AtomicU32,
}

/// One wait. Its drop ends the wait.
#[derive(Debug)]
pub struct Wait<'a> {
    backoff: &'a Backoff,
    /// The start of the wait, and whether it spins.
    begun: Option<(Instant, bool)>,
}

impl<T> Monitor<T> {
    /// A monitor of `value`.
    pub fn new(value: T) -> Self {
        Self {
            state: Mutex::new(State { value, spinning: 0, asleep: 0 }),
            changed: Condvar::new(),
            signals: Signals { changes: AtomicUsize::new(0), items: AtomicUsize::new(0) },
            backoff: Backoff::new(),
        }
    }

    /// The same, but every wait sleeps at once. For threads that spin before they call this monitor, or
    /// never.
    pub fn sleeping(value: T) -> Self {
        Self { backoff: Backoff { able: false, skipped: AtomicU32::new(0) }, ..Self::new(value) }
    }

    /// The same for loom's models, where each wait spins once before it sleeps.
    #[cfg(loom)]
    pub fn spinning(value: T) -> Self {
        Self { backoff: Backoff { able: true, skipped: AtomicU32::new(0) }, ..Self::new(value) }
    }

    /// Looks at the value, or changes it in a way that no thread waits for.
    pub fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.state).value)
    }

    /// The number of threads that sleep.
    pub fn asleep(&self) -> usize {
        lock(&self.state).asleep
    }

    /// Reads the value, and the number of threads that wait. A waiting thread spins or sleeps.
    pub fn look<R>(&self, look: impl FnOnce(&T, usize) -> R) -> R {
        let state = lock(&self.state);
        look(&state.value, state.spinning + state.asleep)
    }

    /// Adds `added` items to the value, and wakes a thread for each item. `change` returns the new number of
    /// items. If spinning threads will take some of the items, fewer threads are woken.
    pub fn add<R>(&self, added: usize, change: impl FnOnce(&mut T) -> (R, usize)) -> R {
        let mut state = lock(&self.state);
        let (result, items) = change(&mut state.value);
        let woken = items.saturating_sub(state.spinning).min(added).min(state.asleep);
        // Release: a thread that claims an item without the lock sees everything that was written before the
        // item was added.
        self.signals.items.store(items, Ordering::Release);
        drop(state);
        (0..woken).for_each(|_| self.changed.notify_one());
        result
    }

    /// Changes the value and wakes every thread that waits.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state.value);
        let asleep = state.asleep > 0;
        // Relaxed: only this method writes the counter, with the lock held.
        let changes = self.signals.changes.load(Ordering::Relaxed);
        self.signals.changes.store(changes.wrapping_add(1), Ordering::Release);
        drop(state);
        #[cfg(not(planted = "close_no_notify"))]
        if asleep {
            self.changed.notify_all();
        }
        result
    }

    /// Waits until `take` returns a value, for at most `limit`. `take` runs under the lock. It runs at once,
    /// after each change that wakes this thread, and when the limit has passed. `Duration::ZERO` does not
    /// block.
    pub fn wait<R>(&self, limit: Option<Duration>, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut wait = self.backoff.wait();
        let (mut start, mut has_claimed) = (None, false);
        let mut state = lock(&self.state);
        loop {
            let taken = take(&mut state.value);
            self.signals.looked(taken.is_some(), std::mem::take(&mut has_claimed));
            if taken.is_some() {
                return taken;
            }
            if limit.is_none_or(|limit| limit >= POLL) && wait.should_spin() {
                let before = self.signals.changes.load(Ordering::Acquire);
                state.spinning += 1;
                drop(state);
                while !has_claimed
                    && self.signals.changes.load(Ordering::Acquire) == before
                    && wait.should_spin()
                {
                    has_claimed = self.signals.claim();
                }
                state = lock(&self.state);
                state.spinning -= 1;
                continue;
            }
            let left = match limit {
                None => None,
                Some(Duration::ZERO) => return None,
                // A model has no time: on a busy machine a limit that passes would change its steps.
                Some(_) if cfg!(loom) => None,
                // Only threads that have to wait read the clock.
                Some(limit) => match limit.saturating_sub(start.get_or_insert_with(Instant::now).elapsed()) {
                    Duration::ZERO => return None,
                    left => Some(left),
                },
            };
            state.asleep += 1;
            state = sleep(&self.changed, state, left);
            state.asleep -= 1;
        }
    }
}

impl<T> Mailbox<T> {
    /// An empty mailbox. It needs no further memory for up to `capacity` messages.
    pub fn new(capacity: usize) -> Self {
        let messages = Monitor::sleeping(VecDeque::with_capacity(capacity));
        Self { messages, len: AtomicUsize::new(0) }
    }

    /// Adds a message. Without `wake`, a sleeping receiver continues to sleep. The caller wakes it later, by
    /// [`wake`](Self::wake) or with another message.
    pub fn send(&self, message: T, wake: bool) {
        self.messages.add(usize::from(wake), |messages| {
            messages.push_back(message);
            self.len.store(messages.len(), Ordering::Release);
            ((), messages.len())
        });
    }

    /// Wakes the receiver if it sleeps and there is a message.
    pub fn wake(&self) {
        if !self.is_empty() {
            self.messages.add(1, |messages| ((), messages.len()));
        }
    }

    /// Whether the receiver sleeps.
    pub fn is_asleep(&self) -> bool {
        self.messages.asleep() > 0
    }

    /// Whether there is no message. Does not lock, so it may miss a message that is being sent.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Returns the next message if there is one. Never sleeps. Like [`is_empty`](Self::is_empty), it may miss
    /// a message that is being sent.
    pub fn try_recv(&self) -> Option<T> {
        if self.is_empty() { None } else { self.recv(Some(Duration::ZERO)) }
    }

    /// Returns the next message. Sleeps until there is one, for at most `limit`.
    pub fn recv(&self, limit: Option<Duration>) -> Option<T> {
        // There is no yield in a loom model, because a model has no cores.
        let yields = if limit == Some(Duration::ZERO) || cfg!(loom) { 0 } else { YIELDS };
        for _ in 0..yields {
            if !self.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
        self.messages.wait(limit, |messages| {
            let message = messages.pop_front()?;
            self.len.store(messages.len(), Ordering::Release);
            Some(message)
        })
    }
}

impl Signals {
    /// Claims an item, if there is one.
    fn claim(&self) -> bool {
        let items = self.items.load(Ordering::Acquire);
        items > 0
            && self.items.compare_exchange(items, items - 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes that a thread has looked for an item under the lock. `is_claimed` says whether the thread had
    /// claimed an item.
    fn looked(&self, has_taken: bool, is_claimed: bool) {
        // Threads claim items without the lock, so the number may be wrong by a few for a moment. If it is
        // too high, a thread locks in vain. If it is too low, a thread sees the item before it sleeps.
        let items = self.items.load(Ordering::Relaxed);
        if items > 0 && !(has_taken && is_claimed) {
            self.items.store(if has_taken { items - 1 } else { 0 }, Ordering::Relaxed);
        }
    }
}

impl Backoff {
    /// A new instance. Its waits never spin on a machine with fewer than eight cores.
    pub fn new() -> Self {
        let cores = if cfg!(loom) { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
        Self { able: cores >= CORES, skipped: AtomicU32::new(0) }
    }

    /// A new wait. It begins with the first call of [`Wait::should_spin`].
    pub fn wait(&self) -> Wait<'_> {
        Wait { backoff: self, begun: None }
    }
}

impl Wait<'_> {
    /// Whether to check the condition once more. It is false when it is time to sleep.
    pub fn should_spin(&mut self) -> bool {
        if !self.backoff.able {
            return false;
        }
        let Some((begun, spins)) = self.begun else {
            // Relaxed: the count is a heuristic and guards nothing.
            let skipped = self.backoff.skipped.load(Relaxed);
            self.backoff.skipped.store(skipped.saturating_sub(1), Relaxed);
            self.begun = Some((Instant::now(), skipped == 0));
            return skipped == 0;
        };
        // A loom model has no clock, so a wait spins once.
        if cfg!(loom) {
            return false;
        }
        std::hint::spin_loop();
        spins && begun.elapsed() < WAKE_UP
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some((begun, spun)) = self.begun.filter(|_| cfg!(not(loom))) else { return };
        let took = begun.elapsed();
        if spun && took > WAKE_UP {
            self.backoff.skipped.store(SKIPPED, Relaxed);
        } else if took <= SHORT {
            self.backoff.skipped.store(0, Relaxed);
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

    /// A wait that spins up to `checks` times. Returns true if it spun `checks` times. Otherwise sleeps for
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
        assert!(!wait(&backoff, u32::MAX, SHORT), "the first wait spins until its limit");
        for _ in 0..2 {
            for number in 0..SKIPPED {
                assert!(!wait(&backoff, 1, 2 * SHORT), "wait {number} spins");
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
        assert!(!wait(&backoff, 1, 2 * SHORT));
        // On a loaded machine some of these waits are long, but at least one is short.
        let slept = (0..SKIPPED / 2).filter(|_| !wait(&backoff, 1, Duration::ZERO)).count();
        assert!(slept < SKIPPED as usize / 2, "no wait spins, although the waits are short");
    }

    #[test]
    fn waits_never_spin_on_few_cores() {
        let backoff = backoff(false);
        assert!(!wait(&backoff, 1, Duration::ZERO));
        assert!(backoff.wait().begun.is_none(), "the clock is not read");
    }
}
