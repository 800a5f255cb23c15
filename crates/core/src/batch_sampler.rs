//! Which samples make up which batch, on every rank: a function of the options, the epoch and a position.
//!
//! An epoch is a line of global positions, the same for any world. From a position `start`, step `s` takes the next
//! `batch * world` positions, and rank `r` the `r`-th `batch` of them. So a run that stopped at a position can
//! be taken up there by any number of ranks, and the samples come in the same order.

use std::ops::Range;

use crate::bad_samples::substitute;
use crate::sampler::MAX_LEN;
use crate::{Error, ErrorKind, Result, Sampler, World};

/// What becomes of the positions that do not fill the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LastBatch {
    /// They are delivered in one short step, spread over the ranks as evenly as can be: sizes differ by at most 1.
    ///
    /// Every rank has the same number of steps, but with fewer samples left than ranks, the last batch of some is
    /// empty. Where a step is collective and cannot have an empty batch, take one of the others: their
    /// steps are equal in number and full.
    #[default]
    Keep,
    /// They are left out; in the next epoch a shuffle leaves out others.
    Drop,
    /// They are delivered in one step, filled up with samples from the beginning of the same epoch.
    Pad,
}

/// What a [`BatchSampler`] is made of.
#[derive(Clone, Debug)]
pub struct BatchSamplerOptions {
    /// Samples of the data set.
    pub len: u64,
    /// The order of an epoch.
    pub sampler: Sampler,
    /// What the random orders depend on, with the epoch.
    pub seed: u64,
    /// Samples of a batch, on each rank.
    pub batch: usize,
    /// What becomes of the positions that do not fill the last step.
    pub last_batch: LastBatch,
    /// Which rank this is.
    pub world: World,
}

/// The batches of every epoch, as a value.
///
/// ```
/// use feedline_core::{Sampler, BatchSampler, BatchSamplerOptions, LastBatch, World};
/// let options = |rank| {
///     Ok(BatchSamplerOptions { len: 10, order: Order::Sequential, seed: 7, batch: 2, tail: Tail::Keep, world: World::new(rank, 2)? })
/// };
/// let (zero, one) = (BatchSampler::new(options(0)?)?, BatchSampler::new(options(1)?)?);
/// let mut ids = Vec::new();
/// assert_eq!(zero.steps(0, 0), 3);
/// zero.batch(0, 0, 1, &mut ids);
/// assert_eq!(ids, [4, 5]);
/// one.batch(0, 0, 1, &mut ids);
/// assert_eq!(ids, [6, 7]);
/// one.batch(0, 0, 2, &mut ids);
/// assert_eq!(ids, [9]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchSampler {
    options: BatchSamplerOptions,
    /// Samples of a step over all ranks.
    global: u64,
    positions: u64,
    /// Sorted by (epoch, first), not empty, not touching.
    skips: Vec<Skip>,
}

#[derive(Clone, Copy, Debug)]
struct Skip {
    epoch: u64,
    first: u64,
    end: u64,
}

/// This rank's part of a step, counted in positions that are not skipped.
struct Part {
    first: u64,
    rows: u64,
    fresh: u64,
}

impl BatchSampler {
    /// A plan of `options`.
    ///
    /// # Errors
    /// `Config` for a batch of 0, for [`LastBatch::Drop`] with a step larger than the epoch, and for what
    /// [`Sampler::check`] refuses.
    pub fn new(options: BatchSamplerOptions) -> Result<Self> {
        options.sampler.check(options.len)?;
        let positions = options.sampler.len(options.len);
        let (batch, world) = (options.batch, options.world.size());
        if batch == 0 {
            return Err(config("batch size is 0: it must be at least 1"));
        }
        let global = (batch as u64).checked_mul(u64::from(world)).filter(|&global| global <= MAX_LEN);
        let Some(global) = global else {
            return Err(config(format!("batch {batch} on {world} ranks is above 2^63 samples a step")));
        };
        if options.last_batch == LastBatch::Drop && global > positions {
            return Err(config(format!(
                "batch larger than the set with drop_last: {batch} samples on {world} ranks are {global} a step, the \
                 epoch has {positions}, so no batch would be left; take a smaller batch, or keep or pad the tail"
            )));
        }
        Ok(Self { options, global, positions, skips: Vec::new() })
    }

    /// The options it was made of.
    pub fn options(&self) -> &BatchSamplerOptions {
        &self.options
    }

    /// Positions of an epoch, over all ranks, those skipped included.
    pub fn positions(&self) -> u64 {
        self.positions
    }

    /// Samples of a full step over all ranks: batch times world.
    pub fn global_batch(&self) -> u64 {
        self.global
    }

    /// A number that tells this order from another; see [`Sampler::digest`].
    pub fn digest(&self) -> u64 {
        self.options.sampler.digest(self.options.len)
    }

    /// See [`Sampler::former_digest`].
    pub(crate) fn former_digest(&self) -> u64 {
        self.options.sampler.former_digest(self.options.len)
    }

    /// Leaves out steps of one epoch, without reading them: the batches after a spike of the loss, say.
    ///
    /// `steps` are counted from the beginning of the epoch, at this plan's batch and world, as if nothing were skipped: the
    /// numbers in the log of the run that had the spike. Their positions are cut out of the epoch and the rest
    /// closes up, so other batches stay as they were, and the cut stays where it is for a world of another
    /// size. Further calls add to it.
    ///
    /// # Errors
    /// As [`skip_positions`](Self::skip_positions).
    pub fn skip(&mut self, epoch: u64, steps: Range<u64>) -> Result<()> {
        let first = steps.start.saturating_mul(self.global);
        let end = steps.end.saturating_mul(self.global);
        self.skip_positions(epoch, first..end.min(self.positions))
    }

    /// Leaves out global positions of one epoch; a batch across the cut takes the positions on both sides.
    ///
    /// # Errors
    /// `Config` for an empty range, and for one that reaches beyond the epoch.
    pub fn skip_positions(&mut self, epoch: u64, positions: Range<u64>) -> Result<()> {
        let Range { start: mut first, mut end } = positions;
        if first >= end || end > self.positions {
            return Err(config(format!(
                "cannot skip positions {first} to {end} of an epoch of {}: name a range inside it",
                self.positions
            )));
        }
        // Join with every range that it overlaps or touches.
        self.skips.retain(|skip| {
            let apart = skip.epoch != epoch || skip.end < first || end < skip.first;
            if !apart {
                (first, end) = (first.min(skip.first), end.max(skip.end));
            }
            apart
        });
        let at = self.skips.partition_point(|skip| (skip.epoch, skip.first) < (epoch, first));
        self.skips.insert(at, Skip { epoch, first, end });
        Ok(())
    }

    /// Steps from global position `start` to the end of `epoch`: the same number on every rank.
    pub fn steps(&self, epoch: u64, start: u64) -> u64 {
        let left = self.live_before(epoch, self.positions) - self.live_before(epoch, start);
        match self.options.last_batch {
            LastBatch::Keep | LastBatch::Pad => left.div_ceil(self.global),
            LastBatch::Drop => left / self.global,
        }
    }

    /// Replaces `ids` by this rank's samples of step `step` after global position `start`; returns how many of them, the
    /// first ones, are due. Those behind are the repeats of [`LastBatch::Pad`]. No ids when there is no such step.
    ///
    /// Allocates nothing once `ids` has room for a batch (see [`Sampler::fill`]).
    pub fn batch(&self, epoch: u64, start: u64, step: u64, ids: &mut Vec<u64>) -> usize {
        ids.clear();
        let Some(part) = self.part(epoch, start, step) else { return 0 };
        ids.resize(part.rows as usize, 0);
        let live = self.live_before(epoch, self.positions);
        let (mut at, mut rest) = (part.first % live, &mut ids[..]);
        while !rest.is_empty() {
            let run = rest.len().min(usize::try_from(live - at).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(run);
            self.fill_live(epoch, at, now);
            (at, rest) = (0, later);
        }
        part.fresh as usize
    }

    /// The global position of row `row` of this rank's batch, for what is keyed by position; `None` beyond its rows.
    pub fn position(&self, epoch: u64, start: u64, step: u64, row: usize) -> Option<u64> {
        let part = self.part(epoch, start, step).filter(|part| (row as u64) < part.rows)?;
        let live = self.live_before(epoch, self.positions);
        Some(self.nth_live(epoch, (part.first + row as u64) % live))
    }

    /// The global position after step `step`: where a run goes on that has delivered it. For a `step` beyond the last,
    /// the position after the last.
    pub fn position_after(&self, epoch: u64, start: u64, step: u64) -> u64 {
        let done = step.saturating_add(1).min(self.steps(epoch, start));
        if done == 0 {
            return start;
        }
        let live = self.live_before(epoch, self.positions);
        let after = self.live_before(epoch, start).saturating_add(done.saturating_mul(self.global));
        self.nth_live(epoch, after.min(live))
    }

    /// The global position after the last step from `start`.
    pub fn end(&self, epoch: u64, start: u64) -> u64 {
        self.position_after(epoch, start, u64::MAX)
    }

    /// The sample at a global position of an epoch, or `None` beyond its end.
    pub fn id(&self, epoch: u64, position: u64) -> Option<u64> {
        let BatchSamplerOptions { len, sampler, seed, .. } = &self.options;
        (position < self.positions).then(|| sampler.id(*len, *seed, epoch, position))
    }

    /// The sample to read in place of the one at `position`, after `attempt` others failed there too: the sample at
    /// another position of the same epoch, the same on every rank and in every replay; see [`substitute`].
    pub fn substitute(&self, epoch: u64, position: u64, attempt: u32) -> u64 {
        let BatchSamplerOptions { len, sampler, seed, .. } = &self.options;
        sampler.id(*len, *seed, epoch, substitute(*seed, epoch, position, attempt, self.positions))
    }

    /// Positions of `epoch` within `positions` that are skipped.
    pub fn skipped(&self, epoch: u64, positions: Range<u64>) -> u64 {
        let inside =
            |skip: &Skip| skip.end.min(positions.end).saturating_sub(skip.first.max(positions.start));
        self.skips_of(epoch).iter().map(inside).sum()
    }

    /// Calls `each` with the samples at `positions` of `epoch`, in order and in pieces, without those skipped.
    pub(crate) fn for_ids(&self, epoch: u64, positions: Range<u64>, mut each: impl FnMut(&[u64])) {
        let mut ids = [0; 1024];
        let mut at = self.live_before(epoch, positions.start);
        let end = self.live_before(epoch, positions.end.min(self.positions));
        while at < end {
            let run = (end - at).min(ids.len() as u64);
            self.fill_live(epoch, at, &mut ids[..run as usize]);
            each(&ids[..run as usize]);
            at += run;
        }
    }

    /// `None` when there is no such step.
    fn part(&self, epoch: u64, start: u64, step: u64) -> Option<Part> {
        let before = self.live_before(epoch, start);
        let left = self.live_before(epoch, self.positions) - before;
        let offset = step.checked_mul(self.global).filter(|&offset| offset < left)?;
        let (first, left) = (before + offset, left - offset);
        let (batch, rank) = (self.options.batch as u64, u64::from(self.options.world.rank()));
        let full = Part { first: first + rank * batch, rows: batch, fresh: batch };
        if left >= self.global {
            return Some(full);
        }
        match self.options.last_batch {
            LastBatch::Drop => None,
            LastBatch::Pad => Some(Part { fresh: left.saturating_sub(rank * batch).min(batch), ..full }),
            LastBatch::Keep => {
                let (each, over) = (left / self.size(), left % self.size());
                let rows = each + u64::from(rank < over);
                Some(Part { first: first + rank * each + rank.min(over), rows, fresh: rows })
            }
        }
    }

    fn size(&self) -> u64 {
        u64::from(self.options.world.size())
    }

    fn skips_of(&self, epoch: u64) -> &[Skip] {
        let first = self.skips.partition_point(|skip| skip.epoch < epoch);
        let end = self.skips.partition_point(|skip| skip.epoch <= epoch);
        &self.skips[first..end]
    }

    /// Positions before `position` that are not skipped.
    fn live_before(&self, epoch: u64, position: u64) -> u64 {
        let position = position.min(self.positions);
        position - self.skipped(epoch, 0..position)
    }

    /// The position that has `live` positions before it that are not skipped, and is not skipped itself.
    fn nth_live(&self, epoch: u64, live: u64) -> u64 {
        let mut position = live;
        for skip in self.skips_of(epoch) {
            if position < skip.first {
                break;
            }
            position += skip.end - skip.first;
        }
        position
    }

    fn fill_live(&self, epoch: u64, live: u64, out: &mut [u64]) {
        let BatchSamplerOptions { len, sampler, seed, .. } = &self.options;
        let first = self.nth_live(epoch, live);
        let mut skips = self.skips_of(epoch).iter().filter(|skip| skip.first > first);
        let (mut position, mut rest) = (first, out);
        while !rest.is_empty() {
            let skip = skips.next();
            let until = skip.map_or(u64::MAX, |skip| skip.first - position);
            let run = rest.len().min(usize::try_from(until).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(run);
            sampler.fill(*len, *seed, epoch, position, now);
            rest = later;
            position = skip.map_or(position, |skip| skip.end);
        }
    }
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}
