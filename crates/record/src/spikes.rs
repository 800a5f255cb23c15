//! The steps whose noted value is far above the values of their neighbours.

use std::ops::Range;

use feedline::Result;

use crate::Run;

/// Number of neighbours on each side.
const WINDOW: usize = 48;
/// Min number of neighbours on a side. A value with fewer is not judged.
const MIN: usize = 8;
/// A spike is more than this number of deviations above the median of its neighbours.
const FACTOR: f64 = 8.0;
/// The median deviation of normally distributed values, as a share of their standard deviation.
const MEDIAN_SHARE: f64 = 0.6745;

/// A step whose value is far above the values of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// The number of the step.
    pub step: u64,
    /// The value of the step.
    pub value: f64,
    /// The median of the values before it.
    pub before: f64,
}

/// Steps to skip when a run is resumed, for `LoaderBuilder::skip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRange {
    /// The epoch.
    pub epoch: u64,
    /// The steps, counted from the beginning of the epoch.
    pub steps: Range<u64>,
}

impl Run {
    /// The steps at which the value noted under `name`, such as a loss, is a spike. A spike is not a number,
    /// or is more than eight standard deviations above the median of the 48 values before it, and above the
    /// median of the 48 values after it. The standard deviation is estimated from the median deviation.
    pub fn spikes(&self, name: &str) -> Vec<Spike> {
        spikes(&self.notes(name))
    }

    /// The steps of `spikes` as ranges to skip.
    ///
    /// # Errors
    /// `Config` if a step is not recorded, or the sampler is missing.
    pub fn skip_ranges(&self, spikes: &[Spike]) -> Result<Vec<SkipRange>> {
        let mut ranges: Vec<SkipRange> = Vec::new();
        for spike in spikes {
            let place = self.place(spike.step, 0)?;
            let sampler = self.batch_sampler(&place, 0)?;
            let (epoch, start) = (place.epoch(), place.segment.cursor.position());
            // The position of the step's first row. Skipped steps count.
            let position = sampler.position(epoch, start, place.index as u64, 0).unwrap_or(start);
            let step = sampler.step_of(position);
            match ranges.last_mut().filter(|last| last.epoch == epoch && last.steps.end == step) {
                Some(last) => last.steps.end = step + 1,
                None => ranges.push(SkipRange { epoch, steps: step..step + 1 }),
            }
        }
        Ok(ranges)
    }
}

fn spikes(values: &[(u64, f64)]) -> Vec<Spike> {
    let mut spikes = Vec::new();
    for (index, &(step, value)) in values.iter().enumerate() {
        let before = &values[index.saturating_sub(WINDOW)..index];
        let after = &values[index + 1..(index + 1 + WINDOW).min(values.len())];
        let medians = [before, after].map(median);
        let leaves = || {
            let away = medians.map(|of| of.map(|(median, spread)| (value - median) / (FACTOR * spread)));
            match away {
                [Some(a), Some(b)] => a > 1.0 && b > 1.0,
                // At the end of a run, too few values follow for a median.
                [Some(a), None] => a > 1.0,
                _ => false,
            }
        };
        if !value.is_finite() || leaves() {
            let before = medians[0].or(medians[1]).map_or(f64::NAN, |(median, _)| median);
            spikes.push(Spike { step, value, before });
        }
    }
    spikes
}

/// The median of the values, and their standard deviation estimated from the median of their deviations;
/// `None` for too few values.
fn median(values: &[(u64, f64)]) -> Option<(f64, f64)> {
    let mut values: Vec<f64> =
        values.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
    if values.len() < MIN {
        return None;
    }
    let middle = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let median = middle(&mut values);
    values.iter_mut().for_each(|value| *value = (*value - median).abs());
    // Equal values have no deviation.
    let spread = (middle(&mut values) / MEDIAN_SHARE).max(1e-3 * median.abs()).max(f64::MIN_POSITIVE);
    Some((median, spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A falling loss with noise, and other values at some steps.
    fn loss(steps: u64, others: &[(u64, f64)]) -> Vec<(u64, f64)> {
        let value = |step: u64| {
            let noise = (feedline_core::random::splitmix64(step) % 1000) as f64 / 1e4;
            let other = others.iter().find(|(at, _)| *at == step).map(|(_, value)| *value);
            other.unwrap_or(2.0 / (1.0 + step as f64 / 50.0) + 0.1 + noise)
        };
        (0..steps).map(|step| (step, value(step))).collect()
    }

    fn found(values: &[(u64, f64)]) -> Vec<u64> {
        spikes(values).iter().map(|spike| spike.step).collect()
    }

    #[test]
    fn a_falling_loss_has_no_spikes_and_planted_ones_are_found() {
        assert_eq!(found(&loss(500, &[])), [0; 0]);
        let planted = [(100, 9.0), (101, 8.0), (250, f64::NAN), (400, 5.0), (499, 7.0)];
        assert_eq!(found(&loss(500, &planted)), [100, 101, 250, 400, 499]);
    }

    #[test]
    fn a_level_that_changes_for_good_is_no_spike() {
        let steps: Vec<(u64, f64)> =
            (0..200).map(|step| (step, if step < 100 { 1.0 } else { 3.0 })).collect();
        assert_eq!(found(&steps), [0; 0]);
        assert_eq!(found(&[(0, 1.0), (1, 100.0)]), [0; 0], "too few values to judge");
    }
}
