//! A batch filler may be late, wrong or absent: batches, order and cursors are the same as without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline::bad_samples::Budget;
use feedline::dataset::Rows;
use feedline::filler::{
    BatchContent, BatchFiller, BatchProof, DataDescription, Fill, FillOutcome, FillRequest, FillerReport,
};
use feedline::record::field_hash;
use feedline::{
    BadSamples, Context, Cursor, Dataset, Error, ErrorKind, HostLoader, Loader, LoaderBuilder, ReadError,
    Result, Workers,
};
use feedline_core::random::splitmix64;
use feedline_testkit::fixtures::{Fine, failing, slow};

use crate::common::{alone, alone_in_parts, hush_planned_panics, wait_until};

mod forms;
mod late;

const LEN: u64 = 203;
const BATCH: usize = 8;

/// The behaviour of a fake filler.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Right,
    Error,
    Panic,
    WrongByte,
    /// Two rows are exchanged on the way.
    Exchanged,
    /// Other samples, with correct hashes of their bytes.
    OtherIds,
    LastRowMissing,
    /// Only an answer, without rows.
    Nothing,
    /// Answers once the batch is no longer wanted.
    Never,
    Slow(u64),
}

/// Fills by reading the set itself.
struct Fake<D> {
    set: Arc<D>,
    lanes: usize,
    calls: AtomicU64,
    plan: Box<dyn Fn(u64) -> Plan + Send + Sync>,
}

impl<D: Dataset> Fake<D> {
    fn new(set: &Arc<D>, lanes: usize, plan: impl Fn(u64) -> Plan + Send + Sync + 'static) -> Self {
        Self { set: set.clone(), lanes, calls: AtomicU64::new(0), plan: Box::new(plan) }
    }

    fn read(&self, ids: &[u64], rows: &mut Rows<'_>, request: &FillRequest<'_>) -> Result<(), ReadError> {
        let mut context = Context::new(request.data.seed, request.epoch()).with_draws(request.draws);
        self.set.read_many(ids, rows, &mut context).map_err(|(_, error)| error)
    }
}

/// The content of fixed fields.
fn content(rows: &mut Rows<'_>) -> BatchContent {
    let (spec, mut content) = (rows.spec(), BatchContent::new());
    for row in 0..rows.len() {
        let hash = spec.fields().iter().enumerate().fold(0, |before, (index, field)| {
            let bytes = field.row_bytes();
            field_hash(before, &rows.column_mut(index)[row * bytes..][..bytes])
        });
        content.add(row, hash);
    }
    content
}

impl<D: Dataset> BatchFiller for Fake<D> {
    fn in_flight(&self) -> usize {
        self.lanes
    }

    fn check(&self, data: &DataDescription<'_>) -> Result<()> {
        let own = self.set.fingerprint();
        if own == data.fingerprint {
            return Ok(());
        }
        let why = format!("the filler has the data {own:#x}, the loader {:#x}", data.fingerprint);
        Err(Error::new(ErrorKind::Config, why))
    }

    fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
        Some(Box::new(|request, rows| self.fill(request, rows)))
    }
}

impl<D: Dataset> Fake<D> {
    fn fill(&self, request: &FillRequest<'_>, rows: &mut Rows<'_>) -> Result<FillOutcome, ReadError> {
        let plan = (self.plan)(self.calls.fetch_add(1, Ordering::Relaxed));
        let mut ids = request.ids().to_vec();
        match plan {
            Plan::Error => return Err("planned".into()),
            Plan::Panic => panic!("planned"),
            Plan::Never => {
                wait_until("the batch is not wanted", || !request.is_wanted());
                return Err("late".into());
            }
            Plan::Slow(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Plan::OtherIds => ids.iter_mut().for_each(|id| *id = (*id + 1) % self.set.len()),
            _ => {}
        }
        if plan != Plan::Nothing {
            self.read(&ids, rows, request)?;
        }
        let order = BatchProof::of(request.epoch(), &ids).order();
        let outcome = |content| FillOutcome { order, content, network: Duration::from_micros(1), servers: 1 };
        Ok(match plan {
            Plan::WrongByte => {
                let outcome = outcome(content(rows));
                let bytes = rows.column_mut(0);
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                outcome
            }
            Plan::Nothing => outcome(BatchContent::new()),
            Plan::LastRowMissing => {
                let outcome = outcome(content(rows));
                let row = rows.spec().fields()[1].row_bytes();
                let bytes = rows.column_mut(1);
                let last = bytes.len() - row;
                bytes[last..].fill(0xFF);
                outcome
            }
            Plan::Exchanged => {
                let outcome = outcome(content(rows));
                let row = rows.spec().fields()[1].row_bytes();
                let (first, second) = rows.column_mut(1).split_at_mut(row);
                first.swap_with_slice(&mut second[..row]);
                outcome
            }
            _ => outcome(content(rows)),
        })
    }
}

fn fine() -> Arc<Fine> {
    Arc::new(Fine::new(LEN, 16).expect("a set"))
}

fn builder(set: &Arc<impl Dataset>) -> LoaderBuilder {
    Loader::builder(set.clone()).batch_size(BATCH).shuffle().seed(7).epochs(2).workers(Workers::Count(2))
}

/// The ids of a batch, and its bytes.
type IdsAndBytes = (Vec<u64>, Vec<u8>);

/// The ids and bytes of every batch of two epochs, the cursor, and the work of the filler.
fn run<T: ?Sized>(builder: LoaderBuilder<T>) -> (Vec<IdsAndBytes>, Cursor, Option<FillerReport>) {
    let mut loader = builder.build_host().expect("a loader");
    let mut all = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch");
            all.push((batch.ids().to_vec(), batch.field::<u8>("bytes").expect("bytes").to_vec()));
        }
    }
    (all, loader.cursor(), loader.report().filler)
}

/// Repeats the run until the filler was asked for a batch: on a busy machine quick workers may leave none for
/// it.
fn run_filled<T: ?Sized>(builder: impl Fn() -> LoaderBuilder<T>) -> (Vec<IdsAndBytes>, Cursor, FillerReport) {
    loop {
        let (batches, cursor, filler) = run(builder());
        let filler = filler.expect("a report");
        if filler.batches + filler.returned + filler.rejected > 0 {
            return (batches, cursor, filler);
        }
    }
}

#[test]
fn batches_and_cursors_are_equal_whatever_part_a_filler_has() {
    alone(|| {
        // Slow rows are split over the workers, quick ones are not.
        for delay in [0, 100] {
            let set = Arc::new(slow(Fine::new(LEN, 16).unwrap(), 0..LEN, Duration::from_micros(delay)));
            let want = run(builder(&set));
            assert_eq!(want.2, None);
            for lanes in [1, 4, 16] {
                let filled = || builder(&set).filler(Fake::new(&set, lanes, |_| Plan::Right));
                let (batches, cursor, filler) = run_filled(filled);
                assert!(batches == want.0 && cursor == want.1, "{lanes} lanes");
                assert!(filler.batches > 0 && filler.service_ns >= filler.network_ns, "{filler:?}");
                assert_eq!((filler.returned, filler.rejected), (0, 0));
            }
        }
    });
}

#[test]
fn what_a_filler_does_wrong_is_found_and_decoded_by_the_workers() {
    hush_planned_panics();
    alone_in_parts(|| {
        let set = fine();
        let want = run(builder(&set));
        let plans = [
            (Plan::Error, false),
            (Plan::Panic, false),
            (Plan::WrongByte, true),
            (Plan::Exchanged, true),
            (Plan::OtherIds, true),
            (Plan::LastRowMissing, true),
            (Plan::Nothing, true),
        ];
        for (plan, is_rejected) in plans {
            let filled = || builder(&set).filler(Fake::new(&set, 3, move |_| plan));
            let (batches, cursor, filler) = run_filled(filled);
            assert!(batches == want.0 && cursor == want.1, "{plan:?}");
            // The last batch of an epoch has three rows, so every plan is wrong for every batch.
            assert_eq!(filler.batches, 0, "{plan:?}: {filler:?}");
            let (found, other) = match is_rejected {
                true => (filler.rejected, filler.returned),
                false => (filler.returned, filler.rejected),
            };
            assert!(found > 0 && other == 0, "{plan:?}: {filler:?}");
        }
    });
}

#[test]
fn fillers_that_fail_at_random_change_nothing() {
    hush_planned_panics();
    alone_in_parts(|| {
        let set = fine();
        let want = run(builder(&set));
        let plans = [
            Plan::Right,
            Plan::Right,
            Plan::Error,
            Plan::WrongByte,
            Plan::Panic,
            Plan::Slow(1),
            Plan::Exchanged,
            Plan::Nothing,
            Plan::Slow(5),
        ];
        for seed in 0..100 {
            let plan = move |call| plans[(splitmix64(seed << 32 | call) % plans.len() as u64) as usize];
            let (batches, cursor, _) =
                run(builder(&set).filler(Fake::new(&set, 1 + seed as usize % 5, plan)));
            assert!(batches == want.0 && cursor == want.1, "seed {seed}");
        }
    });
}

#[test]
fn a_run_resumes_with_and_without_a_filler() {
    alone(|| {
        let set = fine();
        let (want, end, _) = run(builder(&set));
        let filled = |loader: &mut HostLoader, cursor: Option<Cursor>, steps: usize| {
            let batches = match cursor {
                Some(cursor) => loader.resume(cursor).expect("the rest"),
                None => loader.epoch(0).expect("an epoch"),
            };
            let ids: Vec<_> = batches.take(steps).map(|batch| batch.unwrap().ids().to_vec()).collect();
            (ids, loader.cursor())
        };
        for lanes in [[0, 3], [3, 0], [3, 1]] {
            let [mut first, mut second] = lanes.map(|lanes| {
                let builder = builder(&set);
                let builder = if lanes == 0 {
                    builder
                } else {
                    builder.filler(Fake::new(&set, lanes, |_| Plan::Right))
                };
                builder.build_host().expect("a loader")
            });
            let (mut ids, cursor) = filled(&mut first, None, 7);
            let (rest, _) = filled(&mut second, Some(cursor), usize::MAX);
            ids.extend(rest);
            assert!(ids.iter().eq(want[..26].iter().map(|(ids, _)| ids)), "{lanes:?}");
            second.epoch(1).expect("an epoch").for_each(|batch| drop(batch.expect("a batch")));
            assert_eq!(
                (second.cursor().proof(), second.cursor().order_hash()),
                (end.proof(), end.order_hash())
            );
        }
    });
}

#[test]
fn a_bad_sample_is_substituted_as_without_a_filler() {
    alone(|| {
        let set = Arc::new(failing(Fine::new(LEN, 16).unwrap(), [5, 77]));
        let builder = || builder(&set).bad_samples(BadSamples::Substitute { budget: Budget::Count(9) });
        let reported = |builder: LoaderBuilder| {
            let mut loader = builder.build_host().expect("a loader");
            let ids: Vec<_> = loader.epoch(0).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
            (ids, loader.cursor(), loader.bad_sample_report())
        };
        let want = reported(builder());
        assert_eq!(reported(builder().filler(Fake::new(&set, 2, |_| Plan::Right))), want);
    });
}
