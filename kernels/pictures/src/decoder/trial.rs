//! Whether the CPU helps the GPU: the rates with it and without it, measured in turns.
//!
//! The CPU's own rate does not tell. Beside an H100 half of the cores decoded 15 % of the pictures, and the
//! GPU got that much slower, because its files are read and loaded by the same cores: 20,500 pictures/s
//! together, 22,000 by the GPU alone (bench `jpeg-gpu`, 2026-11-25).

use std::time::{Duration, Instant};

/// The length of a turn. It holds 30 batches of 256 pictures at 22,000 pictures/s.
const TURN: Duration = Duration::from_millis(400);

/// Turns of a trial: half of them with the CPU.
const TURNS: u32 = 4;

/// The time after a trial until the next one.
const KEPT: Duration = Duration::from_secs(30);

/// How much faster the decoders must be with the CPU. Otherwise its cores are left to others.
const GAIN: f64 = 1.02;

/// The trials of the decoders that share a GPU.
#[derive(Debug)]
pub(super) struct Trial {
    with_cpu: bool,
    /// The turns that have ended; after the last one, `with_cpu` is the result.
    turns: u32,
    /// The sums of their rates, without and with the CPU.
    rates: [f64; 2],
    /// The beginning of the turn, and the pictures decoded since.
    since: Option<Instant>,
    pictures: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self { with_cpu: true, turns: 0, rates: [0.0; 2], since: None, pictures: 0 }
    }
}

impl Trial {
    /// Whether the CPU decodes pictures that wait for the GPU.
    pub(super) fn with_cpu(&self) -> bool {
        self.with_cpu
    }

    /// A batch of `pictures` pictures was decoded at `now`.
    pub(super) fn add(&mut self, pictures: u64, now: Instant) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.pictures += pictures;
        let time = now.saturating_duration_since(since);
        let is_decided = self.turns == TURNS;
        if time < if is_decided { KEPT } else { TURN } {
            return;
        }
        if is_decided {
            *self = Self::default();
        } else {
            self.rates[usize::from(self.with_cpu)] += self.pictures as f64 / time.as_secs_f64();
            self.turns += 1;
            let [without, with] = self.rates;
            self.with_cpu = if self.turns == TURNS { with > GAIN * without } else { !self.with_cpu };
        }
        (self.since, self.pictures) = (Some(now), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the time with the CPU in the second minute, if the decoders have these rates in batches of
    /// 256 pictures.
    fn with_cpu(without: f64, with: f64) -> f64 {
        let (mut trial, start, mut seconds) = (Trial::default(), Instant::now(), 0.0);
        let (mut all, mut helped) = (0.0, 0.0);
        while seconds < 120.0 {
            let time = 256.0 / if trial.with_cpu() { with } else { without };
            if seconds > 60.0 {
                all += time;
                helped += if trial.with_cpu() { time } else { 0.0 };
            }
            seconds += time;
            trial.add(256, start + Duration::from_secs_f64(seconds));
        }
        helped / all
    }

    #[test]
    fn the_faster_way_is_kept_and_tried_again() {
        // A trial of 1.6 s in 31.6 s, half of it the slower way.
        assert!((0.9..1.0).contains(&with_cpu(20_000.0, 25_000.0)));
        assert!((0.01..0.1).contains(&with_cpu(22_000.0, 20_500.0)));
        // A CPU that gains nothing is left to others: the training step sets the pace.
        assert!((0.01..0.1).contains(&with_cpu(5_000.0, 5_000.0)));
        // Batches that take longer than a turn.
        assert!(with_cpu(100.0, 200.0) > 0.8 && with_cpu(200.0, 100.0) < 0.3);
    }

    #[test]
    fn it_begins_with_the_cpu_and_takes_both_ways_in_turn() {
        let (mut trial, start) = (Trial::default(), Instant::now());
        let mut ways = vec![trial.with_cpu()];
        for batch in 0..5 {
            trial.add(256, start + batch * TURN);
            ways.push(trial.with_cpu());
        }
        // The first batch begins the first turn.
        assert_eq!(ways, [true, true, false, true, false, false]);
    }
}
