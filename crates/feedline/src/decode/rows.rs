//! Reads a range of rows on one worker. Panics and errors become errors that name the sample; bad samples are
//! substituted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use feedline_core::bad_samples::{ATTEMPTS, substitute};
use feedline_core::sampler::custom::NO_SAMPLE;
use feedline_core::source::place;
use feedline_core::{
    BadSamples, Context, Dataset, Error, ErrorKind, Failure, ReadError, Result, Row, RowError, Rows, Stage,
    Substituted, panic_text,
};

use super::decoder::Decoder;
use super::input::Input;
use super::worker::Worker;
use crate::job::HostInfo;
use crate::spans::enter;

/// Reads the samples of one batch into its rows. Several workers may read rows of it at once.
pub(super) struct Reader<'a> {
    pub(super) decoder: &'a Decoder,
    pub(super) input: &'a Input<dyn Dataset>,
    pub(super) host_info: &'a HostInfo,
    /// The substitutes of the batch so far.
    pub(super) substituted: &'a Mutex<Vec<Substituted>>,
}

impl Reader<'_> {
    /// Reads `rows`, one piece of the batch, and publishes which sample is being read. Returns the
    /// nanoseconds that other processes spent reading.
    pub(super) fn read_piece(&self, rows: Rows<'_>, worker: &Worker<'_>) -> Result<u64> {
        let info = &self.host_info.batch;
        let Some(&first) = info.ids.get(rows.first()) else { return Ok(0) };
        let _span = enter!("decode", info);
        let watch = worker.begin(info.step, first);
        let context = Context::new(self.decoder.batch_sampler.options().seed, info.epoch);
        let draws = &self.host_info.draws()[rows.first()..][..rows.len()];
        let context = context.watched(watch).ended_by(self.decoder.stop.clone());
        worker.read(context, draws, |context| self.read(rows, context).map(|()| context.elsewhere_ns()))
    }

    /// Reads the samples of `rows`.
    ///
    /// # Errors
    /// `Sample` for a sample that cannot be read, `Panic` when the data set panics; both with stage,
    /// batch, sample and path.
    fn read(&self, mut rows: Rows<'_>, context: &mut Context) -> Result<()> {
        rows.poison();
        let ids = &self.host_info.batch.ids[rows.first()..][..rows.len()];
        let read = catch_unwind(AssertUnwindSafe(|| self.read_or_substitute(ids, &mut rows, context)));
        read.unwrap_or_else(|panic| {
            // If no sample is current, the panic came from a bulk read. The first id of the range is then the
            // best guess.
            let id = context.current().map_or_else(|| ids.first().copied(), |(_, id)| Some(id));
            let why = format!("the data set panicked: {}", panic_text(panic));
            Err(self.locate(Error::new(ErrorKind::Panic, why), id))
        })
    }

    /// Reads in bulk. If bad samples are tolerated, continues row by row after the first one.
    fn read_or_substitute(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<()> {
        let Err((bad, error)) = self.read_all(ids, rows, context) else { return Ok(()) };
        if self.decoder.bad_samples == BadSamples::Fail || bad >= ids.len() {
            return Err(self.locate(unreadable(error), ids.get(bad).copied()));
        }
        if self.decoder.reads_whole {
            return self.substitute_in_whole(ids, (bad, error), rows, context);
        }
        self.substitute(ids[bad], error, bad, rows, context)?;
        for (index, &id) in ids.iter().enumerate().skip(bad + 1) {
            if let Err(error) = self.read_one(id, rows.first() + index, index, rows, context) {
                self.substitute(id, error, index, rows, context)?;
            }
        }
        Ok(())
    }

    /// Reads sample `id`, which belongs to row `own` of the batch, into row `index` of `rows`.
    fn read_one(
        &self,
        id: u64,
        own: usize,
        index: usize,
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        let mut row = rows.row(index);
        row.poison();
        context.sample(index, id, |context| self.read_sample(id, own, &mut row, context))
    }

    /// Reads another sample into row `index` of `rows`, in place of `id`.
    fn substitute(
        &self,
        id: u64,
        error: ReadError,
        index: usize,
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<()> {
        let row = rows.first() + index;
        if is_over_budget(&*error) {
            return Err(self.locate(unreadable(error), Some(id)));
        }
        let mut failures = vec![self.failure(id, &error)];
        for attempt in 0..ATTEMPTS {
            let (substitute, own) = self.substitute_of(row, attempt);
            let read = match substitute {
                NO_SAMPLE => Err("the sampler gives no sample here".into()),
                _ => self.read_one(substitute, own, index, rows, context),
            };
            match read {
                Ok(()) => {
                    let mut all = self.substituted.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push(Substituted { row, substitute, failures });
                    return Ok(());
                }
                Err(error) if is_over_budget(&*error) => {
                    return Err(self.locate(unreadable(error), Some(substitute)));
                }
                Err(error) => failures.push(self.failure(substitute, &error)),
            }
        }
        let why = format!("cannot read a sample, nor {ATTEMPTS} in its place: {error}");
        Err(self.locate(Error::new(ErrorKind::Sample, why), Some(id)))
    }

    /// Reads all of `rows` again with another sample in place of the bad one, until none is bad.
    fn substitute_in_whole(
        &self,
        ids: &[u64],
        (mut bad, mut error): RowError,
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<()> {
        let (mut now, mut replaced) = (ids.to_vec(), Vec::<Substituted>::new());
        loop {
            if is_over_budget(&*error) || bad >= now.len() {
                return Err(self.locate(unreadable(error), now.get(bad).copied()));
            }
            let (row, failure) = (rows.first() + bad, self.failure(now[bad], &error));
            let known = replaced.iter().position(|substituted| substituted.row == row);
            let known = known.unwrap_or_else(|| {
                replaced.push(Substituted { row, substitute: ids[bad], failures: Vec::new() });
                replaced.len() - 1
            });
            let Substituted { substitute, failures, .. } = &mut replaced[known];
            let attempt = failures.len() as u32;
            failures.push(failure);
            if attempt == ATTEMPTS {
                let why = format!("cannot read a sample, nor {ATTEMPTS} in its place: {}", failures[0].cause);
                return Err(self.locate(Error::new(ErrorKind::Sample, why), Some(ids[bad])));
            }
            (*substitute, _) = self.substitute_of(row, attempt);
            now[bad] = *substitute;
            (0..rows.len()).for_each(|index| rows.row(index).poison());
            let read = match *substitute {
                NO_SAMPLE => Err((bad, "the sampler gives no sample here".into())),
                _ => self.read_all(&now, rows, context),
            };
            match read {
                Ok(()) => break,
                Err(failed) => (bad, error) = failed,
            }
        }
        self.substituted.lock().unwrap_or_else(PoisonError::into_inner).extend(replaced);
        Ok(())
    }

    fn failure(&self, sample: u64, error: &ReadError) -> Failure {
        let path = self.path(sample).map(Path::to_path_buf);
        Failure { sample, path, cause: error.to_string() }
    }

    /// Adds stage, batch, sample and path to `error`. The data set's `path` may panic too.
    fn locate(&self, error: Error, id: Option<u64>) -> Error {
        let error = error.at_stage(Stage::Decode).at_batch(self.host_info.batch.step);
        let Some(id) = id else { return error };
        let error = error.at_sample(id);
        match catch_unwind(AssertUnwindSafe(|| self.path(id))) {
            Ok(Some(path)) => error.at_path(path),
            Ok(None) => error,
            Err(panic) => {
                panic_text(panic);
                error
            }
        }
    }

    /// Reads in bulk, and checks what was written: before an error, too, unless the batch is made as a whole.
    fn read_all(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        if !self.decoder.reads_whole {
            return rows.read_by(|rows| self.read_many(ids, rows, context));
        }
        self.read_many(ids, rows, context)?;
        rows.check_written().map_err(|(row, error)| (row, error.into()))
    }

    /// Reads the samples of `rows`. An error comes with the index of the sample that failed.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        if let Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) = self.input {
            return (**dataset).read_many(ids, rows, context);
        }
        let first = rows.first();
        for (index, &id) in ids.iter().enumerate() {
            context
                .sample(index, id, |context| {
                    self.read_sample(id, first + index, &mut rows.row(index), context)
                })
                .map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Reads sample `id`, which belongs to row `own` of the batch, into `row`.
    fn read_sample(
        &self,
        id: u64,
        own: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        row.read_by(|row| match self.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => (**dataset).read(id, row, context),
            Input::Source(source) => source.decode(&self.host_info.records.bytes[own], row, context),
        })
    }

    /// The sample to read into `row` instead of its own, and the row whose record it is.
    ///
    /// For a data set it depends only on the row's global position, so it is the same on every rank and
    /// in every replay. For a source it is another record of the batch, so nothing is read twice.
    fn substitute_of(&self, row: usize, attempt: u32) -> (u64, usize) {
        let HostInfo { batch: info, records, .. } = self.host_info;
        let batch_sampler = &self.decoder.batch_sampler;
        match self.input {
            Input::Dataset(_) | Input::ZeroCopy(..) => {
                let position = self.host_info.draws()[row];
                (batch_sampler.substitute(info.epoch, position, attempt), row)
            }
            Input::Source(_) => {
                let (ids, seed) = (&records.ids, batch_sampler.options().seed);
                let own = substitute(seed, info.epoch, ids[row], attempt, ids.len() as u64) as usize;
                (ids[own], own)
            }
        }
    }

    /// The file that sample `id` comes from.
    fn path(&self, id: u64) -> Option<&Path> {
        match self.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => dataset.path(id),
            Input::Source(source) => source.path(place(id).0),
        }
    }
}

/// The error for a sample that cannot be read; of kind `Budget` if the batch has no room for it.
fn unreadable(error: ReadError) -> Error {
    let kind = if is_over_budget(&*error) { ErrorKind::Budget } else { ErrorKind::Sample };
    Error::new(kind, "cannot read a sample").with_source(error)
}

/// Whether the batch has no room for a good sample. Such a sample must not be substituted.
fn is_over_budget(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<Error>();
    error
        .is_some_and(|error| error.kind() == ErrorKind::Budget || error.get_ref().is_some_and(is_over_budget))
}
