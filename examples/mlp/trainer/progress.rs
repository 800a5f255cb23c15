//! The progress bars; hidden with `--quiet`, and if standard error is not a terminal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

fn bar(quiet: bool, template: &str) -> ProgressBar {
    // indicatif itself hides a bar if standard error is not a terminal.
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("█▌ "))
}

/// The bar shown while the digits are drawn.
pub fn drawing(quiet: bool) -> ProgressBar {
    bar(quiet, "drawing digits  {bar:30} {human_pos}/{human_len}  {eta} left")
}

/// The bar shown while the model trains; its message holds the figures.
pub fn training(quiet: bool, steps: u64) -> ProgressBar {
    // The bar takes the width beside the figures.
    let bar = bar(quiet, "{prefix} {percent:>3}% {wide_bar} {msg}  {eta} left");
    bar.set_length(steps);
    bar
}

/// The terminal has fewer columns than the figures with all their words.
fn is_narrow() -> bool {
    console::Term::stderr().size().1 < 78
}

/// Samples per second, with as many words as fit.
pub fn per_second(rate: f64) -> String {
    if is_narrow() { format!("{rate:.0}/s") } else { format!("{rate:.0} samples/s") }
}

/// The epoch, and the number of epochs.
pub fn of_epochs(epoch: u64, epochs: u64) -> String {
    let word = if is_narrow() { "" } else { "epoch " };
    format!("{word}{}/{epochs}", epoch + 1)
}

/// The figures beside the bar.
pub fn figures(rate: f64, loss: f32, wait_share: f64) -> String {
    let (rate, waited) = (per_second(rate), 100.0 * wait_share);
    if is_narrow() {
        format!("{rate}  loss {loss:.3}  waited {waited:.0} %")
    } else {
        format!("{rate}  loss {loss:.4}  waited {waited:.1} %")
    }
}

/// The rate over the last seconds, not since the start, so that a change shows at once.
#[derive(Debug, Default)]
pub struct Rate {
    /// Points in time with the number of samples by then, the oldest first.
    points: VecDeque<(Instant, u64)>,
}

/// The time span of the rate, and the min time between two points.
const WINDOW: Duration = Duration::from_secs(5);
const CLOSE: Duration = Duration::from_millis(100);

impl Rate {
    /// There are `samples` by now; returns the rate in samples per second.
    pub fn add(&mut self, now: Instant, samples: u64) -> f64 {
        if self.points.back().is_none_or(|(last, _)| now - *last >= CLOSE) {
            self.points.push_back((now, samples));
        }
        while self.points.len() > 2 && now - self.points[1].0 > WINDOW {
            self.points.pop_front();
        }
        let Some(&(first, before)) = self.points.front() else { return 0.0 };
        let seconds = (now - first).as_secs_f64();
        if seconds > 0.0 { (samples - before) as f64 / seconds } else { 0.0 }
    }
}

/// A mean in which older values lose weight.
#[derive(Debug, Default)]
pub struct Smoothed(Option<f32>);

impl Smoothed {
    /// Adds a value; about the last twenty count.
    pub fn add(&mut self, value: f32) {
        self.0 = Some(self.0.map_or(value, |mean| mean + 0.05 * (value - mean)));
    }

    /// The mean so far; NaN before the first value.
    pub fn value(&self) -> f32 {
        self.0.unwrap_or(f32::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let (start, mut rate) = (Instant::now(), Rate::default());
        let at = |ms: u64| start.checked_add(Duration::from_millis(ms)).unwrap();
        assert_eq!(rate.add(at(0), 0), 0.0);
        for second in 1..=20 {
            rate.add(at(1000 * second), 100 * second);
        }
        assert_eq!(rate.add(at(20_000), 2000), 100.0);
        for second in 21..=30 {
            rate.add(at(1000 * second), 2000 + 700 * (second - 20));
        }
        assert_eq!(rate.add(at(30_000), 9000), 700.0);
    }

    #[test]
    fn a_smoothed_value_moves_slowly() {
        let mut loss = Smoothed::default();
        assert!(loss.value().is_nan());
        loss.add(1.0);
        loss.add(3.0);
        assert!((loss.value() - 1.1).abs() < 1e-6);
    }
}
