//! One batch: its rows spread over the workers, each decoded in place; panics and errors become errors that name them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::quarantine::ATTEMPTS;
use feedline_core::{
    BadSamples, Context, Error, ErrorKind, Failure, ReadError, Replaced, Result, Rows, Stage, Ticket,
};

use crate::Activity;
use crate::feed::Samples;

/// How long one piece of a batch takes at most: long against the wake-up of a worker that sleeps. A batch that takes less is
/// read by one worker: others make its neighbours meanwhile.
const PIECE: Duration = Duration::from_micros(100);

/// How long one piece takes at least. Of a larger batch there is one for each worker: a batch of half a millisecond in pieces of
/// a tenth would keep five of sixteen workers busy, and the others waiting for the last of them.
const SHORT_PIECE: Duration = Duration::from_micros(25);

/// Reads the rows of batches, several at once; remembers how long a row takes, to cut the next batch into pieces of a good
/// size.
pub(crate) struct Decoder {
    /// What the random numbers of the samples depend on.
    seed: u64,
    bad_samples: BadSamples,
    activity: Arc<Activity>,
    /// Nanoseconds a row took in the last batch; zero before the first.
    row_ns: AtomicU64,
    /// The first batch that failed: no later one is delivered, so their pieces are not worth their time.
    failed: AtomicU64,
}

/// What the pieces of one batch share.
struct Shared<'a> {
    decoder: &'a Decoder,
    samples: &'a dyn Samples,
    number: u64,
    epoch: u64,
    step: u64,
    piece_rows: usize,
    busy_ns: AtomicU64,
    /// The first row of the first piece that failed: pieces after it are not worth their time, those before it may have
    /// the error to tell.
    failed: AtomicUsize,
    replaced: Mutex<Vec<Replaced>>,
}

impl Decoder {
    pub(crate) fn new(seed: u64, bad_samples: BadSamples, activity: Arc<Activity>) -> Self {
        Self { seed, bad_samples, activity, row_ns: AtomicU64::new(0), failed: AtomicU64::new(u64::MAX) }
    }

    /// How long a batch of `rows` rows will take one worker, as far as the last one tells; no end, before the first.
    pub(crate) fn time(&self, rows: usize) -> Duration {
        match self.row_ns.load(Ordering::Relaxed) {
            _ if rows == 0 => Duration::ZERO,
            0 => Duration::MAX,
            ns => Duration::from_nanos(ns.saturating_mul(rows as u64)),
        }
    }

    /// Whether a batch of `rows` rows is cut into pieces.
    pub(crate) fn splits(&self, rows: usize) -> bool {
        rows > self.piece_rows(rows)
    }

    fn piece_rows(&self, rows: usize) -> usize {
        match self.row_ns.load(Ordering::Relaxed) {
            0 => rows.div_ceil(4 * rayon::current_num_threads()).max(1),
            ns => piece_rows(rows, ns, rayon::current_num_threads()),
        }
    }

    /// Reads sample `ticket.ids[i]` of batch `number` into row `i`; a large batch on all workers of the pool this runs on.
    /// The ticket learns what was replaced.
    pub(crate) fn decode(
        &self,
        number: u64,
        samples: &dyn Samples,
        ticket: &mut Ticket,
        rows: Rows<'_>,
    ) -> Result<()> {
        let count = ticket.ids.len();
        let piece_rows = self.piece_rows(count);
        ticket.replaced.clear();
        let shared = Shared {
            decoder: self,
            samples,
            number,
            epoch: ticket.epoch,
            step: ticket.step,
            piece_rows,
            busy_ns: AtomicU64::new(0),
            failed: AtomicUsize::new(usize::MAX),
            replaced: Mutex::new(std::mem::take(&mut ticket.replaced)),
        };
        let result = shared.split(&ticket.ids, rows);
        let busy_ns = shared.busy_ns.into_inner();
        ticket.replaced = shared.replaced.into_inner().unwrap_or_else(PoisonError::into_inner);
        ticket.replaced.sort_unstable_by_key(|replaced| replaced.row);
        for replaced in &ticket.replaced {
            ticket.ids[replaced.row] = replaced.given;
        }
        if count > 0 {
            self.row_ns.store((busy_ns / count as u64).max(1), Ordering::Relaxed);
        }
        result
    }
}

impl Shared<'_> {
    /// Halves the rows until a piece is small enough; rayon's workers steal the other halves.
    fn split(&self, ids: &[u64], rows: Rows<'_>) -> Result<()> {
        if ids.len() <= self.piece_rows {
            return self.piece(ids, rows);
        }
        let mid = ids.len() / 2;
        let (left, right) = rows.split_at(mid);
        let (left, right) = rayon::join(|| self.split(&ids[..mid], left), || self.split(&ids[mid..], right));
        // The earlier row's error, so that the same data gives the same error.
        left.and(right)
    }

    fn piece(&self, ids: &[u64], rows: Rows<'_>) -> Result<()> {
        let first = rows.first();
        let decoder = self.decoder;
        let in_vain = self.failed.load(Ordering::Relaxed) < first
            || decoder.failed.load(Ordering::Relaxed) < self.number;
        if ids.is_empty() || in_vain {
            return Ok(());
        }
        let mut context = Context::new(decoder.seed, self.epoch);
        if let Some(watch) = decoder.activity.begin(self.step, ids[0]) {
            context = context.watched(watch);
        }
        let start = Instant::now();
        let read = catch_unwind(AssertUnwindSafe(|| self.read(ids, rows, &mut context)));
        self.busy_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        decoder.activity.end();
        // Without a current sample the set reads in bulk: the first of the piece is the nearest name there is.
        let result = read.unwrap_or_else(|panic| {
            Err(self.panicked(context.current().map_or(ids[0], |(_, id)| id), &*panic))
        });
        if result.is_err() {
            self.failed.fetch_min(first, Ordering::Relaxed);
            decoder.failed.fetch_min(self.number, Ordering::Relaxed);
        }
        result
    }

    /// Reads a piece; from the first bad sample on row by row, where bad samples are borne.
    fn read(&self, ids: &[u64], mut rows: Rows<'_>, context: &mut Context) -> Result<()> {
        let samples = self.samples;
        let Err((bad, error)) = samples.read_many(ids, &mut rows, context) else { return Ok(()) };
        if self.decoder.bad_samples == BadSamples::Fail {
            return Err(self.unreadable(ids.get(bad).copied(), error));
        }
        self.replace(ids[bad], error, bad, &mut rows, context)?;
        for (index, &id) in ids.iter().enumerate().skip(bad + 1) {
            context.begin(index, id);
            let due = rows.first() + index;
            if let Err(error) = samples.read(id, due, &mut rows.row(index), context) {
                self.replace(id, error, index, &mut rows, context)?;
            }
        }
        Ok(())
    }

    /// Reads a substitute into row `index` of `rows`.
    fn replace(
        &self,
        due: u64,
        error: ReadError,
        index: usize,
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<()> {
        let samples = self.samples;
        let row = rows.first() + index;
        let failure = |sample, error: &ReadError| Failure {
            sample,
            path: samples.path(sample).map(std::path::Path::to_path_buf),
            cause: error.to_string(),
        };
        let mut failures = vec![failure(due, &error)];
        for attempt in 0..ATTEMPTS {
            let (given, due) = samples.substitute(row, attempt);
            context.begin(index, given);
            match samples.read(given, due, &mut rows.row(index), context) {
                Ok(()) => {
                    let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
                    replaced.push(Replaced { row, given, failures });
                    return Ok(());
                }
                Err(error) => failures.push(failure(given, &error)),
            }
        }
        let error = Error::new(
            ErrorKind::Sample,
            format!("cannot read a sample, nor {ATTEMPTS} in its place: {error}"),
        );
        Err(self.place(error, Some(due)))
    }

    fn unreadable(&self, id: Option<u64>, cause: ReadError) -> Error {
        let error = Error::new(ErrorKind::Sample, "cannot read a sample").caused_by(cause);
        self.place(error, id)
    }

    fn panicked(&self, id: u64, panic: &(dyn std::any::Any + Send)) -> Error {
        let why = format!("the data set panicked: {}", panic_text(panic));
        self.place(Error::new(ErrorKind::Panic, why), Some(id))
    }

    fn place(&self, error: Error, id: Option<u64>) -> Error {
        let error = error.at_stage(Stage::Decode).at_batch(self.step);
        let Some(id) = id else { return error };
        let error = error.at_sample(id);
        match self.samples.path(id) {
            Some(path) => error.at_path(path),
            None => error,
        }
    }
}

/// How many of `rows` rows are a piece, when a row takes `row_ns` and there are `workers`.
fn piece_rows(rows: usize, row_ns: u64, workers: usize) -> usize {
    let batch = Duration::from_nanos(row_ns.saturating_mul(rows as u64));
    let piece = if batch > PIECE { (batch / workers as u32).clamp(SHORT_PIECE, PIECE) } else { PIECE };
    (piece.as_nanos() as u64 / row_ns).clamp(1, rows.max(1) as u64) as usize
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::piece_rows;

    #[test]
    fn a_batch_is_cut_into_a_piece_a_worker_neither_long_nor_short() {
        // 4096 rows of 200 ns are 820 us.
        for (workers, rows) in [(1, 500), (2, 500), (10, 409), (16, 256), (64, 125)] {
            assert_eq!(piece_rows(4096, 200, workers), rows, "{workers} workers");
        }
        // What takes 100 us or less is not cut, and what takes more is.
        assert_eq!([piece_rows(500, 200, 16), piece_rows(501, 200, 16)], [500, 125]);
        assert_eq!([piece_rows(0, 200, 16), piece_rows(3, u64::MAX, 16), piece_rows(8, 1 << 40, 1)], [1; 3]);
    }
}
