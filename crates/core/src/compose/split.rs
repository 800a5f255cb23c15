//! Disjoint random parts of a set, and the folds of a cross-validation.

use crate::compose::{Subset, config};
use crate::memory::lengthen;
use crate::random::key;
use crate::sampler::Permutation;
use crate::{Dataset, Result, StableDataset};

/// Max difference between the sum of the fractions and 1.
const TOLERANCE: f64 = 1e-9;

/// Splits `inner`: part `n` gets `fractions[n]` of the samples, in order of their ids.
pub(crate) fn split<const N: usize>(
    inner: &StableDataset,
    fractions: [f64; N],
    seed: u64,
) -> Result<[Subset; N]> {
    let sum: f64 = fractions.iter().sum();
    if fractions.iter().any(|fraction| !(0.0..=1.0).contains(fraction)) || (sum - 1.0).abs() > TOLERANCE {
        return Err(config(format!("fractions {fractions:?}: each is 0 to 1, and together they are 1")));
    }
    let len = inner.len();
    let permutation =
        (len > 0).then(|| Permutation::new(len, key(&[seed, u64::from_le_bytes(*b"split   ")])));
    let (mut share, mut first) = (0.0, 0);
    let mut parts = Vec::with_capacity(N);
    for (number, fraction) in (1..).zip(fractions) {
        share += fraction;
        // The last part ends at the end of the set, despite rounding.
        let end = if number == N { len } else { ((len as f64 * share).round() as u64).clamp(first, len) };
        let mut ids = Vec::new();
        lengthen(&mut ids, usize::try_from(end - first).unwrap_or(usize::MAX))?;
        if let Some(permutation) = permutation.as_ref().filter(|_| !ids.is_empty()) {
            permutation.fill(first, &mut ids);
        }
        ids.sort_unstable();
        parts.push(Subset::new(inner.clone(), ids)?);
        first = end;
    }
    parts.try_into().map_err(|_| config("a split has as many parts as fractions".to_owned()))
}

/// `count` folds, each a training and a validation set. With labels, each label is spread evenly over the
/// folds.
pub(crate) fn folds(
    inner: &StableDataset,
    count: usize,
    labels: Option<&[u32]>,
    seed: u64,
) -> Result<Vec<[Subset; 2]>> {
    let len = inner.len();
    if count < 2 || count as u64 > len {
        return Err(config(format!(
            "{count} folds of {len} samples: use 2 or more, and not more than samples"
        )));
    }
    if let Some(labels) = labels.filter(|labels| labels.len() as u64 != len) {
        return Err(config(format!("{} labels for {len} samples: give one for each sample", labels.len())));
    }
    let mut order = Vec::new();
    lengthen(&mut order, usize::try_from(len).unwrap_or(usize::MAX))?;
    Permutation::new(len, key(&[seed, u64::from_le_bytes(*b"folds   ")])).fill(0, &mut order);
    if let Some(labels) = labels {
        // Stable: within a class the order is random.
        order.sort_by_key(|&id| labels[id as usize]);
    }
    let part = |fold: usize| {
        let (mut train, mut validate) = (Vec::new(), Vec::new());
        for (place, &id) in order.iter().enumerate() {
            if place % count == fold { validate.push(id) } else { train.push(id) }
        }
        train.sort_unstable();
        validate.sort_unstable();
        Ok([Subset::new(inner.clone(), train)?, Subset::new(inner.clone(), validate)?])
    };
    (0..count).map(part).collect()
}
