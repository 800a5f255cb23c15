//! Alternating measurement of two sides (value, baseline, value, baseline) and the medians.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use feedline::{Error, ErrorKind, Result};

use crate::options::Options;

/// The results of several repetitions, sorted.
#[derive(Clone, Debug)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Sorts the figures; there must be at least one.
    pub fn new(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    pub fn median(&self) -> f64 {
        let Self(sorted) = self;
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
    }

    /// The smallest figure with at least the share `q` of all figures at or below it.
    pub fn quantile(&self, q: f64) -> f64 {
        self.0[((self.0.len() as f64 * q).ceil() as usize).clamp(1, self.0.len()) - 1]
    }

    pub fn min(&self) -> f64 {
        self.0[0]
    }

    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Applies `f` to each figure.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self::new(self.0.iter().map(|&x| f(x)).collect())
    }
}

/// Seconds per step of both sides, and their ratio and difference per pair.
pub struct Sides {
    pub value: Figures,
    pub baseline: Figures,
    /// Value / baseline, per pair.
    pub ratio: Figures,
    /// Value - baseline, per pair.
    pub difference: Figures,
}

/// Times `value` and `baseline` alternately; both take the number of steps to run. The first pair warms
/// up and does not count.
///
/// Each turn starts with `lead` steps that are not timed: they consume the batches that were prefetched
/// during the other side's turn.
pub fn sides(
    options: &Options,
    (lead, steps): (usize, usize),
    mut value: impl FnMut(usize) -> Result<()>,
    mut baseline: impl FnMut(usize) -> Result<()>,
) -> Result<Sides> {
    let mut pairs = Vec::new();
    for turn in 0..=options.reps {
        value(lead)?;
        let of_value = seconds(steps, &mut value)?;
        baseline(lead.min(steps / 8))?;
        let pair = (of_value, seconds(steps, &mut baseline)?);
        if turn > 0 {
            pairs.push(pair);
        }
    }
    let of = |f: fn(&(f64, f64)) -> f64| Figures::new(pairs.iter().map(f).collect());
    Ok(Sides {
        value: of(|p| p.0),
        baseline: of(|p| p.1),
        ratio: of(|p| p.0 / p.1),
        difference: of(|p| p.0 - p.1),
    })
}

/// The number of steps that take about one repetition's time, measured on a warm side.
pub fn steps(options: &Options, mut side: impl FnMut(usize) -> Result<()>) -> Result<usize> {
    let mut steps = 1;
    loop {
        let taken = seconds(steps, &mut side)? * steps as f64;
        let wanted = options.repetition.as_secs_f64() / taken.max(1e-9);
        if wanted <= 4.0 {
            return Ok(((steps as f64 * wanted) as usize).max(1));
        }
        steps *= (wanted as usize).clamp(2, 8);
    }
}

/// Seconds per step.
fn seconds(steps: usize, side: &mut impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    side(steps)?;
    Ok(start.elapsed().as_secs_f64() / steps as f64)
}

/// Runs `work` for each of `all`, each on a thread of its own.
pub fn each<T: Send>(all: &[Mutex<T>], work: impl Fn(&mut T) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let start =
            |one: &'_ Mutex<T>| work(&mut one.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || start(one))).collect();
        let panicked = |_| Err(Error::new(ErrorKind::Panic, "a thread of the benchmark panicked"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

/// The time of one call.
pub fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let result = call()?;
    Ok((start.elapsed(), result))
}

/// Keeps the calling core busy.
pub fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
