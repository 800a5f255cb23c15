//! A mix of several sets by weights, each with its own epochs.

use std::fmt;
use std::sync::Arc;

use crate::compose::{Parts, about_parts, check_id, check_len, common_spec, config};
use crate::random::key;
use crate::sampler::Permutation;
use crate::{
    About, Context, DType, Dataset, Fingerprint, Prefetched, ReadError, Result, Row, RowError, Rows, Spec,
    StableDataset, Storage, TakeItems,
};

/// Length of the pattern in which the sets alternate. Shares are rounded to multiples of one divided by it.
const PERIOD: usize = 1 << 16;

/// Several sets with the same fields, by weights, spread evenly over the epoch; made by [`Mix::builder`].
///
/// The limits of ragged fields may differ: those of the mix are the largest.
///
/// # Which sample is where
///
/// - Every position of an epoch belongs to one set. Of every 65,536 positions each set has its share,
///   rounded to whole positions, and they are spread evenly: of the first `n` positions, each set has its
///   share of `n` to within the number of sets. The pattern is a function of the weights alone.
/// - Each set has epochs of its own. Its epoch 0 begins with its first draw in epoch 0 of the run. One epoch
///   of a set has as many draws as the set has samples: each sample comes exactly once, in an order shuffled
///   by the seed, the set and the set's epoch.
/// - The set's epochs continue across epochs of the run: if the epoch ends midway through a set, the next
///   epoch resumes there. A large set with a small weight is seen whole, over several epochs; a small set
///   with a large weight comes several times within one.
/// - Weights may change: from a sample of the run on, or from an epoch on, other shares are drawn, whose
///   pattern begins there. Each set goes on where it is. A cursor needs no more to resume than before, since
///   the weights are a function of the epoch and the position. A loader that shuffles keeps those of an epoch
///   only: leave the order to the mix where they change within.
///
/// So sample `id` of the mix depends on the epoch, and a loader that shuffles the mix delivers the same
/// samples in each epoch as one that does not. Random numbers are keyed by the loader's epoch and draw, so a
/// sample that comes again within an epoch gets different ones.
///
/// ```
/// use feedline_core::compose::{InMemory, Mix};
/// use feedline_core::Dataset;
///
/// let real = InMemory::new().field("x", [], [0_u8; 90])?;
/// let drawn = InMemory::new().field("x", [], [1_u8; 10])?;
/// let mix = Mix::builder(7).dataset(real, 3.0).dataset(drawn, 1.0).build()?;
/// assert_eq!((mix.len(), mix.draws(0, 1)), (100, 25));
/// assert_eq!((0..8).map(|id| mix.place(0, id).unwrap().0).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0, 1, 0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Mix {
    parts: Vec<StableDataset>,
    spec: Spec,
    /// The fields of the sets, if a further one tells the set of a row.
    untold: Option<Spec>,
    /// Sorted by time. The first phase begins with the run.
    phases: Vec<Phase>,
    len: u64,
    seed: u64,
}

/// The samples of the run from one change of weights to the next.
struct Phase {
    /// The epoch and the position of the first one.
    epoch: u64,
    first: u64,
    /// The draws of each set before this phase, counted from the beginning of the run. No number of epochs
    /// overflows the type.
    drawn: Vec<u128>,
    /// One entry per position of a period: the set of the position, and how many earlier positions have the
    /// same set. The pattern restarts with each epoch.
    pattern: Vec<(u32, u32)>,
    /// Positions of each set in a period; they add up to the period.
    shares: Vec<u64>,
    /// The draws of each set in the rest of the first epoch, and in each other one.
    in_first: Vec<u64>,
    in_others: Vec<u64>,
}

impl Phase {
    /// A phase from position `first` of `epoch` on; an epoch has `len` samples.
    fn new((epoch, first): (u64, u64), drawn: Vec<u128>, shares: Vec<u64>, len: u64) -> Self {
        let pattern = pattern(&shares);
        let mut phase =
            Self { epoch, first, drawn, pattern, shares, in_first: Vec::new(), in_others: Vec::new() };
        let sets = 0..phase.shares.len();
        phase.in_first = sets.clone().map(|part| phase.within(part, len - first)).collect();
        phase.in_others = sets.map(|part| phase.within(part, len)).collect();
        phase
    }

    /// The draws of a set among the first `positions` of the pattern.
    fn within(&self, part: usize, positions: u64) -> u64 {
        let (periods, rest) = (positions / PERIOD as u64, (positions % PERIOD as u64) as usize);
        let of_rest = self.pattern[..rest].iter().filter(|(set, _)| *set as usize == part).count();
        periods * self.shares[part] + of_rest as u64
    }

    /// The period that has position `id` of `epoch`, the place in the period, and the draws of a set before
    /// the pattern began.
    fn place(&self, epoch: u64, id: u64, part: impl Fn(u64) -> usize) -> (u64, usize, u128) {
        match epoch.checked_sub(self.epoch + 1) {
            None => {
                let part = part(id - self.first);
                (id - self.first, part, self.drawn[part])
            }
            Some(epochs) => {
                let part = part(id);
                let before = u128::from(epochs) * u128::from(self.in_others[part]);
                (id, part, self.drawn[part] + u128::from(self.in_first[part]) + before)
            }
        }
    }

    /// The set that has position `id` of `epoch`, and the draw of that set.
    fn draw(&self, epoch: u64, id: u64) -> (usize, u128) {
        let of = |at: u64| self.pattern[(at % PERIOD as u64) as usize];
        let (at, part, before) = self.place(epoch, id, |at| of(at).0 as usize);
        let own = at / PERIOD as u64 * self.shares[part] + u64::from(of(at).1);
        (part, before + u128::from(own))
    }

    /// The draws of set `part` before position `id` of `epoch`.
    fn draws_before(&self, part: usize, epoch: u64, id: u64) -> u128 {
        let (at, part, before) = self.place(epoch, id, |_| part);
        before + u128::from(self.within(part, at))
    }
}

/// The start of a change of weights.
#[derive(Clone, Copy, Debug)]
enum From {
    Sample(u64),
    Epoch(u64),
}

/// The sets of a [`Mix`], and its length.
#[derive(Default)]
pub struct MixBuilder {
    parts: Vec<StableDataset>,
    weights: Vec<f64>,
    changes: Vec<(From, Vec<f64>)>,
    len: Option<u64>,
    seed: u64,
    part_field: Option<String>,
}

impl MixBuilder {
    /// Adds a set; its share is its weight divided by the sum of all weights. A set of weight 0 begins where
    /// [`weights_from_epoch`](Self::weights_from_epoch) or [`weights_from`](Self::weights_from) gives it
    /// more.
    pub fn dataset(mut self, set: impl Dataset, weight: f64) -> Self {
        self.parts.push(StableDataset::new(Arc::new(set)));
        self.weights.push(weight);
        self
    }

    /// Adds a field, `i32` without dimensions, that tells which set a row is from: 0 for the first one that
    /// was added. Default: none.
    ///
    /// ```
    /// use feedline_core::compose::{InMemory, Mix};
    /// use feedline_core::Dataset;
    /// let [real, drawn] = [0_u8, 1].map(|x| InMemory::new().field("x", [], [x; 10]));
    /// let mix = Mix::builder(7).dataset(real?, 3.0).dataset(drawn?, 1.0).part_field("source").build()?;
    /// assert_eq!(mix.spec().index_of("source")?, 1); // 0 in rows of `real`, 1 in those of `drawn`
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn part_field(self, name: &str) -> Self {
        Self { part_field: Some(name.to_owned()), ..self }
    }

    /// Sets the samples per epoch of the mix. Default: the samples of all sets together.
    pub fn samples(self, samples: u64) -> Self {
        Self { len: Some(samples), ..self }
    }

    /// Changes the weights from epoch `epoch` of the run on: one for each set; 0 leaves a set out.
    pub fn weights_from_epoch(mut self, epoch: u64, weights: &[f64]) -> Self {
        self.changes.push((From::Epoch(epoch), weights.to_vec()));
        self
    }

    /// Changes the weights from sample `sample` of the run on, counted over all epochs and ranks: with a
    /// batch of 8 on 4 ranks, step `n` begins with sample `32 * n`. A weight of 0 leaves a set out.
    pub fn weights_from(mut self, sample: u64, weights: &[f64]) -> Self {
        self.changes.push((From::Sample(sample), weights.to_vec()));
        self
    }

    /// The mix.
    ///
    /// # Errors
    /// `Config` for no sets, sets with different fields, an empty set, a weight below zero, a set whose
    /// weight is always zero, a share below one in 65,536, or more than 2^63 samples; also for weights that
    /// are all zero, changed ones that are not one per set, or given twice for one position; and for a
    /// [`part_field`](Self::part_field) of a name that a field has.
    pub fn build(self) -> Result<Mix> {
        let Self { parts, weights, changes, len, seed, part_field } = self;
        let spec = common_spec("mix", &parts)?;
        let (spec, untold) = match part_field {
            Some(name) => (spec.clone().field(&name, DType::I32, [])?, Some(spec)),
            None => (spec, None),
        };
        if let Some(empty) = parts.iter().position(|part| part.len() == 0) {
            return Err(config(format!("part {empty} of the mix is empty: leave it out")));
        }
        let is_left_out = |part: usize| {
            let later = changes.iter().filter_map(|(_, later)| later.get(part));
            weights[part] == 0.0 && later.copied().all(|weight| weight == 0.0)
        };
        if let Some(part) = (0..parts.len()).find(|&part| is_left_out(part)) {
            return Err(config(format!("part {part} of the mix has weight 0 in every epoch: leave it out")));
        }
        if weights.iter().all(|&weight| weight == 0.0) {
            return Err(config("the weights of the mix are all 0 at first: begin with a set".to_owned()));
        }
        let shares = shares(&weights)?;
        let sum = || parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.len()));
        let len = check_len("mix", len.or_else(sum))?;
        let first = Phase::new((0, 0), vec![0; parts.len()], shares, len);
        let mut mix = Mix { parts, spec, untold, phases: vec![first], len, seed };
        let at = |from: From| match from {
            // Avoids a division by zero; `build` refuses an empty mix.
            From::Sample(sample) => (sample / len.max(1), sample % len.max(1)),
            From::Epoch(epoch) => (epoch, 0),
        };
        let mut changes: Vec<_> = changes.into_iter().map(|(from, weights)| (at(from), weights)).collect();
        changes.sort_by_key(|(from, _)| *from);
        for (from, weights) in changes {
            mix.change(from, &weights)?;
        }
        Ok(mix)
    }
}

impl Mix {
    /// A mix without sets; `seed` shuffles the epochs of each set.
    pub fn builder(seed: u64) -> MixBuilder {
        MixBuilder { seed, ..MixBuilder::default() }
    }

    /// Changes the weights from this epoch and position on. It must come after all earlier changes.
    fn change(&mut self, from: (u64, u64), weights: &[f64]) -> Result<()> {
        let (given, sets) = (weights.len(), self.parts.len());
        if given != sets {
            return Err(config(format!("weights that change: {given} are given for {sets} sets")));
        }
        if self.phases.last().is_some_and(|last| (last.epoch, last.first) == from) {
            let (epoch, position) = from;
            let why = format!("the weights of the mix are given twice for epoch {epoch}, sample {position}");
            return Err(config(why));
        }
        if weights.iter().all(|&weight| weight == 0.0) {
            return Err(config("the weights of the mix change to none: leave a set in".to_owned()));
        }
        let drawn = (0..sets).map(|part| self.draws_before(part, from.0, from.1)).collect();
        self.phases.push(Phase::new(from, drawn, shares(weights)?, self.len));
        Ok(())
    }

    /// The number of samples of set `part` in `epoch`: the same in every epoch to within one, unless the
    /// weights change.
    ///
    /// # Panics
    /// If there is no such set.
    pub fn draws(&self, epoch: u64, part: usize) -> u64 {
        // The sum is at most the number of samples of an epoch.
        (self.draws_before(part, epoch, self.len) - self.draws_before(part, epoch, 0)) as u64
    }

    /// The set of sample `id` in `epoch`, and its id in that set; `None` if there is no such sample.
    pub fn place(&self, epoch: u64, id: u64) -> Option<(usize, u64)> {
        if id >= self.len {
            return None;
        }
        let (part, draw) = self.phase(epoch, id).draw(epoch, id);
        let len = u128::from(self.parts[part].len());
        let (round, position) = ((draw / len) as u64, (draw % len) as u64);
        let order = key(&[self.seed, part as u64, round, u64::from_le_bytes(*b"mixed in")]);
        Some((part, Permutation::new(len as u64, order).at(position)))
    }

    /// The phase of a position.
    fn phase(&self, epoch: u64, id: u64) -> &Phase {
        let behind = self.phases.partition_point(|phase| (phase.epoch, phase.first) <= (epoch, id));
        // The first phase begins with the run.
        &self.phases[behind.saturating_sub(1)]
    }

    /// The draws of set `part` before position `id` of `epoch`; `id` may be the end of the epoch.
    fn draws_before(&self, part: usize, epoch: u64, id: u64) -> u128 {
        let phase = match id.checked_sub(1) {
            Some(last) => self.phase(epoch, last),
            None => match epoch.checked_sub(1) {
                Some(before) => return self.draws_before(part, before, self.len),
                None => return 0,
            },
        };
        phase.draws_before(part, epoch, id)
    }

    fn parts(&self) -> Parts<'_> {
        Parts { names_file: true, ..Parts::new("mix", &self.parts) }
    }

    /// Writes the set of a row into its last field.
    fn tell(&self, (part, _): (usize, u64), row: &mut Row<'_, '_>) -> Result<(), ReadError> {
        Ok(row.put(self.spec.fields().len() - 1, &(part as i32).to_ne_bytes())?)
    }

    fn existing(&self, epoch: u64, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len)?;
        Ok(self.place(epoch, id).unwrap_or_default())
    }
}

/// Rounds the weights to whole positions of a period, by the method of the largest remainder.
fn shares(weights: &[f64]) -> Result<Vec<u64>> {
    let sum: f64 = weights.iter().sum();
    if let Some(bad) = weights.iter().position(|&weight| !weight.is_finite() || weight < 0.0) {
        let why =
            format!("part {bad} of the mix has weight {}: give a finite number, 0 or more", weights[bad]);
        return Err(config(why));
    }
    if !sum.is_finite() {
        return Err(config("the weights of the mix are too large to be added".to_owned()));
    }
    let exact: Vec<f64> = weights.iter().map(|weight| weight / sum * PERIOD as f64).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
    let mut by_rest: Vec<usize> = (0..weights.len()).collect();
    by_rest.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    by_rest.retain(|&part| weights[part] > 0.0);
    let left = (PERIOD as u64).saturating_sub(shares.iter().sum());
    by_rest.iter().cycle().take(left as usize).for_each(|&part| shares[part] += 1);
    let is_lost = |(&share, &weight): (&u64, &f64)| share == 0 && weight > 0.0;
    if let Some(none) = shares.iter().zip(weights).position(is_lost) {
        let why = format!("part {none} of the mix has less than 1 of {PERIOD} samples: raise its weight");
        return Err(config(why));
    }
    Ok(shares)
}

/// Spreads the shares evenly: the set furthest behind its share comes next.
fn pattern(shares: &[u64]) -> Vec<(u32, u32)> {
    let mut behind = vec![0_i64; shares.len()];
    let mut drawn = vec![0_u32; shares.len()];
    let next = |_| {
        let mut furthest = 0;
        for part in 0..shares.len() {
            behind[part] += shares[part] as i64;
            if behind[part] > behind[furthest] {
                furthest = part;
            }
        }
        behind[furthest] -= PERIOD as i64;
        drawn[furthest] += 1;
        (furthest as u32, drawn[furthest] - 1)
    };
    (0..PERIOD).map(next).collect()
}

impl Dataset for Mix {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let place = self.existing(context.epoch(), id)?;
        let Some(untold) = &self.untold else { return self.parts().read(id, place, row, context) };
        let mut rows = row.as_rows_mut();
        {
            let mut own = rows.part_of_fields(0..untold.fields().len(), untold);
            self.parts().read(id, place, &mut own.row(0), context)?;
        }
        self.tell(place, &mut rows.row(0))
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let epoch = context.epoch();
        let place = |id| self.existing(epoch, id);
        let Some(untold) = &self.untold else { return self.parts().read_many(ids, rows, context, place) };
        let read = {
            let mut own = rows.part_of_fields(0..untold.fields().len(), untold);
            self.parts().read_many(ids, &mut own, context, place)
        };
        // The rows before a failed row are complete.
        let good = read.as_ref().err().map_or(ids.len(), |(index, _)| *index).min(ids.len());
        for (at, &id) in ids[..good].iter().enumerate() {
            place(id).and_then(|place| self.tell(place, &mut rows.row(at))).map_err(|error| (at, error))?;
        }
        read
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        about_parts(&self.parts)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"mix").number(self.seed).number(self.len);
        let state = if self.untold.is_some() { state.spec(&self.spec) } else { state };
        let Some((first, changes)) = self.phases.split_first() else { return state.value() };
        let parts = self.parts.iter().zip(&first.shares);
        let add = |state: Fingerprint, (part, &share): (&StableDataset, &u64)| {
            state.number(share).number(part.len()).number(part.fingerprint())
        };
        let state = parts.fold(state, add);
        let change = |state: Fingerprint, phase: &Phase| {
            let state = state.number(phase.epoch).number(phase.first);
            phase.shares.iter().fold(state, |state, &share| state.number(share))
        };
        changes.iter().fold(state, change).value()
    }
}

impl Storage for Mix {
    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        let (part, inner) = self.existing(epoch, id)?;
        self.parts[part].storage().left_out(inner, field, epoch, to)
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        let epoch = context.epoch();
        self.parts().prefetch(ids, context, |id| self.existing(epoch, id))
    }
}

impl fmt::Debug for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mix({} samples of {} parts)", self.len, self.parts.len())
    }
}

impl fmt::Debug for MixBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MixBuilder({} parts by {:?})", self.parts.len(), self.weights)
    }
}
