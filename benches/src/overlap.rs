//! The loader against a loop that runs one stage after the other; the formula (D + T + C) / max(D, T, C)
//! predicts the ratio.

use std::time::Duration;

use feedline::Result;
use feedline_examples::overlap::{Stages, measure};
use serde_json::json;

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};

/// The stage times of the grid, in units of 200 us.
const GRID: [[u32; 3]; 5] = [[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 1, 4]];
const UNIT: Duration = Duration::from_micros(200);

/// Runs the benchmark.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    for [decode, copy, compute] in GRID {
        let [decode, copy, compute] = [decode, copy, compute].map(|units| units * UNIT);
        let steps = if options.smoke { 5 } else { 500 };
        let turns = if options.smoke { 1 } else { options.reps.min(5) };
        let turn = |_| measure(&options.device, Stages { decode, copy, compute }, steps);
        let measured = (0..turns).map(turn).collect::<Result<Vec<_>>>()?;
        let of = |f: fn(&feedline_examples::overlap::Measured) -> f64| {
            Figures::new(measured.iter().map(f).collect())
        };
        let (value, formula) = (of(|m| m.speed_up()), of(|m| m.stages.speed_up()).median());
        let us = |time: Duration| time.as_micros() as u64;
        report.add(
            "overlap",
            Entry {
                parameters: json!({
                    "decode_us": us(decode), "copy_us": us(copy), "compute_us": us(compute),
                }),
                ratio: Some(value.median() / formula),
                value,
                unit: "x speed-up",
                baseline: Some(formula),
                target: Target::RatioAtLeast(0.95),
                more: json!({ "steps": steps }),
            },
        )?;
    }
    Ok(())
}
