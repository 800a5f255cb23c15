//! Makes the batches of a run again, on the host, and compares them with the record.

use std::ops::Range;
use std::path::PathBuf;

use feedline::record::file::Step;
use feedline::{Error, ErrorKind, HostBatch, HostLoader, LoaderBuilder, Result};

use crate::Run;

/// Whether a batch that was made again equals the batch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The samples and their bytes are equal.
    Equal,
    /// The samples are equal, but the record has no hash of their bytes.
    SameSamples,
    /// The bytes differ.
    OtherBytes {
        /// The row that differs; `None` if several do.
        row: Option<usize>,
    },
    /// The samples or their order differ. Either a sample could not be read during the run and can be read
    /// now, or the reverse.
    OtherSamples,
}

impl Verdict {
    /// Whether nothing differs.
    pub fn is_equal(self) -> bool {
        matches!(self, Self::Equal | Self::SameSamples)
    }
}

/// A batch of the run, made again.
#[derive(Debug)]
pub struct Replayed {
    /// The number of the step.
    pub number: u64,
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch. It is counted from the step at which the epoch began or was resumed.
    pub step: u64,
    /// The batch.
    pub batch: HostBatch,
    /// Whether it equals the batch of the run.
    pub verdict: Verdict,
    /// The file of each row, if known.
    pub paths: Vec<Option<PathBuf>>,
}

impl Replayed {
    /// The sample that has changed, and its file, if a single row differs.
    pub fn changed(&self) -> Option<(u64, Option<&PathBuf>)> {
        let Verdict::OtherBytes { row: Some(row) } = self.verdict else { return None };
        Some((*self.batch.ids().get(row)?, self.paths.get(row)?.as_ref()))
    }
}

/// Makes the batches of one rank of a run again; created by [`Run::replayer`].
pub struct Replayer<'a> {
    run: &'a Run,
    rank: u32,
    builder: LoaderBuilder<()>,
    /// The loader, for the steps of this header.
    loader: Option<(usize, HostLoader)>,
}

impl Run {
    /// Replays steps of rank `rank` by `builder`. `builder` has the data set of the run with the same
    /// transforms, and the `map_batch` of the run if it has one. The record has all other options that
    /// matter. Workers and depth may differ. The batches are those before a `device_map`, as in the record.
    pub fn replayer<T: ?Sized>(&self, builder: LoaderBuilder<T>, rank: u32) -> Replayer<'_> {
        Replayer { run: self, rank, builder: builder.either(), loader: None }
    }
}

impl Replayer<'_> {
    /// Makes the batch of step `number` again. For a source, up to 63 steps before it are read again.
    ///
    /// # Errors
    /// `Config` if the record has no such step, or if the data has other fields or another length. `Config`
    /// if several rows differ and the run is of an earlier feedline, whose random numbers belong to samples
    /// and not to draws. An error of the data set.
    pub fn step(&mut self, number: u64) -> Result<Replayed> {
        let mut replayed = None;
        self.steps(number..number + 1, |step| {
            replayed = Some(step);
            Ok(())
        })?;
        replayed.ok_or_else(|| {
            let why = format!("step {number} has no batch with these options: the record contradicts itself");
            self.run.located(Error::new(ErrorKind::Data, why))
        })
    }

    /// Calls `each` with the batches of `numbers`, in order. Decodes with all workers of the machine.
    ///
    /// # Errors
    /// As [`step`](Self::step); the errors of `each`.
    pub fn steps(&mut self, numbers: Range<u64>, mut each: impl FnMut(Replayed) -> Result<()>) -> Result<()> {
        let mut next = numbers.start;
        while next < numbers.end {
            let place = self.run.place(next, self.rank)?;
            let end = place.segment.numbers().end.min(numbers.end);
            let recorded = &place.segment.steps[place.index..][..(end - next) as usize];
            let (epoch, first) = (place.epoch(), place.index as u64);
            let (before, start) = self.run.start_of(&place, self.rank)?;
            // For a source, the number of steps between the recorded position and the first step.
            let again = place.index - before;
            let has_draws = self.run.header_of(self.rank, place.header).has_draws();
            let (builder, loader) = self.loader(place.header)?;
            // Other data is also replayed, and then compared.
            let cursor =
                feedline_core::Cursor::new(loader.batch_sampler(), 0).at(epoch, start).ignore_fingerprint();
            let mut batches = loader.resume(cursor)?;
            for batch in batches.by_ref().take(again) {
                drop(batch?);
            }
            for (index, step) in recorded.iter().enumerate() {
                let Some(batch) = batches.next() else { break };
                let batch = batch?;
                let verdict = verdict(step, &batch);
                if verdict == (Verdict::OtherBytes { row: None }) && !has_draws {
                    let why = "several rows differ, and the run is of an earlier feedline, whose random \
                               numbers belong to samples and not to draws: replay it with the feedline that \
                               recorded it";
                    return Err(self.run.located(Error::new(ErrorKind::Config, why)));
                }
                let paths =
                    batch.ids().iter().map(|&id| builder.sample_path(id).map(PathBuf::from)).collect();
                let (number, step) = (next + index as u64, first + index as u64);
                each(Replayed { number, epoch, step, batch, verdict, paths })?;
            }
            next = end;
        }
        Ok(())
    }

    /// The loader for the steps of header `header`, and the builder with its data.
    fn loader(&mut self, header: usize) -> Result<(&LoaderBuilder<()>, &mut HostLoader)> {
        let kept = self.loader.take().filter(|(of, _)| *of == header);
        let loader = match kept {
            Some((_, loader)) => loader,
            None => {
                let of = self.run.header_of(self.rank, header);
                let loader =
                    of.applied_to(self.builder.clone(), self.rank, self.run.own_sampler())?.build_host()?;
                of.check(&loader)?;
                loader
            }
        };
        Ok((&self.builder, &mut self.loader.insert((header, loader)).1))
    }
}

impl std::fmt::Debug for Replayer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replayer(rank {} of {})", self.rank, self.run.folder().display())
    }
}

fn verdict(step: &Step, batch: &HostBatch) -> Verdict {
    if batch.proof.order() != step.order {
        return Verdict::OtherSamples;
    }
    match (step.content, batch.content) {
        (Some(recorded), Some(now)) if recorded == now => Verdict::Equal,
        (Some(recorded), Some(now)) => Verdict::OtherBytes { row: recorded.changed_row(&now, batch.len()) },
        _ => Verdict::SameSamples,
    }
}
