//! The samples of each batch on each rank: a function of the options, the epoch and a position.
//!
//! An epoch is a sequence of global positions, the same for any world size. Each step takes the next `batch *
//! world` positions, and rank `r` takes the `r`-th `batch` of them. So a run that stopped at a position can
//! resume there with any number of ranks, and the samples keep their order.

use std::ops::Range;

use crate::bad_samples::substitute;
use crate::named;
use crate::sampler::{MAX_LEN, batches::NO_ROW, custom::NO_SAMPLE};
use crate::source::MAX_SHARDS;
use crate::source_order::RecordOrder;
use crate::{BatchInfo, Error, ErrorKind, Pad, Result, Sampler, Stage, Substituted, World};

/// What to do with samples that do not fill the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LastBatch {
    /// Deliver them in a short step, spread evenly over the ranks: batch sizes differ by at most 1. Every
    /// rank has the same number of steps, every sample comes once, and no batch is empty.
    ///
    /// If fewer samples than ranks are left, the step before gives up some of its own, so that each rank has
    /// one row in the last step: 97 samples on 2 ranks in batches of 16 are steps of 32, 32, 31 and 2
    /// samples. With batches of one row, or fewer samples than ranks in all, that is not possible: then a
    /// rank without a sample gets one row of padding from the beginning of the epoch, and its
    /// [`valid_rows`](crate::BatchInfo::valid_rows) is 0.
    ///
    /// In the mean of a short batch each sample has a larger weight than in a full one, also after averaging
    /// over ranks: `docs/launchers.md` has the factor.
    #[default]
    Keep,
    /// Drop them. A shuffling sampler drops other samples in the next epoch.
    Drop,
    /// Deliver them in one full step, padded with samples from the beginning of the same epoch.
    Pad,
}

/// The options of a [`BatchSampler`].
#[derive(Clone, Debug)]
pub struct BatchSamplerOptions {
    /// Number of samples of the data set.
    pub len: u64,
    /// The order of the samples.
    pub sampler: Sampler,
    /// The seed of random samplers.
    pub seed: u64,
    /// Samples per batch and rank.
    pub batch: usize,
    /// What to do with samples that do not fill the last step.
    pub last_batch: LastBatch,
    /// This rank and the number of ranks.
    pub world: World,
}

/// The batches of every epoch.
///
/// ```
/// use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Sampler, World};
/// let batches_of = |rank| {
///     BatchSampler::new(BatchSamplerOptions {
///         len: 10,
///         sampler: Sampler::Sequential,
///         seed: 7,
///         batch: 2,
///         last_batch: LastBatch::Keep,
///         world: World::new(rank, 2)?,
///     })
/// };
/// let (zero, one) = (batches_of(0)?, batches_of(1)?);
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
    /// Samples per step over all ranks.
    global: u64,
    positions: u64,
    /// Samples of a group, which stays whole on one rank: [`Sampler::unit`].
    unit: u64,
    /// Sorted by (epoch, first); not empty, overlapping or adjacent.
    skips: Vec<Skip>,
    /// The order of a source's records.
    records: RecordOrder,
}

#[derive(Clone, Copy, Debug)]
struct Skip {
    epoch: u64,
    first: u64,
    end: u64,
}

impl BatchSampler {
    /// A batch sampler with `options`.
    ///
    /// # Errors
    /// `Config` for a batch size of 0, for one that is no multiple of the sampler's groups, for
    /// [`LastBatch::Drop`] with a step larger than the epoch, and as for
    /// `Sampler::check`.
    pub fn new(options: BatchSamplerOptions) -> Result<Self> {
        if options.batch == 0 {
            return Err(config("batch size is 0: it must be at least 1"));
        }
        let sampler = options.sampler.with_batch(options.batch);
        let options = BatchSamplerOptions { sampler, ..options };
        options.sampler.check(options.len)?;
        let positions = options.sampler.len(options.len);
        let (batch, world) = (options.batch, options.world.size());
        let unit = options.sampler.unit();
        if !(batch as u64).is_multiple_of(unit) {
            return Err(config(format!(
                "the batch size is {batch}, and groups of {unit} samples stay together: give a multiple of \
                 {unit}"
            )));
        }
        let global = (batch as u64).checked_mul(u64::from(world)).filter(|&global| global <= MAX_LEN);
        let Some(global) = global else {
            return Err(config(format!(
                "batch {batch} on {world} ranks is above 2^63 samples per step: take a smaller batch"
            )));
        };
        if options.last_batch == LastBatch::Drop && global > positions {
            return Err(config(format!(
                "the batch is larger than the epoch and the last batch is dropped: {batch} samples on \
                 {world} ranks are {global} per step, the epoch has {positions}; take a smaller batch, or \
                 keep or pad the last batch"
            )));
        }
        Ok(Self { options, global, positions, unit, skips: Vec::new(), records: RecordOrder::default() })
    }

    /// The options.
    pub fn options(&self) -> &BatchSamplerOptions {
        &self.options
    }

    /// The position at which step `step` begins, counted as by [`skip`](Self::skip); the end of the epoch for
    /// a step after the last one.
    fn begin_of(&self, step: u64) -> u64 {
        let is_last = step == self.positions / self.global;
        self.full(step).min(self.positions) - if is_last { self.lent(self.positions) } else { 0 }
    }

    /// Number of steps from global position `start` to the end of `epoch`; the same on every rank.
    pub fn steps(&self, epoch: u64, start: u64) -> u64 {
        let left = self.live_before(epoch, self.positions) - self.live_before(epoch, start);
        match self.options.last_batch {
            LastBatch::Keep | LastBatch::Pad => left.div_ceil(self.global),
            LastBatch::Drop => left / self.global,
        }
    }

    /// Replaces `ids` by this rank's samples of step `step` after global position `start`, and returns the
    /// number of valid ones, which come first. The others are the padding of [`LastBatch::Pad`]. `ids` is
    /// empty if there is no such step.
    ///
    /// Does not allocate once `ids` has the capacity for a batch (see [`Sampler::WithoutReplacement`]).
    pub fn batch(&self, epoch: u64, start: u64, step: u64, ids: &mut Vec<u64>) -> usize {
        ids.clear();
        let Some((rows, valid)) = self.part(epoch, start, step) else { return 0 };
        ids.resize((rows.end - rows.start) as usize, 0);
        let live = self.live_before(epoch, self.positions);
        let (mut at, mut rest) = (rows.start % live, &mut ids[..]);
        while !rest.is_empty() {
            let run = rest.len().min(usize::try_from(live - at).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(run);
            self.fill_live(epoch, at, now);
            (at, rest) = (0, later);
        }
        if let Some(rows) = self.rows_of(ids) {
            ids.truncate(rows);
        }
        (valid as usize).min(ids.len())
    }

    /// The number of rows of a batch that was named as such, if it is short.
    fn rows_of(&self, ids: &[u64]) -> Option<usize> {
        if self.options.sampler.names_batches() { ids.iter().position(|&id| id == NO_ROW) } else { None }
    }

    /// The share of padding, from 0 to 1, in this rank's batches of `epoch`, if rows are padded by `pad`;
    /// `lengths[i]` is the number of items of sample `i`, 0 if it is not listed.
    ///
    /// ```
    /// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Sampler, World};
    /// use feedline_core::Pad;
    /// let batches = BatchSampler::new(BatchSamplerOptions {
    ///     len: 4,
    ///     sampler: Sampler::Sequential,
    ///     seed: 0,
    ///     batch: 2,
    ///     last_batch: LastBatch::Keep,
    ///     world: World::single(),
    /// })?;
    /// assert_eq!(batches.padding_share(0, &[1, 3, 2, 2], Pad::longest()), 0.2); // 2 of 10
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn padding_share(&self, epoch: u64, lengths: &[u32], pad: Pad) -> f64 {
        let length =
            |id: &u64| usize::try_from(*id).ok().and_then(|id| lengths.get(id)).map_or(0, |&n| n as usize);
        let (mut ids, mut padded, mut used) = (Vec::new(), 0, 0);
        for step in 0..self.steps(epoch, 0) {
            self.batch(epoch, 0, step, &mut ids);
            padded += pad.width(ids.iter().map(length).max().unwrap_or(0)) * ids.len();
            used += ids.iter().map(length).sum::<usize>();
        }
        if padded == 0 { 0.0 } else { (padded - used) as f64 / padded as f64 }
    }

    /// Calls `each` with the samples at `positions` of `epoch`, in order, in chunks, without the skipped
    /// ones.
    pub(crate) fn for_ids(&self, epoch: u64, positions: Range<u64>, mut each: impl FnMut(&[u64])) {
        let mut ids = [0; 1024];
        let mut at = self.live_before(epoch, positions.start);
        let end = self.live_before(epoch, positions.end.min(self.positions));
        while at < end {
            let run = (end - at).min(ids.len() as u64);
            self.fill_live(epoch, at, &mut ids[..run as usize]);
            let drawn = &ids[..run as usize];
            match self.options.sampler.names_batches() {
                true => drawn.split(|&id| id == NO_ROW).for_each(&mut each),
                false => each(drawn),
            }
            at += run;
        }
    }

    /// This rank's rows of a step, counted in positions that are not skipped, and how many of them are not
    /// padding; `None` when there is no such step.
    fn part(&self, epoch: u64, start: u64, step: u64) -> Option<(Range<u64>, u64)> {
        let before = self.live_before(epoch, start);
        let left = self.live_before(epoch, self.positions) - before;
        let [offset, end] = [step, step.saturating_add(1)].map(|step| self.taken(left, step));
        let (first, samples) = (before + offset, end - offset);
        let (batch, rank) = (self.options.batch as u64, u64::from(self.options.world.rank()));
        let rows = |first, rows| first..first + rows;
        let full = rows(first + rank * batch, batch);
        match self.options.last_batch {
            _ if samples == 0 => None,
            _ if samples == self.global => Some((full, batch)),
            // One row per rank, or one group; padding for the ranks without a sample.
            LastBatch::Keep if samples < self.smallest() => {
                let at = rank * self.unit;
                Some((rows(first + at, self.unit), if at < samples { self.unit } else { 0 }))
            }
            LastBatch::Keep => {
                let groups = samples / self.unit;
                let (each, over) = (groups / self.size(), groups % self.size());
                let own = (each + u64::from(rank < over)) * self.unit;
                Some((rows(first + (rank * each + rank.min(over)) * self.unit, own), own))
            }
            LastBatch::Drop | LastBatch::Pad => Some((full, samples.saturating_sub(rank * batch).min(batch))),
        }
    }

    /// Samples of `steps` full steps.
    fn full(&self, steps: u64) -> u64 {
        steps.saturating_mul(self.global)
    }

    /// Samples of the next `steps` steps over all ranks, with `left` samples left.
    fn taken(&self, left: u64, steps: u64) -> u64 {
        let all = left / self.global;
        match self.options.last_batch {
            LastBatch::Drop => self.full(steps.min(all)),
            LastBatch::Keep | LastBatch::Pad if steps == all => self.full(all) - self.lent(left),
            LastBatch::Keep | LastBatch::Pad => self.full(steps).min(left),
        }
    }

    /// Samples that the last full step gives up for the short step after it, so that each rank has a row
    /// or a group there; `left` samples are left.
    fn lent(&self, left: u64) -> u64 {
        let (all, rest) = (left / self.global, left % self.global);
        let has_more = self.options.batch as u64 > self.unit && all > 0;
        let is_lent = self.options.last_batch == LastBatch::Keep && has_more;
        if is_lent && (1..self.smallest()).contains(&rest) { self.smallest() - rest } else { 0 }
    }

    /// Samples of a step in which each rank has one row, or one group.
    fn smallest(&self) -> u64 {
        self.size() * self.unit
    }

    fn size(&self) -> u64 {
        u64::from(self.options.world.size())
    }

    fn skips_of(&self, epoch: u64) -> &[Skip] {
        let first = self.skips.partition_point(|skip| skip.epoch < epoch);
        let end = self.skips.partition_point(|skip| skip.epoch <= epoch);
        &self.skips[first..end]
    }

    /// Number of positions before `position` that are not skipped.
    fn live_before(&self, epoch: u64, position: u64) -> u64 {
        let position = position.min(self.positions);
        position - self.skipped(epoch, 0..position)
    }

    /// The position with index `live` among those that are not skipped.
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

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl BatchSampler {
    /// Checks that a source can be read in the order of this batch sampler, which takes one shard per step.
    ///
    /// # Errors
    /// `Config` for more than 2^20 shards, and for a sampler that may repeat a shard within an epoch:
    /// its records would be delivered twice.
    pub fn check_source(&self) -> Result<()> {
        let options = self.options();
        if options.len > MAX_SHARDS {
            let why = format!("the source has {} shards: the maximum is {MAX_SHARDS}", options.len);
            return Err(Error::new(ErrorKind::Config, why));
        }
        if options.sampler.repeats() {
            let others = named(
                "sequential, shuffle, block, weighted without replacement, or a subset that lists no shard \
                 twice",
                "shuffle=, Sampler.block or Sampler.weighted(..., replacement=False)",
            );
            let why = format!(
                "the sampler orders the shards of a source, and this one may repeat a shard within an epoch: \
                 use {others}"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }

    /// Sets the order of a source's records; the order of the shards stays.
    pub fn with_records(self, records: RecordOrder) -> Self {
        Self { records, ..self }
    }

    /// This batch sampler for one rank alone, which gets the samples of all ranks.
    pub fn on_one_rank(&self) -> Self {
        let options = BatchSamplerOptions { world: World::single(), ..self.options.clone() };
        Self { global: options.batch as u64, options, ..self.clone() }
    }

    /// The order of a source's records.
    pub fn records(&self) -> RecordOrder {
        self.records
    }

    /// Number of positions of an epoch over all ranks, including skipped ones.
    pub fn positions(&self) -> u64 {
        self.positions
    }

    /// Samples of a full step over all ranks: batch size times world size.
    pub fn global_batch(&self) -> u64 {
        self.global
    }

    /// A number that identifies the order of samples; see [`Sampler::digest`].
    pub fn digest(&self) -> u64 {
        self.records.digest(self.options.sampler.digest(self.options.len))
    }

    /// Skips steps of one epoch without reading them, for example the batches after a loss spike.
    ///
    /// `steps` are counted from the beginning of the epoch, with this batch size and world size and without
    /// any skips, as in the log of the run that had the spike. Their positions are removed from the epoch:
    /// the other batches do not change, and the same samples are skipped with any world size. Further calls
    /// skip more.
    ///
    /// # Errors
    /// As for [`skip_positions`](Self::skip_positions).
    pub fn skip(&mut self, epoch: u64, steps: Range<u64>) -> Result<()> {
        let Range { start, end } = steps;
        self.skip_positions(epoch, self.begin_of(start)..self.begin_of(end))
    }

    /// The step that has `position`, counted as by [`skip`](Self::skip).
    pub fn step_of(&self, position: u64) -> u64 {
        let step = position / self.global;
        if position >= self.begin_of(step.saturating_add(1)) { step.saturating_add(1) } else { step }
    }

    /// Skips global positions of one epoch. A batch across the gap takes the positions on both sides.
    ///
    /// # Errors
    /// `Config` for an empty range, for one beyond the end of the epoch, and for one that divides a group.
    pub fn skip_positions(&mut self, epoch: u64, positions: Range<u64>) -> Result<()> {
        let Range { start: mut first, mut end } = positions;
        if first >= end || end > self.positions {
            return Err(config(format!(
                "cannot skip positions {first} to {end} of an epoch of {}: choose a range inside the epoch",
                self.positions
            )));
        }
        if !(first.is_multiple_of(self.unit) && end.is_multiple_of(self.unit)) {
            return Err(config(format!(
                "cannot skip positions {first} to {end}, which divide a group of {}: choose multiples of it",
                self.unit
            )));
        }
        // Merge with every overlapping or adjacent range.
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

    /// Checks that a custom sampler still gives the samples of a batch that was read ahead: `info.ids`.
    /// `again` is scratch memory for its ids. Does nothing for other samplers.
    ///
    /// # Errors
    /// `Config`, with the first sample that differs.
    pub fn check_again(&self, info: &BatchInfo, again: &mut Vec<u64>) -> Result<()> {
        if !self.options.sampler.is_custom() {
            return Ok(());
        }
        let &BatchInfo { epoch, start, step, .. } = info;
        self.batch(epoch, start, step, again);
        for Substituted { row, substitute, failures } in &info.substituted {
            if failures.first().is_some_and(|own| again.get(*row) == Some(&own.sample)) {
                again[*row] = *substitute;
            }
        }
        let Some(row) = info.ids.iter().zip(&*again).position(|(read, now)| read != now) else {
            return Ok(());
        };
        let position = self.position(epoch, start, step, row).unwrap_or_default();
        let now = match again[row] {
            NO_SAMPLE => "none".to_owned(),
            id => format!("sample {id}"),
        };
        let why = format!(
            "the sampler {:?} gave sample {} for position {position} of epoch {epoch} when the batch was \
             read, and {now} in a second call: it must always give the same, because batches are read ahead, \
             also those of the next epoch; for an order that follows the training, such as by losses, build \
             a loader for each epoch",
            self.options.sampler, info.ids[row]
        );
        Err(config(why).at_batch(step))
    }

    /// Why the sampler gives no sample in row `row` of this rank's batch.
    pub fn fault(&self, epoch: u64, start: u64, step: u64, row: usize) -> Error {
        let BatchSamplerOptions { len, sampler, .. } = &self.options;
        sampler.fault(*len, epoch).unwrap_or_else(|| {
            let position = self.position(epoch, start, step, row).unwrap_or_default();
            config(format!(
                "the sampler {sampler:?} gives no sample of the data set at position {position} of epoch \
                 {epoch}: return ids below {len}"
            ))
            .at_stage(Stage::Decode)
            .at_batch(step)
        })
    }

    /// Replaces `draws` by the global position of each row of this rank's batch. Random numbers are keyed by
    /// it. A row of padding has the position of the sample that it repeats.
    ///
    /// Does not allocate once `draws` has the capacity for a batch.
    pub fn draws(&self, epoch: u64, start: u64, step: u64, draws: &mut Vec<u64>) {
        draws.clear();
        let Some((rows, _)) = self.part(epoch, start, step) else { return };
        let live = self.live_before(epoch, self.positions);
        let (mut at, has_skips) = (rows.start % live, !self.skips_of(epoch).is_empty());
        draws.extend(rows.map(|_| {
            let draw = if has_skips { self.nth_live(epoch, at) } else { at };
            at = if at + 1 == live { 0 } else { at + 1 };
            draw
        }));
    }

    /// The global position of row `row` of this rank's batch; `None` if there is no such row.
    pub fn position(&self, epoch: u64, start: u64, step: u64, row: usize) -> Option<u64> {
        let (mut rows, _) = self.part(epoch, start, step)?;
        let live = self.live_before(epoch, self.positions);
        rows.nth(row).map(|at| self.nth_live(epoch, at % live))
    }

    /// The global position after step `step`: a run that has delivered the step resumes there. For a `step`
    /// after the last one, the position after the last step.
    pub fn position_after(&self, epoch: u64, start: u64, step: u64) -> u64 {
        if self.steps(epoch, start) == 0 {
            return start;
        }
        let before = self.live_before(epoch, start);
        let left = self.live_before(epoch, self.positions) - before;
        self.nth_live(epoch, before + self.taken(left, step.saturating_add(1)))
    }

    /// The global position after the last step from `start`.
    pub fn end(&self, epoch: u64, start: u64) -> u64 {
        self.position_after(epoch, start, u64::MAX)
    }

    /// The sample at a global position of an epoch; `None` beyond its end, and in a row that a batch of your
    /// own does not have.
    pub fn id(&self, epoch: u64, position: u64) -> Option<u64> {
        let BatchSamplerOptions { len, sampler, seed, .. } = &self.options;
        let id = (position < self.positions).then(|| sampler.id(*len, *seed, epoch, position));
        id.filter(|&id| id != NO_ROW)
    }

    /// The sample to read instead of the one at `position`, after `attempt` other substitutes failed. It is
    /// the sample at another position of the same epoch, the same on every rank and in every replay; see
    /// [`substitute`].
    pub fn substitute(&self, epoch: u64, position: u64, attempt: u32) -> u64 {
        let BatchSamplerOptions { len, sampler, seed, .. } = &self.options;
        // The samples of a group get those of one other group.
        let (group, place) = (position / self.unit, position % self.unit);
        let other = substitute(*seed, epoch, group, attempt, self.positions / self.unit);
        match sampler.id(*len, *seed, epoch, other * self.unit + place) {
            NO_ROW => sampler.id(*len, *seed, epoch, other * self.unit),
            id => id,
        }
    }

    /// Number of skipped positions of `epoch` within `positions`.
    pub fn skipped(&self, epoch: u64, positions: Range<u64>) -> u64 {
        let inside =
            |skip: &Skip| skip.end.min(positions.end).saturating_sub(skip.first.max(positions.start));
        self.skips_of(epoch).iter().map(inside).sum()
    }
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}
