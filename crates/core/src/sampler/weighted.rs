//! Weighted draws with replacement and random access, by the alias method.
//!
//! Walker 1977, "An efficient method for generating discrete random variables with general distributions",
//! with the table built as in Vose 1991. It uses whole numbers, so that rounding can neither draw a sample of
//! weight zero nor make two machines differ. A positive weight below 2^-62 of the sum counts as 2^-62 of it.

use std::fmt;
use std::sync::Arc;

use super::{config, digest, tag};
use crate::Result;
use crate::random::{Random, key, splitmix64};

/// The sampler of [`Sampler::weighted`](super::Sampler::weighted).
#[derive(Clone)]
pub struct Weighted {
    columns: Arc<[Column]>,
    draws: u64,
    digest: u64,
}

/// A draw of this column yields its own sample with probability `keep / 2^64`, and sample `alias` otherwise.
#[derive(Clone, Copy)]
struct Column {
    keep: u64,
    alias: u64,
}

impl Weighted {
    pub(super) fn new(weights: &[f64]) -> Result<Self> {
        check(weights)?;
        Ok(Self {
            columns: columns(&whole(weights)).into(),
            draws: weights.len() as u64,
            digest: digest_of(weights),
        })
    }

    pub(super) fn draws(self, draws: u64) -> Self {
        Self { draws, ..self }
    }

    pub(super) fn samples(&self) -> u64 {
        self.columns.len() as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.draws
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.digest, self.draws])
    }

    pub(super) fn fill(&self, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let base = key(&[seed, epoch, tag(b"weighted")]);
        for (id, position) in out.iter_mut().zip(start..) {
            let mut random = Random::from_key(splitmix64(base ^ position));
            let hit = random.below(self.samples());
            let column = self.columns[hit as usize];
            *id = if random.next_u64() < column.keep { hit } else { column.alias };
        }
    }
}

impl fmt::Debug for Weighted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weights, {} draws per epoch", self.columns.len(), self.draws)
    }
}

pub(super) fn digest_of(weights: &[f64]) -> u64 {
    digest(weights.iter().map(|weight| weight.to_bits()))
}

/// Rejects invalid weights; the error has the index.
pub(super) fn check(weights: &[f64]) -> Result<()> {
    if let Some((index, weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
        return Err(config(format!("weight {index} is {weight}: weights must be finite and not negative")));
    }
    if weights.iter().all(|&weight| weight == 0.0) {
        return Err(config(format!(
            "all {} weights are zero: at least one must be above zero",
            weights.len()
        )));
    }
    Ok(())
}

/// The weights as whole numbers with a sum near 2^62; positive weights stay positive.
fn whole(weights: &[f64]) -> Vec<u64> {
    // Divided by the largest first, because the sum of large weights could be infinite.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    let scale = (1u64 << 62) as f64 / sum;
    weights.iter().map(|&w| if w > 0.0 { ((w / largest * scale) as u64).max(1) } else { 0 }).collect()
}

fn columns(weights: &[u64]) -> Vec<Column> {
    let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut left: Vec<u128> = weights.iter().map(|&w| u128::from(w) * weights.len() as u128).collect();
    let mut columns: Vec<_> = (0..weights.len() as u64).map(|own| Column { keep: 0, alias: own }).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|&i| left[i] < total);
    while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
        // Below 2^128: `left < total`, and the total is below 2^63.
        columns[taker] = Column { keep: ((left[taker] << 64) / total) as u64, alias: giver as u64 };
        left[giver] -= total - left[taker];
        if left[giver] < total {
            large.pop();
            small.push(giver);
        }
    }
    // The remaining columns are exactly full, because the arithmetic is exact: each is its own alias.
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact probability of each sample, from the table.
    fn probabilities(sampler: &Weighted) -> Vec<f64> {
        let n = sampler.columns.len();
        let mut sums = vec![0.0; n];
        for (own, column) in sampler.columns.iter().enumerate() {
            let keep = column.keep as f64 / 2f64.powi(64);
            sums[own] += keep / n as f64;
            sums[column.alias as usize] += (1.0 - keep) / n as f64;
        }
        sums
    }

    #[test]
    fn probabilities_are_proportional_to_the_weights() {
        for weights in [
            vec![1.0],
            vec![1.0, 1.0, 1.0],
            vec![0.0, 3.0, 0.0, 1.0, 0.0],
            vec![1e308, 1e308, 0.0, 5e307],
            vec![1e-300, 3e-300],
            (0..1000).map(f64::from).collect(),
        ] {
            let largest = weights.iter().copied().fold(0.0, f64::max);
            let sum: f64 = weights.iter().map(|w| w / largest).sum();
            let sampler = Weighted::new(&weights).unwrap();
            for (i, (p, w)) in probabilities(&sampler).iter().zip(&weights).enumerate() {
                assert!((p - w / largest / sum).abs() < 1e-12, "sample {i}: {p}");
                assert!(*w > 0.0 || *p == 0.0, "sample {i} has weight 0 but probability {p}");
            }
        }
    }
}
