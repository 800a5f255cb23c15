//! When, where and how often a sample was seen.

use feedline::Result;

use crate::Run;
use crate::run::Place;

/// A row that held a sample, or for which the sample was drawn but could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The number of the step.
    pub step: u64,
    /// The epoch.
    pub epoch: u64,
    /// The rank.
    pub rank: u32,
    /// The row in the batch.
    pub row: usize,
    /// How the sample came into the row.
    pub how: How,
}

/// How a sample came into a row, or why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was drawn for this row.
    Drawn,
    /// It replaced this sample, which could not be read.
    InPlaceOf(u64),
    /// It could not be read, and this sample replaced it.
    ReplacedBy(u64),
}

impl Run {
    /// All rows that held sample `sample`, or for which it was drawn but could not be read, in the order of
    /// the steps.
    ///
    /// Computes the samples of all steps. This takes some nanoseconds per sample.
    ///
    /// # Errors
    /// `Config` if the sampler is missing; `Data` as [`ids`](Self::ids).
    pub fn sightings(&self, sample: u64) -> Result<Vec<Sighting>> {
        let (mut sightings, mut ids) = (Vec::new(), Vec::new());
        for rank in 0..self.ranks() {
            for steps in self.stretches(rank) {
                let first = self.place(steps.start, rank)?;
                let (sampler, epoch) = (self.batch_sampler(&first, rank)?, first.epoch());
                for step in steps {
                    let place = Place { index: (step - first.segment.number) as usize, ..first.clone() };
                    self.fill_ids(&place, &sampler, &mut ids)?;
                    let substitutes: Vec<_> = place.substitutes().collect();
                    let mut seen = |row: usize, how| sightings.push(Sighting { step, epoch, rank, row, how });
                    for substitute in &substitutes {
                        if substitute.sample == sample {
                            seen(substitute.row as usize, How::ReplacedBy(substitute.substitute));
                        }
                    }
                    for (row, _) in ids.iter().enumerate().filter(|(_, id)| **id == sample) {
                        let own = substitutes.iter().find(|substitute| substitute.row as usize == row);
                        seen(row, own.map_or(How::Drawn, |substitute| How::InPlaceOf(substitute.sample)));
                    }
                }
            }
        }
        sightings.sort_unstable_by_key(|seen| (seen.step, seen.rank, seen.row));
        Ok(sightings)
    }
}
