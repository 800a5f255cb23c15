//! The batches that a rank must get, found the slow way: list the whole epoch, cut it into steps, and each
//! step into ranks.

use std::ops::Range;

use feedline::{LastBatch, Sampler, World};

/// The options that determine the batches of an epoch.
#[derive(Debug)]
pub struct Reference<'a> {
    pub len: u64,
    pub sampler: &'a Sampler,
    pub seed: u64,
    pub batch: usize,
    pub last_batch: LastBatch,
    pub world: World,
    pub skips: &'a [(u64, Range<u64>)],
}

/// A batch of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub ids: Vec<u64>,
    /// Number of rows that are not padding.
    pub valid: usize,
    /// Number of samples that this step delivers on all ranks.
    pub step: usize,
}

impl Reference<'_> {
    /// The samples of an epoch in order, without skipped ones.
    pub fn samples(&self, epoch: u64) -> Vec<u64> {
        let positions = 0..self.sampler.len(self.len);
        // The steps, as if there were no skips.
        let all: Vec<u64> = positions.clone().collect();
        let steps: Vec<u64> =
            (0..).zip(self.steps(&all)).flat_map(|(number, step)| vec![number; step.len()]).collect();
        let is_skipped = |position: u64| {
            let mut skips = self.skips.iter().filter(|(of, _)| *of == epoch);
            skips.any(|(_, skipped)| skipped.contains(&steps[position as usize]))
        };
        let samples = positions.filter(|&position| !is_skipped(position));
        samples.map(|position| self.sampler.id(self.len, self.seed, epoch, position)).collect()
    }

    /// The batches of `epoch` after its first `delivered` samples.
    pub fn batches(&self, epoch: u64, delivered: usize) -> Vec<Expected> {
        let samples = self.samples(epoch);
        let (size, rank) = (self.world.size() as usize, self.world.rank() as usize);
        let steps = self.steps(&samples[delivered..]);
        steps.into_iter().filter_map(|step| self.part(step, &samples, size, rank)).collect()
    }

    /// The steps of `samples`: full ones, and a short last one. If that has fewer samples than ranks, it
    /// takes some from the step before.
    fn steps<'a>(&self, samples: &'a [u64]) -> Vec<&'a [u64]> {
        let size = self.world.size() as usize;
        let mut steps: Vec<_> = samples.chunks(self.batch * size).collect();
        if let [.., before, last] = &mut steps[..]
            && last.len() < size
            && self.batch > 1
            && self.last_batch == LastBatch::Keep
        {
            let both = &samples[samples.len() - before.len() - last.len()..];
            (*before, *last) = both.split_at(both.len() - size);
        }
        steps
    }

    /// This rank's part of a step.
    fn part(&self, step: &[u64], epoch: &[u64], size: usize, rank: usize) -> Option<Expected> {
        if step.len() < self.batch * size && self.last_batch == LastBatch::Drop {
            return None;
        }
        let (ids, valid): (Vec<u64>, usize) = match self.last_batch {
            LastBatch::Keep if step.len() < self.batch * size => {
                // As evenly as possible: the first ranks get one sample more.
                let sizes = (0..size).map(|rank| step.len() / size + usize::from(rank < step.len() % size));
                let first: usize = sizes.clone().take(rank).sum();
                let rows = sizes.clone().nth(rank)?;
                match step.get(first..first + rows).filter(|rows| !rows.is_empty()) {
                    Some(rows) => (rows.to_vec(), rows.len()),
                    // A row of padding.
                    None => (epoch.iter().cycle().skip(rank - step.len()).take(1).copied().collect(), 0),
                }
            }
            _ => {
                let rows =
                    step.iter().map(|&id| (id, true)).chain(epoch.iter().cycle().map(|&id| (id, false)));
                let mine: Vec<_> = rows.skip(rank * self.batch).take(self.batch).collect();
                (mine.iter().map(|row| row.0).collect(), mine.iter().filter(|row| row.1).count())
            }
        };
        Some(Expected { ids, valid, step: step.len() })
    }
}
