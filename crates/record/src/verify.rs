//! Compares a data set with the record of a run, and names the samples that have changed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use feedline::{Error, ErrorKind, LoaderBuilder, Result};

use crate::{Replayed, Run, Verdict};

/// A sample, and the file that holds it, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSample {
    /// The sample.
    pub sample: u64,
    /// The sample's file.
    pub path: Option<PathBuf>,
}

/// The result of comparing a data set with a record or a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of samples whose bytes were compared.
    pub samples: u64,
    /// The samples that have changed.
    pub changed: Vec<ChangedSample>,
    /// Samples of steps with several changed rows. In each such step, two or more of its samples have
    /// changed.
    pub suspected: Vec<ChangedSample>,
    /// Number of steps that could not be compared, because the record has no hash of their bytes.
    pub not_compared: u64,
    /// Steps that have other samples than in the run.
    pub other_samples: Vec<u64>,
}

impl Verified {
    /// Whether nothing has changed.
    pub fn is_equal(&self) -> bool {
        self.changed.is_empty() && self.suspected.is_empty() && self.other_samples.is_empty()
    }
}

/// What is known about a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Same,
    Changed,
}

impl Run {
    /// Compares the data set of `builder` with the steps of this run. `builder` is as for
    /// [`replayer`](Self::replayer). All workers decode. Each sample is compared once. Steps of later epochs
    /// are read only if they show which of several rows has changed. `progress` gets the number of steps
    /// done, and the number of all steps.
    ///
    /// # Errors
    /// As [`Replayer::step`](crate::Replayer::step).
    pub fn verify(&self, builder: &LoaderBuilder, mut progress: impl FnMut(u64, u64)) -> Result<Verified> {
        let steps = self.steps();
        let samples = self.header(steps.start).samples().unwrap_or(0);
        let mut known = Vec::new();
        known.try_reserve_exact(usize::try_from(samples).unwrap_or(usize::MAX)).map_err(|error| {
            let why = format!("no memory to remember {samples} samples: verify against a manifest");
            Error::new(ErrorKind::Budget, why).with_source(error)
        })?;
        known.resize(samples as usize, Known::Nothing);
        let (mut verified, mut paths) = (Verified::default(), BTreeMap::new());
        let all = (0..self.ranks())
            .flat_map(|rank| self.stretches(rank))
            .map(|steps| steps.end - steps.start)
            .sum();
        let mut done = 0;
        for rank in 0..self.ranks() {
            let mut replayer = self.replayer(builder.clone(), rank);
            for steps in self.stretches(rank) {
                // Whole ranges are read, so that the workers can read ahead.
                for range in self.undecided(rank, steps.clone(), &known)? {
                    replayer.steps(range, |replayed| {
                        progress(done + (replayed.number - steps.start), all);
                        verified.add(&replayed, &mut known, &mut paths);
                        Ok(())
                    })?;
                }
                done += steps.end - steps.start;
                progress(done, all);
            }
        }
        verified.samples = known.iter().filter(|known| **known != Known::Nothing).count() as u64;
        for (sample, path) in paths {
            let of = ChangedSample { sample, path };
            match known[sample as usize] {
                Known::Changed => verified.changed.push(of),
                Known::Nothing => verified.suspected.push(of),
                Known::Same => {}
            }
        }
        Ok(verified)
    }

    /// The ranges of `steps` that hold a sample without a known hash.
    fn undecided(&self, rank: u32, steps: Range<u64>, known: &[Known]) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in steps {
            let ids = self.ids(number, rank)?;
            if !ids.iter().any(|&id| known.get(id as usize) == Some(&Known::Nothing)) {
                continue;
            }
            match ranges.last_mut().filter(|last| last.end == number) {
                Some(last) => last.end = number + 1,
                None => ranges.push(number..number + 1),
            }
        }
        Ok(ranges)
    }
}

impl Verified {
    /// Adds the facts about samples that follow from a step.
    fn add(&mut self, replayed: &Replayed, known: &mut [Known], paths: &mut BTreeMap<u64, Option<PathBuf>>) {
        let ids = replayed.batch.ids();
        let mut set = |id: u64, is: Known| {
            if let Some(known) = known.get_mut(id as usize).filter(|known| **known != Known::Changed) {
                *known = is;
            }
        };
        match replayed.verdict {
            Verdict::Equal => ids.iter().for_each(|&id| set(id, Known::Same)),
            Verdict::OtherBytes { row: Some(row) } => {
                ids.iter().for_each(|&id| set(id, if id == ids[row] { Known::Changed } else { Known::Same }));
                paths.insert(ids[row], replayed.paths[row].clone());
            }
            Verdict::OtherBytes { row: None } => {
                paths.extend(ids.iter().copied().zip(replayed.paths.iter().cloned()));
            }
            Verdict::SameSamples => self.not_compared += 1,
            Verdict::OtherSamples => self.other_samples.push(replayed.number),
        }
    }
}
