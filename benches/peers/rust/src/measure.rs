//! Two sides in turns, as the benches measure: loader, floor, loader, floor; medians of what came out.

use std::error::Error;
use std::time::Instant;

use crate::Options;
use crate::table::{BYTES, Batch, Feed, Gather, SAMPLES};

/// Nanoseconds a sample of each pair of turns.
pub struct Sides {
    pub value: Vec<f64>,
    pub floor: Vec<f64>,
}

impl Sides {
    /// Each pair through `f`, sorted.
    pub fn pairs(&self, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let mut figures: Vec<_> =
            self.value.iter().zip(&self.floor).map(|(&value, &floor)| f(value, floor)).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }
}

/// The median of sorted figures.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Times whole epochs of `feed` and as many samples of `floor` in turns, after one turn of each that does not count.
pub fn sides(
    options: &Options,
    feed: &mut dyn Feed,
    floor: &mut Gather<'_>,
) -> Result<Sides, Box<dyn Error>> {
    let an_epoch = SAMPLES / floor.rows();
    let start = Instant::now();
    floor.run(an_epoch);
    let epochs =
        (options.repetition.as_secs_f64() / start.elapsed().as_secs_f64()).ceil().clamp(1.0, 1e6) as usize;
    let mut sides = Sides { value: Vec::new(), floor: Vec::new() };
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
        floor.run(epochs * an_epoch);
        let of_floor = start.elapsed().as_secs_f64() * 1e9 / (epochs * an_epoch * floor.rows()) as f64;
        if turn > 0 {
            sides.value.push(value);
            sides.floor.push(of_floor);
        }
    }
    Ok(sides)
}
