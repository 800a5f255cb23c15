//! Disjoint random parts of a set, and the folds of a cross-validation.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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
    check_count(count, len, "samples")?;
    if let Some(labels) = labels {
        check_one_each("labels", labels, len)?;
    }
    let mut order = Vec::new();
    lengthen(&mut order, usize::try_from(len).unwrap_or(usize::MAX))?;
    Permutation::new(len, key(&[seed, u64::from_le_bytes(*b"folds   ")])).fill(0, &mut order);
    if let Some(labels) = labels {
        // Stable: within a class the order is random.
        order.sort_by_key(|&id| labels[id as usize]);
    }
    let mut fold_of = Vec::new();
    lengthen(&mut fold_of, order.len())?;
    for (place, id) in order.into_iter().enumerate() {
        fold_of[id as usize] = place % count;
    }
    by_fold(inner, count, &fold_of)
}

/// `count` folds, each a training and a validation set. All samples of a group are in one validation set: the
/// largest groups are placed first, each in the smallest set so far.
pub(crate) fn folds_of_groups(
    inner: &StableDataset,
    count: usize,
    groups: &[u32],
    seed: u64,
) -> Result<Vec<[Subset; 2]>> {
    check_one_each("groups", groups, inner.len())?;
    let mut sizes = BTreeMap::new();
    groups.iter().for_each(|group| *sizes.entry(*group).or_insert(0_u64) += 1);
    check_count(count, sizes.len() as u64, "groups")?;
    let mut by_size: Vec<_> = sizes.into_iter().collect();
    // Groups of equal size are in random order.
    let random = |group: u32| key(&[seed, u64::from_le_bytes(*b"by group"), u64::from(group)]);
    by_size.sort_by_key(|&(group, size)| (Reverse(size), random(group), group));
    let (mut filled, mut fold_of) = (vec![0; count], BTreeMap::new());
    for (group, size) in by_size {
        let smallest = (0..count).min_by_key(|&fold| filled[fold]).unwrap_or_default();
        filled[smallest] += size;
        fold_of.insert(group, smallest);
    }
    let fold_of: Vec<_> = groups.iter().map(|group| fold_of[group]).collect();
    by_fold(inner, count, &fold_of)
}

/// The training and the validation set of each fold; sample `n` is in the validation set of fold
/// `fold_of[n]`.
fn by_fold(inner: &StableDataset, count: usize, fold_of: &[usize]) -> Result<Vec<[Subset; 2]>> {
    let part = |fold: usize| {
        let (mut train, mut validate) = (Vec::new(), Vec::new());
        for (id, &of) in (0..).zip(fold_of) {
            if of == fold { validate.push(id) } else { train.push(id) }
        }
        Ok([Subset::new(inner.clone(), train)?, Subset::new(inner.clone(), validate)?])
    };
    (0..count).map(part).collect()
}

fn check_count(count: usize, have: u64, what: &str) -> Result<()> {
    if (2..=have).contains(&(count as u64)) {
        return Ok(());
    }
    Err(config(format!("{count} folds of {have} {what}: use 2 or more, and not more than {what}")))
}

fn check_one_each(what: &str, given: &[u32], len: u64) -> Result<()> {
    if given.len() as u64 == len {
        return Ok(());
    }
    Err(config(format!("{} {what} for {len} samples: give one for each sample", given.len())))
}
