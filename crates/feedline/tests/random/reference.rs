//! The batches that a rank must get, found the slow way: list the whole epoch, cut it into steps, and each
//! step into ranks.

use std::ops::Range;

use feedline::{LastBatch, Sampler, World};

/// What the batches of an epoch depend on.
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
        let global = self.batch as u64 * u64::from(self.world.size());
        let is_skipped = |position: u64| {
            let mut skips = self.skips.iter().filter(|(of, _)| *of == epoch);
            skips.any(|(_, steps)| steps.contains(&(position / global)))
        };
        let positions = 0..self.sampler.len(self.len);
        let samples = positions.filter(|&position| !is_skipped(position));
        samples.map(|position| self.sampler.id(self.len, self.seed, epoch, position)).collect()
    }

    /// The batches of `epoch` after its first `delivered` samples.
    pub fn batches(&self, epoch: u64, delivered: usize) -> Vec<Expected> {
        let samples = self.samples(epoch);
        let (size, rank) = (self.world.size() as usize, self.world.rank() as usize);
        let steps = samples[delivered..].chunks(self.batch * size);
        steps.filter_map(|step| self.part(step, &samples, size, rank)).collect()
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
                (step[first..first + rows].to_vec(), rows)
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
