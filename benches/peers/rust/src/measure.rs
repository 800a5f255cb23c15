//! Alternating measurement, as in the benches: loader, baseline, loader, baseline; and the medians.

use std::error::Error;
use std::time::Instant;

use crate::Options;
use crate::table::{BYTES, Batch, Feed, Gather, SAMPLES};

/// Nanoseconds per sample of each pair.
pub struct Sides {
    pub value: Vec<f64>,
    pub baseline: Vec<f64>,
}

impl Sides {
    /// Applies `f` to each pair and sorts the results.
    pub fn pairs(&self, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let mut figures: Vec<_> =
            self.value.iter().zip(&self.baseline).map(|(&value, &baseline)| f(value, baseline)).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }
}

/// The median of sorted figures.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Times whole epochs of `feed` and as many samples of `baseline`, alternately. The first pair warms up.
pub fn sides(
    options: &Options,
    feed: &mut dyn Feed,
    baseline: &mut Gather<'_>,
) -> Result<Sides, Box<dyn Error>> {
    let epoch_steps = SAMPLES / baseline.rows();
    let start = Instant::now();
    baseline.run(epoch_steps);
    let epochs =
        (options.repetition.as_secs_f64() / start.elapsed().as_secs_f64()).ceil().clamp(1.0, 1e6) as usize;
    let mut sides = Sides { value: Vec::new(), baseline: Vec::new() };
    for turn in 0..=options.reps {
        let (mut samples, start) = (0, Instant::now());
        for _ in 0..epochs {
            feed.epoch(&mut |batch| {
                samples += match std::hint::black_box(batch) {
                    Batch::Flat(bytes) => bytes.len() / BYTES,
                    Batch::Rows(rows) => rows.len(),
                };
            })?;
        }
        let value = start.elapsed().as_secs_f64() * 1e9 / samples as f64;
        let start = Instant::now();
        baseline.run(epochs * epoch_steps);
        let of_baseline =
            start.elapsed().as_secs_f64() * 1e9 / (epochs * epoch_steps * baseline.rows()) as f64;
        if turn > 0 {
            sides.value.push(value);
            sides.baseline.push(of_baseline);
        }
    }
    Ok(sides)
}
