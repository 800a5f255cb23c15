//! For how many copies a maker waits at a time: where the device is far slower than the decoding, for several, to be woken once
//! for all of them.
//!
//! On an H200 a wait for an event costs a thread about 38 us of CPU time, and each sleep of the next thread down the line 20,
//! however long they last; to fill and send a batch of 100 KB costs 13. A pipeline whose device takes 2 ms a step does nothing
//! else, and pays the first two for every batch. When it fills two slots each time it wakes, it pays them for every other one.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// What the waits for slots were like.
///
/// While the last wait for copies was long, and long against what a batch takes to make, the next one is for half of the ring's
/// slots. The other half is on its way meanwhile, so the copy stream has work while these are filled, and the device slots are
/// full: nothing waits for the batches that are made later. A run begins without: its first batches are waited for.
pub(crate) struct Patience {
    /// Half of the slots; one, where there are not enough of them.
    half: usize,
    /// What the last wait took for each of its copies.
    wait: Duration,
    /// Copies that ended with the last wait, and whose slots were not taken yet.
    ended: usize,
    /// What the last batch takes one worker to make.
    batch: Duration,
    /// When the last slot was taken.
    taken: Instant,
}

impl Patience {
    /// With fewer slots there is no half that could be on its way while the other is filled one by one.
    const SLOTS: usize = 4;
    /// Shorter waits are those of a device that is nearly waited for. Longer ones cost less than 0.7 % of a core as they are,
    /// and who stops the pipeline waits for them.
    const WAITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(10);
    /// How many times as long as the making of a batch.
    const TIMES: u32 = 8;

    /// None yet, for a ring of `slots` slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            half: if slots < Self::SLOTS { 1 } else { slots / 2 },
            wait: Duration::ZERO,
            ended: 0,
            batch: Duration::ZERO,
            taken: Instant::now(),
        }
    }

    /// Another run begins.
    pub(crate) fn forget(&mut self) {
        (self.wait, self.ended) = (Duration::ZERO, 0);
    }

    /// A batch is about to be made, which takes one worker about `time`.
    pub(crate) fn make(&mut self, time: Duration) {
        self.batch = time;
    }

    /// For how many copies to wait at `now`, when the first of them has not ended.
    pub(crate) fn copies(&self, now: Instant) -> usize {
        // Since the last slot was taken: all that is done by one maker at a time, such as reading a source.
        let batch = self.batch.max(now.duration_since(self.taken));
        let is_slow = Self::WAITS.contains(&self.wait) && batch.saturating_mul(Self::TIMES) <= self.wait;
        if self.ended == 0 && is_slow { self.half } else { 1 }
    }

    /// A slot was taken at `now`, after a wait for `copies` copies since `start`.
    pub(crate) fn took(&mut self, copies: usize, start: Instant, now: Instant) {
        self.taken = now;
        if self.ended > 0 {
            self.ended -= 1;
            return;
        }
        (self.wait, self.ended) =
            (now.duration_since(start) / copies.max(1) as u32, copies.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(2);

    /// Makers on a clock of their own: batches that take `batch`, and a device that takes a step for each.
    struct Rig {
        patience: Patience,
        now: Instant,
    }

    impl Rig {
        fn new(slots: usize) -> Self {
            let patience = Patience::new(slots);
            Self { now: patience.taken, patience }
        }

        /// Takes a slot after a wait of `wait` for each copy that is waited for, and makes a batch; how many copies that were.
        fn step(&mut self, wait: Duration, batch: Duration) -> usize {
            let (copies, start) = (self.patience.copies(self.now), self.now);
            self.now += wait * copies as u32;
            self.patience.took(copies, start, self.now);
            self.patience.make(batch);
            self.now += batch;
            copies
        }

        /// As [`step`](Self::step) on a slow device: after a wait for several copies none is waited for, for the rest of them.
        fn steps(&mut self, count: usize, batch: Duration) -> Vec<usize> {
            let step = |_| self.step(if self.patience.ended > 0 { Duration::ZERO } else { STEP }, batch);
            (0..count).map(step).collect()
        }
    }

    #[test]
    fn a_slow_device_is_waited_for_by_half_the_ring() {
        let quick = STEP / 8;
        assert_eq!(Rig::new(4).steps(7, quick), [1, 2, 1, 2, 1, 2, 1]);
        assert_eq!(Rig::new(9).steps(7, quick), [1, 4, 1, 1, 1, 4, 1]);
        assert_eq!(Rig::new(3).steps(7, quick), [1; 7], "no half is left for the copy stream");
    }

    #[test]
    fn nothing_is_put_off_where_time_is_short() {
        let slow = STEP / 8 + Duration::from_nanos(1);
        assert_eq!(Rig::new(4).steps(7, slow), [1; 7], "the batches take long to make");
        let waits = |wait| {
            let mut rig = Rig::new(4);
            [(); 3].map(|()| rig.step(wait, Duration::ZERO))
        };
        assert_eq!(waits(*Patience::WAITS.start()), [1, 2, 1]);
        assert_eq!(waits(*Patience::WAITS.start() - Duration::from_nanos(1)), [1; 3], "the waits are short");
        assert_eq!(waits(*Patience::WAITS.end() + Duration::from_nanos(1)), [1; 3], "the waits are too long");
        // What is not decoding, but is done by one maker at a time, counts too.
        let mut rig = Rig::new(4);
        rig.step(STEP, Duration::ZERO);
        rig.now += slow;
        assert_eq!(rig.step(STEP, Duration::ZERO), 1);
    }

    #[test]
    fn it_ends_with_the_first_short_wait_and_with_the_run() {
        let mut rig = Rig::new(4);
        assert_eq!(rig.steps(3, Duration::ZERO), [1, 2, 1]);
        assert_eq!(rig.step(Duration::ZERO, Duration::ZERO), 2, "the last wait was long");
        assert_eq!(rig.steps(1, Duration::ZERO), [1], "its second slot");
        assert_eq!(rig.steps(2, Duration::ZERO), [1, 2], "the one before was short");
        let mut rig = Rig::new(4);
        assert_eq!(rig.steps(2, Duration::ZERO), [1, 2]);
        rig.patience.forget();
        assert_eq!(rig.steps(2, Duration::ZERO), [1, 2], "the first wait of a run is for its first slot");
    }
}
