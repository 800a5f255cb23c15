//! [`Workers::Auto`](crate::Workers::Auto): puts workers to sleep that do not help.
//!
//! All workers start awake, so that nothing is lost at the start. The tuner measures the rate of a window of
//! batches, tries fewer workers, and keeps a smaller number if the rate stays. A bisection between numbers
//! that are enough and numbers that are too few ends after a few windows; it starts at the number that the
//! service times suggest. Too few workers do not slow down the consumer as long as batches decoded earlier
//! last, so the measured rate is limited to the rate of the decoding. If the rate falls later while the
//! consumer waits, all workers wake up and the search starts again.

use std::fmt;

use feedline_core::timeline::Timeline;
use serde::{Deserialize, Serialize};

use crate::report::ServiceTimes;

/// The min length of a window, and its min number of batches.
const WINDOW_NS: u64 = 50_000_000;
const WINDOW_BATCHES: u64 = 16;

/// A window of slow batches ends after this time if it has this many of them.
const LONG_NS: u64 = 1_000_000_000;
const FEW_BATCHES: u64 = 4;

/// Fewer workers are enough if their rate is at least this share of the rate of all workers.
const ENOUGH: f64 = 0.98;

/// The search starts again if the rate falls below this share, and the consumer waits at least this share of
/// its time.
const FALLEN: f64 = 0.9;
const WAITS: f64 = 0.03;

/// Max number of searches, so that the number of changes is bounded.
const SEARCHES: u32 = 8;

/// Workers beyond what the mean service times require, as a factor: times vary.
const SPARE: f64 = 1.1;

/// The state of [`Workers::Auto`](crate::Workers::Auto). Displays as the builder's call that gives the same
/// number of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Workers that take work now.
    pub workers: usize,
    /// All workers; the others sleep.
    pub max_workers: usize,
    /// Whether the search has ended. It starts again if the rate falls.
    pub is_settled: bool,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_settled { "tuned" } else { "tuning" };
        write!(f, "{state}: .workers(Workers::Count({})), of {}", self.workers, self.max_workers)
    }
}

/// Searches for the smallest number of workers that is enough.
pub(crate) struct Tuner {
    tuning: Tuning,
    /// The largest number that was too few.
    too_few: usize,
    /// The last number that was enough, while a smaller one is tried.
    enough: Option<usize>,
    /// The best rate of this search, in batches per second.
    best: f64,
    searches: u32,
    depth: usize,
    window: Window,
}

/// The batches that are measured.
#[derive(Default)]
struct Window {
    /// Batches to skip first: they were in the pipeline before the last change.
    skip: usize,
    /// The time of the last change.
    opened: u64,
    from: u64,
    batches: u64,
    waited: u64,
    /// The number of delivered batches that were begun after the last change, and the time that workers spent
    /// decoding them.
    decoded: u64,
    decode_ns: u64,
}

impl Tuner {
    /// A tuner that begins with all workers. At most `depth` batches are on the device at a time.
    pub(crate) fn new(max_workers: usize, depth: usize) -> Self {
        let tuning = Tuning { workers: max_workers, max_workers, is_settled: max_workers < 2 };
        let (too_few, enough, best, searches) = (0, None, 0.0, 1);
        let mut tuner = Self { tuning, too_few, enough, best, searches, depth, window: Window::default() };
        tuner.begin_window(0);
        tuner
    }

    /// The state of the search.
    pub(crate) fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// A batch with this `timeline` was delivered at `at`, after a wait of `waited` nanoseconds; `service`
    /// gives the mean service times. Returns the new state if it has changed.
    pub(crate) fn delivered(
        &mut self,
        at: u64,
        waited: u64,
        timeline: &Timeline,
        service: impl Fn() -> ServiceTimes,
    ) -> Option<Tuning> {
        let window = &mut self.window;
        if timeline.begun >= window.opened {
            window.decoded += 1;
            window.decode_ns += timeline.decode_ns;
        }
        if window.skip > 0 {
            window.skip -= 1;
            window.from = at;
            return None;
        }
        window.batches += 1;
        window.waited += waited;
        let ns = at.saturating_sub(window.from).max(1);
        let is_long = ns >= LONG_NS && window.batches >= FEW_BATCHES;
        if !is_long && (ns < WINDOW_NS || window.batches < WINDOW_BATCHES.max(4 * self.depth as u64)) {
            return None;
        }
        let wait_share = window.waited as f64 / ns as f64;
        let rate = (window.batches as f64 * 1e9 / ns as f64).min(window.max_rate(self.tuning.workers));
        let before = self.tuning;
        self.measured(rate, wait_share, &service());
        self.begin_window(at);
        (self.tuning != before).then_some(self.tuning)
    }

    /// The consumer was busy with something else for `ns` nanoseconds, such as a validation.
    pub(crate) fn paused(&mut self, ns: u64) {
        self.window.from += ns;
    }

    fn begin_window(&mut self, opened: u64) {
        self.window = Window { skip: 2 * self.depth + 2, opened, ..Window::default() };
    }

    fn measured(&mut self, rate: f64, wait_share: f64, service: &ServiceTimes) {
        let Tuning { workers, max_workers, is_settled } = self.tuning;
        if is_settled {
            let has_fallen = rate < FALLEN * self.best && wait_share >= WAITS && workers < max_workers;
            if has_fallen && self.searches < SEARCHES {
                *self = Self { searches: self.searches + 1, ..Self::new(max_workers, self.depth) };
            }
            return;
        }
        // A consumer that hardly waits has enough workers, even if its own step has become slower.
        let is_enough = rate >= ENOUGH * self.best || wait_share < WAITS;
        let enough = match self.enough.take() {
            Some(enough) if !is_enough => {
                self.too_few = workers;
                enough
            }
            _ => workers,
        };
        self.best = self.best.max(rate);
        self.tuning.workers = enough;
        if enough - self.too_few <= 1 {
            self.tuning.is_settled = true;
            return;
        }
        // The search begins with the number of workers that the service times require, unless that is all of
        // them.
        let middle = self.too_few.midpoint(enough).max(1);
        let first = Some(required(service)).filter(|&first| self.too_few == 0 && first < enough);
        self.enough = Some(enough);
        self.tuning.workers = first.unwrap_or(middle);
    }
}

impl Window {
    /// The max number of batches per second that `workers` can decode; NaN or infinite if no time was
    /// measured.
    fn max_rate(&self, workers: usize) -> f64 {
        workers as f64 * 1e9 * self.decoded as f64 / self.decode_ns as f64
    }
}

/// The number of workers whose decoding is as fast as the longest other stage.
fn required(service: &ServiceTimes) -> usize {
    let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns } = *service;
    let others = copy_ns.max(submit_ns).max(map_ns).max(step_ns).max(device_ns).max(read_ns).max(1);
    ((SPARE * (read_ns + decode_ns) as f64 / others as f64).ceil() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_report::{Cause, Profile, Setup, WhatIf};

    const MAX: usize = 12;
    const DEPTH: usize = 8;

    fn times([decode, copy, step]: [u64; 3]) -> ServiceTimes {
        ServiceTimes {
            decode_ns: 1000 * decode,
            copy_ns: 1000 * copy,
            step_ns: 1000 * step,
            ..Default::default()
        }
    }

    /// The rate and the wait share of a pipeline with these times, in microseconds.
    fn pipeline(workers: usize, all: [u64; 3]) -> (f64, f64) {
        let setup = Setup { batch_size: 64, ..Setup::default() };
        let what = WhatIf { workers: Some(workers), depth: Some(DEPTH), ..WhatIf::default() };
        let service: feedline_report::ServiceTimes = from_report(times(all));
        let prediction = what.predict(&Profile { setup, samples: vec![service], ..Profile::default() }, 200);
        (prediction.batches_per_s(), 1.0 - prediction.account.share(Cause::Consumer))
    }

    /// The same type of the crate that these tests are not compiled against.
    fn from_report(times: ServiceTimes) -> feedline_report::ServiceTimes {
        let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns } = times;
        feedline_report::ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns }
    }

    /// A simulated run; `run` returns the rate and the wait share for a number of workers.
    struct Run {
        tuner: Tuner,
        at: u64,
        changes: Vec<usize>,
    }

    impl Run {
        fn new() -> Self {
            Self { tuner: Tuner::new(MAX, DEPTH), at: 1, changes: Vec::new() }
        }

        fn batch(&mut self, run: impl Fn(usize) -> (f64, f64), service: ServiceTimes) {
            self.timed_batch(&Timeline::default(), run, service);
        }

        fn timed_batch(
            &mut self,
            timeline: &Timeline,
            run: impl Fn(usize) -> (f64, f64),
            service: ServiceTimes,
        ) {
            let (rate, share) = run(self.tuner.tuning().workers);
            let ns = (1e9 / rate) as u64;
            self.at += ns;
            let changed = self.tuner.delivered(self.at, (share * ns as f64) as u64, timeline, || service);
            self.changes.extend(changed.map(|tuning| tuning.workers));
        }

        /// Runs until the search has ended; returns the number of workers.
        fn converge(&mut self, run: impl Fn(usize) -> (f64, f64), service: ServiceTimes) -> usize {
            for _ in 0..100_000 {
                self.batch(&run, service);
                if self.tuner.tuning().is_settled {
                    return self.tuner.tuning().workers;
                }
            }
            panic!("never settled: {}", self.tuner.tuning());
        }
    }

    /// A grid of decode, copy and step times; the service times are exact, unknown, or too large.
    #[test]
    fn the_tuner_settles_at_the_smallest_number_that_is_within_five_percent_of_the_best() {
        let mut cases = 0;
        for decode in [50, 1000, 6000, 40_000] {
            for copy in [20, 900, 5000] {
                for step in [10, 1000, 8000] {
                    let all = [decode, copy, step];
                    let rates: Vec<_> = (0..=MAX).map(|workers| pipeline(workers.max(1), all)).collect();
                    let best = rates.iter().map(|rate| rate.0).fold(0.0, f64::max);
                    let smallest = (1..=MAX).find(|&workers| rates[workers].0 >= 0.99 * best);
                    for service in [times(all), ServiceTimes::default(), times([100 * decode, copy, step])] {
                        let mut run = Run::new();
                        let workers = run.converge(|workers| rates[workers], service);
                        let (rate, _) = rates[workers];
                        let what = format!("{all:?} us: {workers} workers, {:?}", run.changes);
                        assert!(rate >= 0.95 * best, "{rate} of {best}: {what}");
                        assert!(workers <= smallest.expect("a number") + 1, "{smallest:?}: {what}");
                        assert!(run.changes.len() <= 10, "{what}");
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 108);
    }

    #[test]
    fn workers_that_only_slow_each_other_down_go_to_sleep() {
        let slow = |workers: usize| (100.0 * if workers <= 2 { workers as f64 } else { 1.9 }, 0.9);
        assert_eq!(Run::new().converge(slow, times([12_000, 10, 10])), 2);
    }

    /// A copy takes 4 ms, and decoding 4.3 ms on one worker. For a long time batches that were decoded
    /// earlier arrive at the rate of the copies; decoding the last of these took longer, beside other
    /// workers.
    #[test]
    fn batches_that_were_decoded_ahead_do_not_hide_that_one_worker_is_too_few() {
        let (mut run, service) = (Run::new(), times([4300, 4000, 10]));
        let (mut changes, mut ahead) = (0, 0);
        while !run.tuner.tuning().is_settled {
            let (begun, decode_ns) = if ahead > 0 { (1, 50_000_000) } else { (run.at, 4_300_000) };
            run.timed_batch(&Timeline { begun, decode_ns, ..Timeline::default() }, |_| (250.0, 0.7), service);
            ahead = if run.changes.len() > changes { 4 * DEPTH } else { ahead.saturating_sub(1) };
            changes = run.changes.len();
        }
        assert_eq!((run.tuner.tuning().workers, &run.changes[..]), (2, &[2, 1, 2][..]));
    }

    #[test]
    fn a_number_that_is_too_small_is_undone() {
        let mut run = Run::new();
        assert_eq!(run.converge(|workers| (100.0 * workers as f64, 0.9), times([1, 10, 10])), MAX);
        assert_eq!(run.changes, [1, MAX.midpoint(1), 9, 10, 11, MAX]);
    }

    #[test]
    fn a_consumer_that_does_not_wait_needs_one_worker() {
        assert_eq!(Run::new().converge(|_| (100.0, 0.01), times([10, 10, 10_000])), 1);
    }

    /// The data becomes slower to decode after the search has ended.
    #[test]
    fn all_workers_wake_up_when_the_rate_falls_and_not_without_end() {
        let (mut run, before) = (Run::new(), times([10, 10, 10_000]));
        assert_eq!(run.converge(|_| (100.0, 0.01), before), 1);
        let harder = |workers: usize| (10.0 * workers as f64, 0.8);
        for _ in 0..1_000 {
            if run.tuner.tuning().is_settled {
                run.batch(harder, before);
            }
        }
        assert_eq!(run.tuner.tuning().workers, MAX);
        assert_eq!(run.converge(harder, times([1_200_000, 10, 10_000])), MAX);
        // A rate that falls again and again.
        let mut rate = 1e6;
        let mut run = Run::new();
        for _ in 0..100 {
            rate /= 1.2;
            run.converge(|_| (rate, 0.5), before);
            for _ in 0..50 {
                run.batch(|_| (rate, 0.5), before);
            }
        }
        assert!(run.changes.len() <= 10 * SEARCHES as usize, "{:?}", run.changes);
        assert!(run.tuner.tuning().is_settled);
    }

    /// Between two epochs nothing is measured.
    #[test]
    fn a_pause_does_not_count() {
        let best = |pause: u64| {
            let mut run = Run::new();
            for batch in 0.. {
                if batch == 25 {
                    run.at += pause;
                    run.tuner.paused(pause);
                }
                run.batch(|_| (200.0, 0.8), times([10, 10, 10]));
                if !run.changes.is_empty() {
                    return run.tuner.best;
                }
            }
            unreachable!("the loop ends with the first change")
        };
        assert_eq!(best(0), best(10_000_000_000));
    }
}
