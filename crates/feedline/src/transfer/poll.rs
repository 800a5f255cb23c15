//! How often to look whether a copy has ended.
//!
//! Nothing wakes a thread at the end of a copy but a wait for its event, which costs 38 us of CPU time on
//! an H200; a look
//! costs 0.3 us, and the wake-up for it about 20 us (2026-11-22, bench `idle`). So the transfer thread
//! looks, more rarely
//! the longer the copies take.
//!
//! Where the device takes a millisecond or more per batch, the slots hold several batches that are decoded
//! and submitted.
//! Then the thread lets the copies of half of them end before it looks, and hands out those slots
//! together: nothing waits
//! for the batches that are decoded later, and the device has the other half to work on.

use std::time::Duration;

/// The shortest and the longest time between two looks at a quick device.
const QUICK: (Duration, Duration) = (Duration::from_micros(25), Duration::from_micros(250));

/// A device that takes as long per batch is slow.
const SLOW: Duration = Duration::from_millis(1);

/// The longest time between two looks at a slow device.
const LONGEST: Duration = Duration::from_millis(10);

/// Remembers how long the device takes per batch.
#[derive(Debug, Default)]
pub(super) struct CopyPoll {
    per_copy: Duration,
}

impl CopyPoll {
    /// When to look again, after a wait of `waited` so far, while `in_flight` slots are being copied.
    pub(super) fn interval(&self, in_flight: usize, waited: Duration) -> Duration {
        if self.per_copy < SLOW {
            return (self.per_copy.max(waited) / 4).clamp(QUICK.0, QUICK.1);
        }
        let half = u32::try_from(in_flight / 2).unwrap_or(u32::MAX).max(1);
        self.per_copy.saturating_mul(half).saturating_sub(waited).clamp(SLOW / 4, LONGEST)
    }

    /// A wait of `waited` has ended; `copies` copies had ended by then.
    pub(super) fn waited(&mut self, waited: Duration, copies: usize) {
        self.per_copy = waited / u32::try_from(copies.max(1)).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(2);

    #[test]
    fn a_quick_device_is_looked_at_often() {
        let mut poll = CopyPoll::default();
        assert_eq!(poll.interval(9, Duration::ZERO), QUICK.0);
        assert_eq!(poll.interval(9, Duration::from_micros(400)), Duration::from_micros(100));
        poll.waited(Duration::from_micros(600), 1);
        assert_eq!(poll.interval(9, Duration::ZERO), Duration::from_micros(150));
        assert_eq!(poll.interval(9, STEP), QUICK.1, "until it is known to be slow");
    }

    #[test]
    fn a_slow_device_is_looked_at_when_half_of_the_copies_have_ended() {
        let mut poll = CopyPoll::default();
        poll.waited(STEP, 1);
        assert_eq!(
            [9, 4, 2, 1].map(|slots| poll.interval(slots, Duration::ZERO)),
            [4, 2, 1, 1].map(|n| n * STEP)
        );
        assert_eq!(poll.interval(4, 3 * STEP), SLOW / 4, "it is later than expected");
        poll.waited(4 * STEP, 4);
        assert_eq!(poll.interval(9, Duration::ZERO), 4 * STEP);
        poll.waited(Duration::from_secs(1), 1);
        assert_eq!(poll.interval(9, Duration::ZERO), LONGEST);
        poll.waited(4 * STEP, 50);
        assert_eq!(poll.interval(9, Duration::ZERO), Duration::from_micros(40), "it is quick now");
    }
}
