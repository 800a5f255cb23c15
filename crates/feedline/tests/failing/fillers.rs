//! A batch filler can be late, wrong or absent: batches, order and cursors stay those of the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline::bad_samples::Budget;
use feedline::dataset::Rows;
use feedline::filler::{
    BatchContent, BatchFiller, BatchProof, DataDescription, Fill, FillOutcome, FillRequest, FillerReport,
};
use feedline::record::field_hash;
use feedline::{
    BadSamples, Context, Cursor, Dataset, Device, Error, ErrorKind, HostLoader, InMemory, LastBatch, Loader,
    LoaderBuilder, Pad, ReadError, Result, Source, TransferMode, Workers, World,
};
use feedline_core::random::splitmix64;
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::fixtures::{Fine, blocking, failing, slow};

use crate::common::{LONG, alone, alone_in_parts, hush_planned_panics, wait_until};

const LEN: u64 = 203;
const BATCH: usize = 8;

/// What a fake filler does with a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Right,
    Error,
    Panic,
    WrongByte,
    /// Two rows are exchanged on the way.
    Exchanged,
    /// Other samples, with the hashes of what was read.
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
        let mut context = Context::new(request.data.seed, request.epoch());
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
    Loader::builder(set.clone()).batch_size(BATCH).shuffle(7).epochs(2).workers(Workers::Count(2))
}

/// The ids of a batch, and its bytes.
type IdsAndBytes = (Vec<u64>, Vec<u8>);

/// The ids and bytes of every batch of two epochs, the cursor, and the work of the filler.
fn run(builder: LoaderBuilder) -> (Vec<IdsAndBytes>, Cursor, Option<FillerReport>) {
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

/// Runs until the filler has a part in the run: on a busy machine quick workers may leave it nothing.
fn run_filled(builder: impl Fn() -> LoaderBuilder) -> (Vec<IdsAndBytes>, Cursor, Option<FillerReport>) {
    loop {
        let ran = run(builder());
        if ran.2.is_some_and(|filler| filler.batches > 0) {
            return ran;
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
                let filler = filler.expect("a report");
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
            let (batches, cursor, filler) = run(builder(&set).filler(Fake::new(&set, 3, move |_| plan)));
            assert!(batches == want.0 && cursor == want.1, "{plan:?}");
            let filler = filler.expect("a report");
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

/// Decodes the records of a source; every third batch fails.
struct Records {
    source: Generator,
    lanes: usize,
    calls: AtomicU64,
}

impl BatchFiller for Records {
    fn in_flight(&self) -> usize {
        self.lanes
    }

    fn check(&self, data: &DataDescription<'_>) -> Result<()> {
        assert!(data.is_source && data.samples == self.source.shards(), "{data:?}");
        Ok(())
    }

    fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
        Some(Box::new(|request, rows| {
            if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                return Err("planned".into());
            }
            let records = request.records.ok_or("no records")?;
            assert_eq!(records.len(), request.ids().len());
            let mut context = Context::new(request.data.seed, request.epoch());
            for (index, (&id, record)) in request.ids().iter().zip(records).enumerate() {
                context.begin(index, id);
                self.source.decode(record, &mut rows.row(index), &mut context)?;
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            Ok(FillOutcome { order, content: content(rows), network: Duration::ZERO, servers: 1 })
        }))
    }
}

#[test]
fn the_records_of_a_source_are_read_in_sequence_and_decoded_by_the_filler() {
    alone_in_parts(|| {
        let source = || Generator::new([30, 0, 41, 7, 90, 12]).unwrap();
        let orders: [fn(LoaderBuilder) -> LoaderBuilder; 4] = [
            |builder| builder,
            |builder| builder.shuffle_shards(3).shuffle_buffer(1 << 10),
            |builder| builder.split_shards().world(World::new(1, 3).unwrap()),
            |builder| builder.last_batch(LastBatch::Drop),
        ];
        for (index, order) in orders.into_iter().enumerate() {
            for (source, lanes) in [(source(), 1), (source().hesitant(), 3)] {
                let builder = || {
                    let builder = Loader::source_builder(source.clone()).batch_size(BATCH).epochs(2);
                    order(builder.workers(Workers::Count(1)))
                };
                let filler = || Records { source: source.clone(), lanes, calls: AtomicU64::new(1) };
                let (want, cursor, _) = run(builder());
                let (batches, other, filled) = run_filled(|| builder().filler(filler()));
                assert!(batches == want && other == cursor, "order {index}, {lanes} lanes");
                let filled = filled.expect("a report");
                assert!(filled.batches > 0 && filled.rejected == 0, "order {index}: {filled}");
                // A resume within the first epoch, by the workers and by another filler.
                let mut first = builder().filler(filler()).build_host().expect("a loader");
                first.epoch(0).expect("an epoch").take(3).for_each(|batch| drop(batch.expect("a batch")));
                let saved = first.cursor();
                drop(first);
                let mut second = builder().filler(filler()).build_host().expect("a loader");
                let rest: Vec<_> = second
                    .resume(saved)
                    .expect("an epoch")
                    .map(|batch| batch.unwrap().ids().to_vec())
                    .collect();
                assert!(rest.iter().eq(want[3..][..rest.len()].iter().map(|(ids, _)| ids)), "order {index}");
            }
        }
    });
}

#[test]
fn ragged_fields_are_filled_in_order_and_padded_by_the_loader() {
    /// Writes the texts of the set, and leaves out the last one of every third batch.
    struct Texts(Vec<&'static str>, AtomicU64);
    impl BatchFiller for Texts {
        fn in_flight(&self) -> usize {
            2
        }
        fn check(&self, _: &DataDescription<'_>) -> Result<()> {
            Ok(())
        }
        fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
            Some(Box::new(|request, rows| self.fill(request, rows)))
        }
    }
    impl Texts {
        fn fill(&self, request: &FillRequest<'_>, rows: &mut Rows<'_>) -> Result<FillOutcome, ReadError> {
            let is_short = self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
            let mut content = BatchContent::new();
            for (row, &id) in request.ids().iter().enumerate() {
                let text = self.0[id as usize].as_bytes();
                content.add(row, field_hash(0, text));
                if !is_short || row + 1 < request.ids().len() {
                    rows.row(row).write_ragged_bytes(0, text)?;
                }
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            Ok(FillOutcome { order, content, network: Duration::ZERO, servers: 1 })
        }
    }
    alone(|| {
        let texts = vec!["one", "", "three", "fourteen", "5", "sixteen", "", "eight", "nine"];
        let set = || InMemory::new().ragged("text", [], 9, texts.iter().map(|text| text.as_bytes())).unwrap();
        let batches = |filler: bool| {
            let builder =
                Loader::builder(set()).batch_size(2).shuffle(3).epochs(40).pad("text", Pad::multiple_of(4));
            let builder =
                if filler { builder.filler(Texts(texts.clone(), AtomicU64::new(0))) } else { builder };
            let mut loader = builder.workers(Workers::Count(1)).build_host().expect("a loader");
            let mut all = Vec::new();
            for epoch in 0..40 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    let (values, lengths) = batch.padded::<u8>("text").unwrap();
                    all.push((values.to_vec(), lengths.to_vec()));
                }
            }
            (all, loader.report().filler)
        };
        let (want, _) = batches(false);
        let (filled, report) = batches(true);
        assert_eq!(filled, want);
        let report = report.expect("a report");
        assert!(report.batches > 0 && report.returned > 0 && report.rejected == 0, "{report:?}");
    });
}

#[test]
fn a_filler_that_never_answers_holds_up_neither_a_stop_nor_other_batches() {
    alone(|| {
        let set = fine();
        // The first call waits until its batch is not wanted, and then the others go on after a new request.
        let filler = Fake::new(&set, 2, |call| if call == 0 { Plan::Never } else { Plan::Right });
        let mut loader = builder(&set).filler(filler).build(&Device::new_host()).expect("a loader");
        let mut epoch = loader.epoch(0).expect("an epoch");
        drop(epoch.next_timeout(Duration::from_millis(50)).expect("a batch or none"));
        drop(epoch);
        // Batches of the new request come although the old one is still being filled for a moment.
        assert_eq!(loader.epoch(1).expect("an epoch").count(), 26);
        let start = Instant::now();
        loader.stop(LONG).expect("every thread ends");
        assert!(start.elapsed() < LONG);
    });
}

#[test]
fn an_idle_worker_is_known_to_the_filler() {
    /// Gives every batch back once a worker is idle.
    struct Waits;
    impl BatchFiller for Waits {
        fn in_flight(&self) -> usize {
            1
        }
        fn check(&self, _: &DataDescription<'_>) -> Result<()> {
            Ok(())
        }
        fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
            Some(Box::new(|request, rows| self.fill(request, rows)))
        }
    }
    impl Waits {
        fn fill(&self, request: &FillRequest<'_>, _: &mut Rows<'_>) -> Result<FillOutcome, ReadError> {
            wait_until("a worker is idle", || request.has_idle_workers() || !request.is_wanted());
            request.count_hedge();
            Err("slow".into())
        }
    }
    alone(|| {
        let set = fine();
        let (want, cursor, _) = run(builder(&set));
        let (batches, other, filler) = run(builder(&set).filler(Waits));
        assert!(batches == want && other == cursor);
        let filler = filler.expect("a report");
        assert!(filler.returned > 0 && filler.hedges >= filler.returned, "{filler:?}");
    });
}

#[test]
fn a_filler_of_other_data_and_one_where_none_can_be_are_errors() {
    alone(|| {
        let set = fine();
        let other = Arc::new(Fine::new(LEN, 17).unwrap());
        let error = builder(&set).filler(Fake::new(&other, 1, |_| Plan::Right)).build_host().unwrap_err();
        assert!(error.to_string().contains("the filler has the data"), "{error}");
        for mode in [TransferMode::ZeroCopy, TransferMode::Resident] {
            let builder = builder(&set).transfer_mode(mode).filler(Fake::new(&set, 1, |_| Plan::Right));
            let error = builder.build(&Device::new_host()).unwrap_err();
            assert!(error.to_string().contains("a filler writes batches into host memory"), "{error}");
        }
    });
}

#[test]
fn the_error_of_a_sample_is_that_of_the_workers() {
    alone(|| {
        let set = Arc::new(failing(Fine::new(LEN, 16).unwrap(), [50]));
        let first_error = |builder: LoaderBuilder| {
            let mut loader = builder.build_host().expect("a loader");
            let outcome = loader.epoch(0).unwrap().find_map(|batch| batch.err());
            outcome.expect("an error").to_string()
        };
        let want = first_error(builder(&set));
        assert_eq!(first_error(builder(&set).filler(Fake::new(&set, 3, |_| Plan::Right))), want);
    });
}

#[test]
fn a_filler_helps_while_every_worker_is_blocked() {
    alone(|| {
        let (whole, (blocked, gate)) = (fine(), blocking(Fine::new(LEN, 16).unwrap(), 0..LEN));
        // The same data, of which the loader's workers can read nothing.
        let builder = Loader::builder(blocked).batch_size(BATCH).shuffle(7).workers(Workers::Count(1));
        let filler = Fake { set: whole, lanes: 2, calls: AtomicU64::new(0), plan: Box::new(|_| Plan::Right) };
        let mut loader = builder.filler(filler).build(&Device::new_host()).expect("a loader");
        wait_until("the filler has filled batches", || {
            let next = loader.epoch(0).expect("an epoch").next_timeout(Duration::from_millis(5));
            drop(next);
            loader.report().filler.is_some_and(|filler| filler.batches > 0)
        });
        gate.open();
    });
}
