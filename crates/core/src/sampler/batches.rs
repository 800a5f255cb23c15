//! Batches that a function names, instead of rows that are cut into batches.
//!
//! Step `n` of an epoch has the positions from `n * batch` on, of which a short batch has only the first. So
//! the batch of a step, its random numbers and the place at which a run resumes do not depend on the number
//! of ranks.
//!
//! An epoch is drawn as a whole, once, by the first who needs it, because only then is it known whether a
//! sample comes twice. It takes 8 bytes per sample and 8 per step. The two latest epochs are kept, so that
//! requests can alternate between the end of one and the beginning of the next. Clones share them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::custom::NO_SAMPLE;
use super::{MAX_LEN, config, digest};
use crate::random::key;
use crate::{Error, ErrorKind, ReadError, Result, Stage, catch_panic, named};

/// The id of a row that a short batch does not have.
pub(crate) const NO_ROW: u64 = u64::MAX - 1;

/// Number of epochs that are kept.
const KEPT: usize = 2;

/// Epochs, the oldest first.
type Kept = Vec<(u64, Result<Arc<Drawn>>)>;

type Function = dyn Fn(u64, u64) -> Result<Vec<u64>, ReadError> + Send + Sync;

/// The sampler of [`Sampler::batches`](super::Sampler::batches).
#[derive(Clone)]
pub struct Batches {
    steps: u64,
    repeats: bool,
    function: Arc<Function>,
    /// Of the batches of epoch 0.
    digest: u64,
    /// Samples of the largest batch of the loader; 0 without one.
    batch: u64,
    recent: Arc<Mutex<Kept>>,
}

/// The batches of one epoch.
#[derive(PartialEq)]
struct Drawn {
    /// The index in `ids` at which each batch ends.
    ends: Vec<usize>,
    ids: Vec<u64>,
    /// Samples of the largest batch.
    largest: usize,
    /// The largest id.
    last: u64,
}

impl Drawn {
    fn batch(&self, step: u64) -> &[u64] {
        let step = step as usize;
        &self.ids[step.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[step]]
    }

    /// The step of the batch that has the id at `place`.
    fn step_of(&self, place: usize) -> usize {
        self.ends.partition_point(|&end| end <= place)
    }

    /// Refuses a sample that comes twice.
    fn check_once(&self, epoch: u64) -> Result<()> {
        let mut places: Vec<usize> = (0..self.ids.len()).collect();
        places.sort_unstable_by_key(|&place| (self.ids[place], place));
        let twice = places.windows(2).find(|pair| self.ids[pair[0]] == self.ids[pair[1]]);
        let Some(&[first, second]) = twice else { return Ok(()) };
        let (id, first, second) = (self.ids[first], self.step_of(first), self.step_of(second));
        Err(config(format!(
            "sample {id} comes twice in epoch {epoch}, in the batches of steps {first} and {second}: name \
             each sample once, or allow it ({})",
            named("repeats", "repeats=True")
        )))
    }

    /// Refuses ids that the data set does not have, and batches that are too large.
    fn check(&self, epoch: u64, len: u64, batch: u64) -> Result<()> {
        if self.last >= len {
            let place = self.ids.iter().position(|&id| id >= len).unwrap_or_default();
            return Err(config(format!(
                "the batch of step {} of epoch {epoch} has sample {}: the data set has ids 0 to {}",
                self.step_of(place),
                self.ids[place],
                len - 1
            )));
        }
        if self.largest as u64 > batch {
            let step = (0..self.ends.len()).find(|&step| self.batch(step as u64).len() == self.largest);
            return Err(config(format!(
                "the batch of step {} of epoch {epoch} has {} samples, and the batch size is {batch}: raise \
                 the batch size, or name fewer",
                step.unwrap_or_default(),
                self.largest
            )));
        }
        Ok(())
    }
}

impl Batches {
    pub(super) fn new(
        steps: u64,
        repeats: bool,
        function: impl Fn(u64, u64) -> Result<Vec<u64>, ReadError> + Send + Sync + 'static,
    ) -> Result<Self> {
        if steps == 0 || usize::try_from(steps).is_err() {
            return Err(config(format!("{steps} steps per epoch: an epoch has at least 1")));
        }
        let function = Arc::new(function);
        let mut sampler = Self { steps, repeats, function, digest: 0, batch: 0, recent: Arc::default() };
        let first = sampler.epoch(0)?;
        if sampler.draw(0)? != *first {
            return Err(config(
                "the function of the batches gave other ones for epoch 0 in a second pass: they may depend \
                 on the epoch and the step alone, because a run that resumes asks again",
            ));
        }
        let ends = digest(first.ends.iter().map(|&end| end as u64));
        sampler.digest = key(&[ends, digest(first.ids.iter().copied()), u64::from(repeats)]);
        Ok(sampler)
    }

    /// This sampler for a loader whose batches have up to `batch` samples. It keeps epochs of its own, so
    /// that another loader asks again after an error.
    pub(super) fn with_batch(self, batch: u64) -> Self {
        let recent = Arc::new(Mutex::new(self.recent().clone()));
        Self { batch, recent, ..self }
    }

    pub(super) fn check(&self, len: u64) -> Result<()> {
        if self.batch.checked_mul(self.steps).is_none_or(|positions| positions > MAX_LEN) {
            return Err(config(format!("{} steps of {} samples are above 2^63", self.steps, self.batch)));
        }
        self.epoch(0)?.check(0, len, self.batch)
    }

    /// Positions of an epoch, including those that short batches do not have.
    pub(super) fn len(&self) -> u64 {
        self.steps * self.batch
    }

    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    pub(super) fn repeats(&self) -> bool {
        self.repeats
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.digest, self.steps, self.batch])
    }

    /// Why `epoch` has no batches for a data set of `len` samples.
    pub(super) fn fault(&self, len: u64, epoch: u64) -> Option<Error> {
        self.epoch(epoch).and_then(|drawn| drawn.check(epoch, len, self.batch)).err()
    }

    /// Writes the samples from position `start` of `epoch` on: [`NO_ROW`] for the rows that a short batch
    /// does not have, and [`NO_SAMPLE`] for all rows of an epoch that has a [`fault`](Self::fault).
    pub(super) fn fill(&self, len: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let drawn = self.epoch(epoch);
        let Some(drawn) = drawn.ok().filter(|drawn| drawn.check(epoch, len, self.batch).is_ok()) else {
            return out.fill(NO_SAMPLE);
        };
        for (id, position) in out.iter_mut().zip(start..) {
            let batch = drawn.batch(position / self.batch);
            *id = batch.get((position % self.batch) as usize).copied().unwrap_or(NO_ROW);
        }
    }

    fn recent(&self) -> MutexGuard<'_, Kept> {
        // A panic of the function is caught.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<Drawn>> {
        let mut recent = self.recent();
        if let Some((_, drawn)) = recent.iter().find(|(of, _)| *of == epoch) {
            return drawn.clone();
        }
        if recent.len() == KEPT {
            drop(recent.remove(0));
        }
        let drawn = self.draw(epoch).map(Arc::new);
        recent.push((epoch, drawn.clone()));
        drawn
    }

    fn draw(&self, epoch: u64) -> Result<Drawn> {
        let (mut ends, mut ids, mut largest) = (Vec::new(), Vec::new(), 0);
        for step in 0..self.steps {
            let failed = |error: ReadError| {
                let what = format!("no batch of step {step} of epoch {epoch}");
                Error::new(ErrorKind::Config, what).at_stage(Stage::Sampler).with_source(error)
            };
            let batch = catch_panic("the function of the batches panicked", || (self.function)(epoch, step));
            let batch = batch.map_err(|error| failed(error.into()))?.map_err(failed)?;
            if batch.is_empty() {
                return Err(config(format!(
                    "the batch of step {step} of epoch {epoch} has no samples: name at least one"
                )));
            }
            largest = largest.max(batch.len());
            ids.extend_from_slice(&batch);
            ends.push(ids.len());
        }
        let last = ids.iter().copied().max().unwrap_or_default();
        let drawn = Drawn { ends, ids, largest, last };
        if !self.repeats {
            drawn.check_once(epoch)?;
        }
        Ok(drawn)
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps per epoch", self.steps)
    }
}
