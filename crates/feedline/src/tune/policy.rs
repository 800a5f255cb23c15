//! When to move which knob, and which moves to keep.
//!
//! The tuner measures the rate of a window of batches. If the consumer waits, it doubles the knob for which
//! the model of the pipeline predicts the higher rate, measures again, and keeps the new setting if the rate
//! has grown. A knob that did not help twice is left alone until the other one has helped. So the number of
//! moves is bounded: the tuner settles.

use super::tuning::{Move, Setting, Tuning};

/// The min length of a window, and its min number of batches.
const WINDOW_NS: u64 = 50_000_000;
const WINDOW_BATCHES: u64 = 16;

/// Slow batches: a window of this length needs only this many batches.
const LONG_NS: u64 = 1_000_000_000;
const FEW_BATCHES: u64 = 4;

/// A consumer whose share of waiting is smaller has nothing to gain.
const LITTLE: f64 = 0.03;

/// A move is kept if the rate grows by this factor.
const HELPS: f64 = 1.02;

/// Max unsuccessful tries of a knob.
const TRIES: u32 = 2;

/// Decides on the moves.
pub(crate) struct Policy {
    most: Setting,
    now: Setting,
    trial: Option<Trial>,
    /// Unsuccessful tries in a row: of the workers, and of the depth.
    failed: [u32; 2],
    moves: Vec<Move>,
    is_settled: bool,
    window: Window,
}

/// A move that is being measured.
struct Trial {
    knob: usize,
    from: Setting,
    before: f64,
    predicted: f64,
}

/// The batches that are measured.
#[derive(Default)]
struct Window {
    /// Batches to skip first: they were in the pipeline before the last move.
    skip: usize,
    from: u64,
    batches: u64,
    waited: u64,
}

impl Policy {
    /// Begins with `least`, and never exceeds `most`. A knob that is equal in both is not moved.
    pub(crate) fn new(least: Setting, most: Setting) -> Self {
        let mut policy = Self {
            most,
            now: least,
            trial: None,
            failed: [0; 2],
            moves: Vec::new(),
            is_settled: false,
            window: Window::default(),
        };
        policy.begin_window();
        policy
    }

    /// The setting to use.
    pub(crate) fn now(&self) -> Setting {
        self.now
    }

    /// The state of the tuning so far.
    pub(crate) fn tuning(&self) -> Tuning {
        Tuning { setting: self.now, is_settled: self.is_settled, moves: self.moves.clone() }
    }

    /// A batch was delivered at `at`, after a wait of `waited` nanoseconds. `predict` gives the expected rate
    /// of a setting. Returns true if the setting or the log has changed.
    pub(crate) fn delivered(&mut self, at: u64, waited: u64, predict: impl Fn(Setting) -> f64) -> bool {
        if self.is_settled {
            return false;
        }
        let window = &mut self.window;
        if window.skip > 0 {
            window.skip -= 1;
            window.from = at;
            return false;
        }
        window.batches += 1;
        window.waited += waited;
        let ns = at.saturating_sub(window.from).max(1);
        let is_long = ns >= LONG_NS && window.batches >= FEW_BATCHES;
        if !is_long && (ns < WINDOW_NS || window.batches < WINDOW_BATCHES.max(4 * self.now.depth as u64)) {
            return false;
        }
        let (rate, wait_share) = (window.batches as f64 * 1e9 / ns as f64, window.waited as f64 / ns as f64);
        self.measured(rate, wait_share, predict);
        self.begin_window();
        true
    }

    /// The consumer was busy with something else for `ns` nanoseconds.
    pub(crate) fn paused(&mut self, ns: u64) {
        self.window.from += ns;
    }

    /// Raises the depth to at least `depth`, or to all slots.
    pub(crate) fn need_depth(&mut self, depth: usize) {
        let depth = depth.min(self.most.depth);
        self.now.depth = self.now.depth.max(depth);
        if let Some(trial) = &mut self.trial {
            trial.from.depth = trial.from.depth.max(depth);
        }
        self.begin_window();
    }

    /// Ends the tuning.
    pub(crate) fn freeze(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.now = trial.from;
        }
        self.is_settled = true;
    }

    fn begin_window(&mut self) {
        self.window = Window { skip: 2 * self.now.depth + 2, ..Window::default() };
    }

    fn measured(&mut self, rate: f64, wait_share: f64, predict: impl Fn(Setting) -> f64) {
        if let Some(Trial { knob, from, before, predicted }) = self.trial.take() {
            let is_kept = rate >= HELPS * before;
            self.moves.push(Move { from, to: self.now, before, predicted, obtained: rate, is_kept });
            if !is_kept {
                self.failed[knob] += 1;
                self.now = from;
                return; // the old setting is measured again
            }
            self.failed = [0; 2];
        }
        let next = if wait_share < LITTLE { None } else { self.next(rate, predict) };
        match next {
            None => self.is_settled = true,
            Some((knob, to, predicted)) => {
                self.trial = Some(Trial { knob, from: self.now, before: rate, predicted });
                self.now = to;
            }
        }
    }

    /// The most promising move: the knob, the setting and the predicted rate.
    fn next(&self, rate: f64, predict: impl Fn(Setting) -> f64) -> Option<(usize, Setting, f64)> {
        let Setting { workers, depth } = self.now;
        let moves = [
            Setting { workers: (2 * workers).min(self.most.workers), depth },
            Setting { workers, depth: (2 * depth).min(self.most.depth) },
        ];
        let open = |knob: &usize| moves[*knob] != self.now && self.failed[*knob] < TRIES;
        let present = predict(self.now).max(f64::MIN_POSITIVE);
        (0..2)
            .filter(open)
            .map(|knob| (knob, moves[knob], rate * predict(moves[knob]) / present))
            .max_by(|a, b| a.2.total_cmp(&b.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_report::{Cause, Profile, ServiceTimes, Setup, WhatIf};

    const MOST: Setting = Setting { workers: 12, depth: 8 };

    /// The rate and the wait share of a pipeline with these times, in microseconds.
    fn pipeline(setting: Setting, [decode, copy, step]: [u64; 3]) -> (f64, f64) {
        let times = ServiceTimes {
            decode_ns: 1000 * decode,
            copy_ns: 1000 * copy,
            step_ns: 1000 * step,
            ..Default::default()
        };
        let setup = Setup { batch_size: 64, ..Setup::default() };
        let what = WhatIf { workers: Some(setting.workers), depth: Some(setting.depth), ..WhatIf::default() };
        let prediction = what.predict(&Profile { setup, samples: vec![times] }, 200);
        (prediction.batches_per_s(), 1.0 - prediction.account.share(Cause::Consumer))
    }

    /// Tunes until it settles, on a simulated pipeline `run`.
    fn tune(run: impl Fn(Setting) -> (f64, f64), predict: impl Fn(Setting) -> f64) -> Policy {
        let mut policy = Policy::new(Setting { workers: 1, depth: 2 }, MOST);
        let mut at = 1;
        for _ in 0..1_000_000 {
            let (rate, share) = run(policy.now());
            let ns = (1e9 / rate) as u64;
            at += ns;
            policy.delivered(at, (share * ns as f64) as u64, &predict);
            if policy.is_settled {
                return policy;
            }
        }
        panic!("never settled: {}", policy.tuning());
    }

    fn best(run: impl Fn(Setting) -> (f64, f64)) -> f64 {
        let all = (1..=MOST.workers).flat_map(|workers| (1..=MOST.depth).map(move |depth| (workers, depth)));
        all.map(|(workers, depth)| run(Setting { workers, depth }).0).fold(0.0, f64::max)
    }

    /// A grid of decode, copy and step times; the model is exact, has no opinion, or predicts too much.
    #[test]
    fn the_tuner_settles_within_five_percent_of_the_best_setting() {
        let mut cases = 0;
        for decode in [50, 1000, 6000, 40_000] {
            for copy in [20, 900, 5000] {
                for step in [10, 1000, 8000] {
                    let run = |setting| pipeline(setting, [decode, copy, step]);
                    let best = best(run);
                    let models: [&dyn Fn(Setting) -> f64; 3] =
                        [&|setting| run(setting).0, &|_| 1.0, &|setting| setting.workers as f64];
                    for model in models {
                        let policy = tune(run, model);
                        let (rate, _) = run(policy.now());
                        let what = format!("{decode} {copy} {step} us\n{}", policy.tuning());
                        assert!(rate >= 0.95 * best, "{rate} of {best}: {what}");
                        assert!(policy.moves.len() <= 16, "{what}");
                        assert!(policy.now().workers <= MOST.workers && policy.now().depth <= MOST.depth);
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 108);
    }

    #[test]
    fn a_move_that_does_not_help_is_undone_and_logged_with_its_prediction() {
        // Beyond 2 of 12 workers, further ones only slow each other down.
        let run =
            |Setting { workers, .. }: Setting| (100.0 * if workers <= 2 { workers as f64 } else { 1.9 }, 0.9);
        let policy = tune(run, |setting| setting.workers as f64);
        let tuning = policy.tuning();
        assert_eq!(tuning.setting, Setting { workers: 2, depth: 2 }, "{tuning}");
        let text = tuning.to_string();
        assert!(
            text.starts_with("workers 1 to 2: 100 batches/s, predicted 200, obtained 200: kept\n"),
            "{text}"
        );
        assert!(
            text.contains("workers 2 to 4: 200 batches/s, predicted 400, obtained 190: undone\n"),
            "{text}"
        );
        assert!(text.ends_with("settled: .workers(Workers::Count(2)).depth(2)"), "{text}");
    }

    #[test]
    fn a_consumer_that_does_not_wait_keeps_the_smallest_setting() {
        let policy = tune(|_| (100.0, 0.01), |_| 1.0);
        assert_eq!((policy.now(), policy.moves.len()), (Setting { workers: 1, depth: 2 }, 0));
    }

    #[test]
    fn a_trial_is_undone_when_the_tuning_is_frozen() {
        let mut policy = Policy::new(Setting { workers: 1, depth: 2 }, MOST);
        let mut at = 0;
        while policy.trial.is_none() {
            at += 5_000_000;
            policy.delivered(at, 4_000_000, |setting| setting.workers as f64);
        }
        assert_eq!(policy.now(), Setting { workers: 2, depth: 2 });
        policy.need_depth(4);
        policy.freeze();
        assert_eq!(policy.now(), Setting { workers: 1, depth: 4 }, "the depth that the consumer needs stays");
        assert!(!policy.delivered(at + 1_000_000_000, 0, |_| 1.0));
    }

    /// Between two epochs nothing is measured.
    #[test]
    fn a_pause_does_not_count() {
        let rate = |pause: u64| {
            let mut policy = Policy::new(Setting { workers: 1, depth: 2 }, MOST);
            let (mut at, mut count) = (0, 0);
            while policy.trial.is_none() {
                at += 5_000_000;
                count += 1;
                if count == 15 {
                    at += pause;
                    policy.paused(pause);
                }
                policy.delivered(at, 4_000_000, |setting| setting.workers as f64);
            }
            policy.trial.map(|trial| trial.before)
        };
        assert_eq!(rate(0), rate(10_000_000_000));
    }
}
