//! The record of a run: its steps on all ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use feedline::record::file::{
    RankRecord, Segment, Step, Substitute, absolute, changed_files, file_name, file_state, files,
};
use feedline::{BadSampleReport, Cursor, Dataset, Epoch, Error, ErrorKind, Loader, Result, Sampler};
use feedline_core::{BatchProof, BatchSampler, Fingerprint, SourcePosition, named};
use serde_json::{Value, json};

use crate::Header;

/// The record of a run. It has all ranks, and all parts of a run that was resumed.
///
/// Steps are numbered from 0 over all epochs. If a resumed run has done a step again, the step counts once,
/// and the last version counts.
#[derive(Clone, Debug)]
pub struct Run {
    folder: PathBuf,
    /// The records of the ranks, in order.
    ranks: Vec<RankRecord>,
    sampler: Option<Sampler>,
}

/// A recorded step of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) segment: &'a Segment,
    /// The index of the step in its segment.
    pub(crate) index: usize,
    /// The index of the step's header.
    pub(crate) header: usize,
}

impl Place<'_> {
    pub(crate) fn step(&self) -> Step {
        self.segment.steps[self.index]
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.segment.cursor.epoch()
    }

    pub(crate) fn substitutes(&self) -> impl Iterator<Item = Substitute> {
        self.segment.substitutes.iter().filter(|(step, _)| *step == self.index).map(|(_, row)| *row)
    }
}

/// Entries of a header that all parts of a run share.
const OF_A_RUN: [&str; 5] = ["seed", "sampler_digest", "fingerprint", "samples", "shards"];
/// Entries of a header that all ranks share at a step.
const OF_A_STEP: [&str; 4] = ["batch", "world", "last_batch", "skips"];

/// The first of `keys` in which two headers differ, in a few words.
fn difference(want: &Value, have: &Value, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| want[**key] != have[**key])?;
    Some(format!("its {} is {} instead of {}", key.replace('_', " "), have[*key], want[*key]))
}

impl Run {
    /// Reads the record in `folder`. It reads the files of all ranks, up to the last complete step of each.
    ///
    /// # Errors
    /// `Data` if there is no record, if a file is damaged (with the step), or if the files belong to
    /// different runs.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_path_buf();
        let mut ranks = Vec::new();
        // Ranks are numbered without gaps. A resumed run may have fewer ranks.
        while let Some(rank) = RankRecord::read(&folder.join(file_name(ranks.len() as u32)))? {
            ranks.push(rank);
        }
        if ranks.first().is_none_or(|first| first.headers.is_empty()) {
            let why = format!(
                "there is no record of a run here: give the folder that was passed to {}",
                named("Recorder::new", "Loader(record=)")
            );
            return Err(Error::new(ErrorKind::Data, why).at_path(folder));
        }
        let run = Self { folder, ranks, sampler: None };
        run.check_ranks()?;
        Ok(run)
    }

    /// Checks that the files of all ranks belong to one run.
    fn check_ranks(&self) -> Result<()> {
        let first = &self.ranks[0];
        for (rank, record) in self.ranks.iter().enumerate() {
            let refuse = |why: String| {
                let why = format!(
                    "{} is not of the run of {}: {why}; give a folder with the files of one run",
                    file_name(rank as u32),
                    file_name(0)
                );
                Err(Error::new(ErrorKind::Data, why).at_path(self.folder.join(file_name(rank as u32))))
            };
            let of_rank = |header: &&Value| header["rank"].as_u64().is_some_and(|of| of != rank as u64);
            if let Some(other) = record.headers.iter().find(of_rank) {
                return refuse(format!("it is the file of rank {}", other["rank"]));
            }
            let (Some(own), Some(of_first)) = (record.headers.last(), first.headers.last()) else { continue };
            if let Some(why) = difference(of_first, own, &OF_A_RUN) {
                return refuse(why);
            }
            // Compares the options that may change when a run is resumed, at the steps at which both ranks
            // begin.
            for segment in &record.segments {
                let begins = |of: &&Segment| of.numbers().contains(&segment.number);
                let Some(of_first) = first.segments.iter().find(begins) else { continue };
                let (options, own) = (&first.headers[of_first.header], &record.headers[segment.header]);
                if options["world"].as_u64().is_some_and(|world| rank as u64 >= world) {
                    continue;
                }
                let epochs = [of_first, segment].map(|segment| segment.cursor.epoch());
                if let Some(why) = difference(options, own, &OF_A_STEP) {
                    return refuse(format!("at step {}, {why}", segment.number));
                }
                // Epochs of a source may differ, because a rank has as many steps as its shards have records.
                if epochs[0] != epochs[1] && !options["samples"].is_null() {
                    let [want, have] = epochs;
                    return refuse(format!("step {} is in epoch {have} instead of {want}", segment.number));
                }
            }
        }
        Ok(())
    }

    /// The incomplete step that a kill has left at the end of a rank's file: the file and the number of
    /// bytes. Only ranks with such bytes are listed.
    pub fn cuts(&self) -> impl Iterator<Item = (PathBuf, u64)> + '_ {
        let cut = |(rank, record): (usize, &RankRecord)| {
            (record.cut > 0).then(|| (self.folder.join(file_name(rank as u32)), record.cut))
        };
        self.ranks.iter().enumerate().filter_map(cut)
    }

    /// Uses `sampler` as the sampler of the run. This is needed for samplers with weights, classes, lengths
    /// or ids, because the record does not hold them.
    #[must_use]
    pub fn with_sampler(self, sampler: Sampler) -> Self {
        Self { sampler: Some(sampler), ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The numbers of the recorded steps, up to the last step that every rank has recorded.
    /// [`gaps`](Self::gaps) lists the missing steps.
    pub fn steps(&self) -> Range<u64> {
        let first = &self.ranks[0];
        let (Some(begin), Some(last)) = (first.segments.first(), first.segments.last()) else { return 0..0 };
        let world = self.header_of(0, last.header).world() as usize;
        let ends = self.ranks.iter().take(world.max(1)).filter_map(|rank| rank.segments.last());
        let end = ends.map(|last| last.numbers().end).min().unwrap_or(begin.number);
        begin.number..end.max(begin.number)
    }

    /// The ranges of missing steps. A crash of the machine may lose the last writes.
    pub fn gaps(&self) -> Vec<Range<u64>> {
        let segments = self.ranks[0].segments.windows(2);
        let gap = |pair: &[Segment]| pair[0].numbers().end..pair[1].number;
        segments.map(gap).filter(|gap| !gap.is_empty()).collect()
    }

    /// The options of step `number`. For a number after the last step, the options of the last step.
    pub fn header(&self, number: u64) -> Header {
        let first = &self.ranks[0];
        let segment = first.segments.iter().rev().find(|segment| segment.number <= number);
        let header =
            segment.or(first.segments.first()).map_or(first.headers.len() - 1, |segment| segment.header);
        Header::new(first.headers[header].clone())
    }

    /// The values noted under `name`, each with its step, in the order of the steps. A value is the mean over
    /// the ranks that have noted one. A later value of a step replaces an earlier value.
    pub fn notes(&self, name: &str) -> Vec<(u64, f64)> {
        let mut means = BTreeMap::<u64, (f64, f64)>::new();
        for rank in &self.ranks {
            let Some(name) = rank.names.iter().position(|known| known == name) else { continue };
            let own = rank.notes.iter().filter(|note| note.name == name);
            // The last value of each step.
            let own: BTreeMap<u64, f64> = own.map(|note| (note.step, note.value)).collect();
            for (step, value) in own {
                let (sum, count) = means.entry(step).or_default();
                (*sum, *count) = (*sum + value, *count + 1.0);
            }
        }
        means.into_iter().map(|(step, (sum, count))| (step, sum / count)).collect()
    }

    /// The names of the noted values.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.ranks.iter().flat_map(|rank| &rank.names).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The samples of step `number` on rank `rank`, row by row. A sample that could not be read is replaced
    /// by its substitute.
    ///
    /// # Errors
    /// `Config` if the record has no such step, or the sampler is missing. `Data` if the samples differ from
    /// the run's samples, because an earlier step is missing from the file.
    pub fn ids(&self, number: u64, rank: u32) -> Result<Vec<u64>> {
        let place = self.place(number, rank)?;
        let mut ids = Vec::new();
        self.fill_ids(&place, &self.batch_sampler(&place, rank)?, &mut ids)?;
        Ok(ids)
    }

    /// Writes the samples of the step at `place`, and returns the proof of its valid samples.
    ///
    /// # Errors
    /// `Data` if this proof differs from the record's proof.
    pub(crate) fn fill_ids(
        &self,
        place: &Place<'_>,
        sampler: &BatchSampler,
        ids: &mut Vec<u64>,
    ) -> Result<BatchProof> {
        let start = place.segment.cursor.position();
        let valid = sampler.batch(place.epoch(), start, place.index as u64, ids);
        for substitute in place.substitutes() {
            if let Some(id) = ids.get_mut(substitute.row as usize) {
                *id = substitute.substitute;
            }
        }
        let proof = BatchProof::of(place.epoch(), &ids[..valid]);
        if proof.order() == place.step().order {
            return Ok(proof);
        }
        let step = place.segment.number + place.index as u64;
        let why = format!(
            "the order hash of step {step} is not that of its samples: a step before it is missing from the \
             record, or another feedline wrote it; restore the file from a copy, or use that feedline"
        );
        Err(self.located(Error::new(ErrorKind::Data, why)))
    }

    pub(crate) fn batch_sampler(&self, place: &Place<'_>, rank: u32) -> Result<BatchSampler> {
        let header = Header::new(self.ranks[rank as usize].headers[place.header].clone());
        header.batch_sampler(rank, self.sampler.as_ref()).map_err(|error| self.located(error))
    }

    pub(crate) fn own_sampler(&self) -> Option<&Sampler> {
        self.sampler.as_ref()
    }

    /// The header of a place of rank `rank`.
    pub(crate) fn header_of(&self, rank: u32, header: usize) -> Header {
        Header::new(self.ranks[rank as usize].headers[header].clone())
    }

    /// Number of ranks in the record.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The recorded steps of rank `rank`, as ranges. Steps at which the run did not have this rank are left
    /// out.
    pub(crate) fn stretches(&self, rank: u32) -> Vec<Range<u64>> {
        let steps = self.steps();
        let counts = |number: &u64| steps.contains(number) && rank < self.header(*number).world();
        let counted = |segment: &Segment| {
            let numbers = segment.numbers();
            // The world changes between segments of the first rank only.
            let end = numbers.clone().find(|number| !counts(number)).unwrap_or(numbers.end);
            numbers.start..end
        };
        self.segments(rank).iter().map(counted).filter(|numbers| !numbers.is_empty()).collect()
    }

    pub(crate) fn segments(&self, rank: u32) -> &[Segment] {
        &self.ranks[rank as usize].segments
    }

    /// The place at which step `number` of rank `rank` is recorded.
    pub(crate) fn place(&self, number: u64, rank: u32) -> Result<Place<'_>> {
        let steps = self.steps();
        let refuse = |why: String| self.located(Error::new(ErrorKind::Config, why));
        if !steps.contains(&number) {
            return Err(refuse(match steps.end.checked_sub(1).filter(|_| !steps.is_empty()) {
                Some(last) => {
                    format!("the record has no step {number}: it has the steps {} to {last}", steps.start)
                }
                None => format!("the record has no step {number}: it has no steps yet"),
            }));
        }
        let world = self.header(number).world();
        if rank >= world {
            return Err(refuse(format!(
                "step {number} has no rank {rank}: it has the ranks 0 to {}",
                world - 1
            )));
        }
        let segments = self.ranks.get(rank as usize).map_or(&[][..], |rank| &rank.segments);
        let found = segments.iter().find(|segment| segment.numbers().contains(&number));
        let Some(segment) = found else {
            return Err(refuse(format!(
                "step {number} is not recorded on rank {rank}: the process was killed"
            )));
        };
        let (index, header) = ((number - segment.number) as usize, segment.header);
        Ok(Place { segment, index, header })
    }

    /// The place at which step `number` begins. For the number after the last step, the place at which the
    /// last step ends.
    fn place_before(&self, number: u64, rank: u32) -> Result<Place<'_>> {
        match number.checked_sub(1) {
            Some(before) if number == self.steps().end => {
                let place = self.place(before, rank)?;
                Ok(Place { index: place.index + 1, ..place })
            }
            _ => self.place(number, rank),
        }
    }

    /// The cursor before step `number` on rank `rank`. A run that resumes from this cursor does this step
    /// next. For the number after the last step, it is the cursor after the last step.
    ///
    /// Takes some nanoseconds for each earlier sample of the epoch.
    ///
    /// # Errors
    /// `Config` if the record has no such step, or the sampler is missing; `Data` if the record contradicts
    /// its own options.
    pub fn cursor(&self, number: u64, rank: u32) -> Result<Cursor> {
        let place = self.place_before(number, rank)?;
        let mut cursor = place.segment.cursor;
        if place.index == 0 {
            return Ok(cursor);
        }
        let (sampler, mut ids) = (self.batch_sampler(&place, rank)?, Vec::new());
        for index in 0..place.index {
            let at = Place { index, ..place.clone() };
            cursor.deliver(&sampler, &self.fill_ids(&at, &sampler, &mut ids)?);
        }
        Ok(cursor)
    }

    /// The step at which a replay of `place` begins, as an index in its segment, and the position at this
    /// step. A source is read again from the last recorded position.
    pub(crate) fn start_of(&self, place: &Place<'_>, rank: u32) -> Result<(usize, SourcePosition)> {
        let Place { segment, index, .. } = place;
        let begin = segment.cursor.source_position();
        if self.header_of(rank, place.header).samples().is_none() {
            let before = segment.places.iter().rev().find(|(steps, _)| steps <= index);
            return Ok(before.copied().unwrap_or((0, begin)));
        }
        let Some(before) = index.checked_sub(1) else { return Ok((0, begin)) };
        let sampler = self.batch_sampler(place, rank)?;
        let position = sampler.position_after(place.epoch(), begin.position, before as u64);
        Ok((*index, SourcePosition { position, ..SourcePosition::default() }))
    }

    /// Continues the run with `loader` at step `step`. `step` is the number of steps that the model has seen.
    /// Call [`Loader::epoch`] for the epochs after this one. The loader's report of bad samples continues
    /// too, but without their causes, which a record does not hold.
    ///
    /// Records of a source are read again from the beginning of the epoch. If the run was resumed in this
    /// epoch, they are read again from the last such step.
    ///
    /// # Errors
    /// `Cursor` if the data differs from the run's data, with the name of the changed file; as
    /// [`cursor`](Self::cursor) and [`Loader::resume`].
    pub fn resume<'a>(&self, loader: &'a mut Loader, step: u64) -> Result<Epoch<'a>> {
        let rank = loader.batch_sampler().options().world.rank();
        let dataset = loader.dataset();
        let (cursor, again) = match &dataset {
            Some(dataset) => {
                let cursor = self.cursor(step, rank)?;
                self.check_data(&**dataset, step)?;
                (cursor, 0)
            }
            None => {
                let place = self.place_before(step, rank)?;
                (place.segment.cursor, place.index)
            }
        };
        let path = |sample| dataset.as_ref()?.path(sample).map(PathBuf::from);
        loader.set_bad_sample_report(self.bad_sample_report(step - again as u64, rank, &cursor, path));
        let mut batches = loader.resume(cursor)?;
        for batch in batches.by_ref().take(again) {
            drop(batch?);
        }
        Ok(batches)
    }

    /// The report of the bad samples of rank `rank` before step `number`. The step begins at `cursor`.
    fn bad_sample_report(
        &self,
        number: u64,
        rank: u32,
        cursor: &Cursor,
        path: impl Fn(u64) -> Option<PathBuf>,
    ) -> BadSampleReport {
        let mut report = BadSampleReport::default();
        report.delivered(cursor.proof().count());
        for segment in self.segments(rank) {
            let before =
                segment.substitutes.iter().filter(|(step, _)| segment.number + (*step as u64) < number);
            for (_, Substitute { sample, substitute, .. }) in before {
                let why = "it could not be read before the run was resumed from its record";
                report.replaced(segment.cursor.epoch(), *sample, *substitute, path(*sample), why);
            }
        }
        report
    }

    /// Checks that `dataset` is the data of step `number`, by its fingerprint.
    ///
    /// # Errors
    /// `Cursor`, with the changed file if one has another size or time than at the beginning of the run. The
    /// error of a read, if the fingerprint cannot be computed without it.
    pub fn check_data(&self, dataset: &dyn Dataset, number: u64) -> Result<()> {
        let header = self.header(number);
        let (was, is) = (
            header.as_json()["fingerprint"].clone(),
            format!("{:#018x}", Fingerprint::checked(|| dataset.fingerprint())?),
        );
        if was.as_str() == Some(&is) {
            return Ok(());
        }
        let changed = changed_files(header.as_json(), &json!({"files": files(dataset)}));
        let what = match changed.first() {
            Some(changed) => format!("{changed}; restore the file"),
            None => format!("its fingerprint was {}, and is \"{is}\"; open the data of the run", was),
        };
        let why = format!("the data is not that of the recorded run: {what}, or begin a new run");
        Err(self.located(Error::new(ErrorKind::Cursor, why)))
    }

    /// The files among `paths` that have another size or time than at the beginning of the run. Each is
    /// described in a few words.
    pub fn changed_files<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
        let paths: BTreeSet<String> = paths.into_iter().map(absolute).collect();
        let header = self.header(self.steps().end);
        let files = header.as_json()["files"].as_array().into_iter().flatten();
        let recorded = files.filter(|file| file[0].as_str().is_some_and(|path| paths.contains(path)));
        let recorded: Vec<_> = recorded.collect();
        let now = recorded.iter().filter_map(|file| file_state(Path::new(file[0].as_str()?)));
        let now: Vec<_> = now.collect();
        changed_files(&json!({"files": recorded}), &json!({"files": now}))
    }

    pub(crate) fn located(&self, error: Error) -> Error {
        if error.path().is_some() { error } else { error.at_path(&self.folder) }
    }
}
