//! Resident mode gives the batches of staged mode, in any order, world and epoch, after a resume in another
//! mode, and if only a part of the set fits. Every sample on the device is read once; afterwards only its id
//! crosses the bus.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{LONG, alone, assert_empty};
use feedline::bad_samples::Budget;
use feedline::dataset::StridedColumn;
use feedline::report::ChosenMode;
use feedline::{
    BadSamples, Context, DType, Dataset, Device, ErrorKind, HostEpoch, HostLoader, LastBatch, Loader,
    LoaderBuilder, ReadError, Row, Sampler, Spec, TransferMode, Workers, World,
};
use feedline_core::Storage;
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::interceptors::{Count, Op};
use feedline_testkit::fixtures::{Fine, Laid, Random, counting, failing, slow};

const LEN: u64 = 103;

/// Self-describing samples, the same in every epoch; without columns.
fn fixed() -> impl Dataset {
    counting(laid()).0
}

fn laid() -> Laid {
    Laid::records(&Fine::new(LEN, 33).expect("a set"), 5, 3).expect("columns")
}

/// Ids, number of valid rows, and the bytes of each batch.
type Contents = Vec<(Vec<u64>, usize, Vec<u8>)>;

fn contents(batches: HostEpoch<'_>, max: usize) -> Contents {
    let read = |batch: feedline::Result<feedline::HostBatch>| {
        let batch = batch.expect("a batch");
        (batch.ids().to_vec(), batch.valid_rows(), batch.field::<u8>("bytes").expect("bytes").to_vec())
    };
    batches.take(max).map(read).collect()
}

fn run(builder: LoaderBuilder, mode: TransferMode) -> Contents {
    run_all(builder.transfer_mode(mode).build_host().expect("a loader"), mode)
}

fn run_all(mut loader: HostLoader, mode: TransferMode) -> Contents {
    match loader.transfer_mode() {
        ChosenMode::Resident | ChosenMode::PartlyResident { .. } => assert_eq!(mode, TransferMode::Resident),
        other => {
            assert!(mode != TransferMode::Resident && *other != ChosenMode::ZeroCopy, "{other} for {mode:?}");
        }
    }
    (0..3).flat_map(|epoch| contents(loader.epoch(epoch).expect("an epoch"), usize::MAX)).collect()
}

#[track_caller]
fn assert_same(set: impl Dataset, with: impl Fn(LoaderBuilder) -> LoaderBuilder) {
    let set: Arc<dyn Dataset> = Arc::new(set);
    let by = |mode| run(with(Loader::builder(set.clone()).batch_size(8)), mode);
    let (want, got) = (by(TransferMode::Staged), by(TransferMode::Resident));
    assert!(!want.is_empty() && got == want, "{} batches, {} when staged", got.len(), want.len());
}

#[test]
fn batches_are_those_of_staged_mode() {
    alone(|| {
        for sampler in [Sampler::Sequential, Sampler::Shuffle, Sampler::block(4, 16).expect("an order")] {
            for depth in [1, 3] {
                assert_same(fixed(), |b| b.sampler(sampler.clone()).seed(7).depth(depth));
            }
        }
        for last_batch in [LastBatch::Drop, LastBatch::Pad] {
            assert_same(fixed(), |b| b.last_batch(last_batch).shuffle().seed(3));
        }
        for rank in 0..3 {
            let world = World::new(rank, 3).expect("a world");
            assert_same(fixed(), |b| b.shuffle().seed(9).world(world).skip(1, 2..4));
        }
        // With columns too, and composed sets, which have none.
        assert_same(laid(), |b| b.shuffle().seed(1));
        let composed = fixed().take(40).concat(fixed().skip(70)).expect("two").repeat(2).expect("twice");
        assert_same(composed, |b| b.shuffle().seed(1));
    });
}

#[test]
fn a_run_resumes_in_another_mode() {
    alone(|| {
        let builder = || Loader::builder(fixed()).batch_size(8).shuffle().seed(5);
        let want = run(builder(), TransferMode::Staged);
        let modes = [
            (TransferMode::Resident, TransferMode::Staged, usize::MAX),
            (TransferMode::Staged, TransferMode::Resident, usize::MAX),
            (TransferMode::Resident, TransferMode::Resident, usize::MAX),
            (TransferMode::Resident, TransferMode::Resident, 3072),
        ];
        for (first, then, budget) in modes {
            let builder = || builder().resident_budget(budget);
            for stop in [1, 6, 12] {
                let mut loader = builder().transfer_mode(first).build_host().expect("a loader");
                assert!(contents(loader.epoch(0).expect("an epoch"), stop) == want[..stop]);
                let cursor = loader.cursor();
                drop(loader);
                let mut loader = builder().transfer_mode(then).build_host().expect("a loader");
                let rest = contents(loader.resume(cursor).expect("the rest"), usize::MAX);
                assert!(rest == want[stop..13], "{first:?}, then {then:?}, after {stop}");
                assert!(contents(loader.epoch(1).expect("the next"), usize::MAX) == want[13..26]);
            }
        }
    });
}

/// Workers do not write the rows of samples that are on the device.
#[test]
fn a_part_of_a_set_of_bools_is_resident() {
    alone(|| {
        let spec = Spec::new().field("bytes", DType::Bool, [64]).expect("a spec");
        let set = feedline::from_fn(104, spec, |id, row, _| {
            row.bytes_mut(0).iter_mut().zip(id..).for_each(|(to, at)| *to = u8::from(at % 3 == 0));
            Ok(())
        });
        let set: Arc<dyn Dataset> = Arc::new(set);
        let loader = |mode| {
            let builder = Loader::builder(set.clone()).batch_size(8).shuffle().seed(2).resident_budget(4096);
            builder.transfer_mode(mode).build_host().expect("a loader")
        };
        assert!(matches!(*loader(TransferMode::Resident).transfer_mode(), ChosenMode::PartlyResident { .. }));
        let all = |mode| contents(loader(mode).epoch(0).expect("an epoch"), usize::MAX);
        assert!(all(TransferMode::Resident) == all(TransferMode::Staged));
    });
}

/// A set whose length and spec change at call number `change`; calls of both methods count.
struct Changing {
    answers: [(u64, Spec); 2],
    change: usize,
    calls: AtomicUsize,
    /// The rows of the first answer: each byte of a row is the row's id.
    column: Vec<u8>,
}

impl Changing {
    fn new(answers: [(u64, usize); 2], change: usize) -> Self {
        let [(len, width), _] = answers;
        let spec = |width: usize| Spec::new().field("bytes", DType::U8, [width]).expect("a spec");
        let column = (0..len).flat_map(|id| vec![id as u8; width]).collect();
        let answers = answers.map(|(len, width)| (len, spec(width)));
        Self { answers, change, calls: AtomicUsize::new(0), column }
    }

    fn answer(&self) -> &(u64, Spec) {
        &self.answers[usize::from(self.calls.fetch_add(1, Ordering::Relaxed) >= self.change)]
    }
}

impl Dataset for Changing {
    fn len(&self) -> u64 {
        self.answer().0
    }

    fn spec(&self) -> &Spec {
        &self.answer().1
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.bytes_mut(0).fill(id as u8);
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Changing {
    fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
        let (len, spec) = &self.answers[0];
        let width = spec.sample_bytes();
        StridedColumn::new(&self.column, 0, width, *len as usize, width).ok()
    }
}

#[test]
fn a_set_that_changes_its_length_or_spec_is_read_by_its_first_answers() {
    let modes = [
        (TransferMode::Staged, usize::MAX),
        (TransferMode::ZeroCopy, usize::MAX),
        (TransferMode::Resident, usize::MAX),
        (TransferMode::Resident, 40 * 256),
    ];
    // Wider and narrower rows, more and fewer samples. From the second call on `len` is known, from the
    // third on `spec` too.
    let changes = [(40, 4096), (400, 256), (40, 16), (4, 256), (4000, 4096), (4, 16)];
    alone(|| {
        for (mode, budget) in modes {
            for (then, change) in changes.into_iter().flat_map(|then| (2..14).map(move |call| (then, call))) {
                let set = Changing::new([(40, 256), then], change);
                let builder = Loader::builder(set).batch_size(8).shuffle().seed(3).resident_budget(budget);
                let mut loader = builder.transfer_mode(mode).build_host().expect("a loader");
                let batches = contents(loader.epoch(0).expect("an epoch"), usize::MAX);
                assert_eq!(batches.iter().map(|(_, valid, _)| valid).sum::<usize>(), 40, "{then:?} {change}");
                for (ids, _, bytes) in batches {
                    let want: Vec<u8> = ids.iter().flat_map(|&id| vec![id as u8; 256]).collect();
                    assert!(bytes == want, "{mode:?}, {then:?} from call {change} on");
                }
            }
        }
    });
}

/// Budgets, and how many samples of [`fixed`] fit beside the rows of a batch.
const PARTS: [(usize, u64); 4] = [(768, 7), (1536, 24), (3072, 61), (4607, 92)];

#[test]
fn batches_of_a_set_of_which_a_part_fits_are_those_of_staged_mode() {
    alone(|| {
        for (budget, kept) in PARTS {
            let check = |workers: usize, delay: Duration, with: &dyn Fn(LoaderBuilder) -> LoaderBuilder| {
                let set = slow(fixed(), (delay == Duration::ZERO).then_some(u64::MAX), delay);
                let set: Arc<dyn Dataset> = Arc::new(set);
                let builder = || with(Loader::builder(set.clone()).batch_size(8)).depth(2);
                let want = run(builder(), TransferMode::Staged);
                let builder = builder().workers(Workers::Count(workers)).resident_budget(budget);
                let loader = builder.transfer_mode(TransferMode::Resident).build_host().expect("a loader");
                let mode = loader.transfer_mode();
                assert_eq!(mode.to_string(), format!("resident: {kept} of 103 samples"));
                assert!(
                    matches!(mode, ChosenMode::PartlyResident { kept: on_device, .. } if *on_device == kept),
                    "{mode}"
                );
                let got = run_all(loader, TransferMode::Resident);
                assert!(!want.is_empty() && got == want, "{kept} samples, {workers} workers");
            };
            for sampler in [Sampler::Sequential, Sampler::Shuffle] {
                check(1, Duration::ZERO, &|b| b.sampler(sampler.clone()).seed(7));
                check(3, Duration::ZERO, &|b| b.sampler(sampler.clone()).seed(7).last_batch(LastBatch::Pad));
            }
            // Slow rows are split over the workers.
            check(4, Duration::from_micros(100), &|b| b.shuffle().seed(2).last_batch(LastBatch::Drop));
            for rank in 0..2 {
                let world = World::new(rank, 2).expect("a world");
                check(2, Duration::ZERO, &|b| b.shuffle().seed(9).world(world).skip(1, 2..4));
            }
        }
    });
}

#[test]
fn a_bad_sample_of_the_rest_gets_its_substitute() {
    alone(|| {
        let run = |mode| {
            let tolerant = BadSamples::Substitute { budget: Budget::Count(1000) };
            let set = failing(fixed(), [64, 65, 70, 99, 100, 101, 102]);
            let builder = Loader::builder(set).batch_size(8).shuffle().seed(4).bad_samples(tolerant);
            run(builder.resident_budget(3072).workers(Workers::Count(2)), mode)
        };
        assert!(run(TransferMode::Resident) == run(TransferMode::Staged));
        let builder = Loader::builder(failing(fixed(), [55])).batch_size(8).resident_budget(3072);
        let refused = builder.transfer_mode(TransferMode::Resident).build(&Device::new_host());
        assert_eq!(refused.map(drop).expect_err("a sample on the device").sample(), Some(55));
    });
}

#[test]
fn samples_on_the_device_are_read_once_and_the_others_in_every_epoch() {
    alone(|| {
        for (budget, kept) in PARTS {
            let driver = Count::new(Host::new());
            let count = driver.handle();
            let device = feedline_device::with_backend(driver);
            let (set, reads) = counting(laid());
            let builder = Loader::builder(set).batch_size(8).depth(3).epochs(3).workers(Workers::Count(2));
            let builder = builder.transfer_mode(TransferMode::Resident).resident_budget(budget);
            let mut loader = builder.build(&device).expect("a loader");
            let copies = count.snapshot().of(Op::CopyToDevice);
            let kept_bytes = loader.memory_use().device_bytes - 3 * loader.layout().bytes() as u64;
            assert!(kept_bytes <= budget as u64, "{kept_bytes} bytes of {budget}");
            for epoch in 0..3 {
                assert_eq!(loader.epoch(epoch).expect("an epoch").filter(Result::is_ok).count(), 13);
            }
            assert!((0..LEN).all(|id| reads.of(id) == if id < kept { 1 } else { 3 }));
            // In sequential order, batches from `kept` on have rows that workers read, with one copy per
            // field.
            let with_rest = LEN.div_ceil(8) - kept / 8;
            let copied = count.snapshot().of(Op::CopyToDevice) - copies;
            assert_eq!((count.snapshot().of(Op::Gather), copied), (3 * 13, 3 * 2 * with_rest));
            loader.stop(LONG).expect("a clean end");
            drop(loader);
            assert_empty(&device);
        }
    });
}

#[test]
fn every_sample_is_read_once_and_batches_cost_one_gather() {
    alone(|| {
        for workers in [1, 3] {
            let driver = Count::new(Host::new());
            let count = driver.handle();
            let device = feedline_device::with_backend(driver);
            let (set, reads) = counting(laid());
            let builder =
                Loader::builder(set).batch_size(8).depth(3).epochs(3).workers(Workers::Count(workers));
            let mut loader = builder.transfer_mode(TransferMode::Resident).build(&device).expect("a loader");
            assert_eq!(loader.transfer_mode().to_string(), "resident");
            assert!((0..LEN).all(|id| reads.of(id) == 1));
            let copies = count.snapshot().of(Op::CopyToDevice);
            // Fields of 8 and 33 bytes, each aligned to 256 bytes, and the slots.
            let kept = (8 * LEN).next_multiple_of(256) + (33 * LEN).next_multiple_of(256);
            assert_eq!(loader.memory_use().device_bytes, kept + 3 * loader.layout().bytes() as u64);
            assert_eq!(loader.memory_use().device_bytes, device.stats().device_bytes.get());
            assert_eq!(
                loader.memory_use().pinned_bytes,
                device.stats().pinned_bytes.get(),
                "staging is freed"
            );
            assert!(loader.memory_use().pinned_bytes < 8 * LEN, "only ids");
            for epoch in 0..3 {
                assert_eq!(loader.epoch(epoch).expect("an epoch").filter(Result::is_ok).count(), 13);
            }
            assert_eq!(
                (count.snapshot().of(Op::Gather), count.snapshot().of(Op::CopyToDevice)),
                (3 * 13, copies)
            );
            assert_eq!(reads.total(), LEN, "nothing is read again");
            loader.stop(LONG).expect("a clean end");
            drop(loader);
            assert_empty(&device);
        }
    });
}

/// Batches of three epochs, read back from `device`.
fn on_device(builder: LoaderBuilder, device: &Device) -> Contents {
    let mut loader = builder.build(device).expect("a loader");
    let stream = device.stream().expect("a stream");
    let mut contents = Contents::new();
    for epoch in 0..3 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch").wait_on(&stream).expect("on the stream");
            let bytes = batch.to_vec::<u8>("bytes").expect("bytes");
            contents.push((batch.ids().to_vec(), batch.valid_rows(), bytes));
        }
    }
    contents
}

#[test]
fn on_a_gpu_batches_of_a_set_and_of_a_part_of_it_are_those_of_staged_mode() {
    let Some(device) = feedline_testkit::gpu("a part of a set is resident") else { return };
    alone(|| {
        // Small rows, and large ones that are gathered in pieces.
        for (len, row_bytes, batch) in [(5000, 784, 256), (300, 150_528, 32)] {
            let records = Laid::records(&Fine::new(len, row_bytes).expect("a set"), 5, 3).expect("columns");
            let set: Arc<dyn Dataset> = Arc::new(counting(records).0);
            let builder = || Loader::builder(set.clone()).batch_size(batch).shuffle().seed(4).depth(3);
            let want = run(builder().last_batch(LastBatch::Pad), TransferMode::Staged);
            let whole = len as usize * row_bytes;
            for budget in [whole / 4, whole / 2, 3 * whole / 4, usize::MAX] {
                let builder = builder().last_batch(LastBatch::Pad).resident_budget(budget);
                let builder = builder.transfer_mode(TransferMode::Resident);
                let got = on_device(builder, &device);
                assert!(got == want, "{len} rows of {row_bytes} bytes, budget {budget}");
            }
        }
    });
}

#[test]
fn a_loop_over_a_resident_set_has_no_race_in_any_schedule() {
    alone(|| {
        for seed in 0..50 {
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            {
                let compute = device.stream().expect("a stream");
                let builder = Loader::builder(fixed()).batch_size(16).shuffle().seed(seed).depth(2).epochs(2);
                let builder = builder.workers(Workers::Count(2)).transfer_mode(TransferMode::Resident);
                // In every second schedule only a part of the set fits.
                let budget = if seed % 2 == 0 { usize::MAX } else { 3072 };
                let builder = builder.resident_budget(budget);
                let mut loader = builder.build(&device).expect("a loader");
                for epoch in 0..2 {
                    for batch in loader.epoch(epoch).expect("an epoch") {
                        let batch = batch.expect("a batch").wait_on(&compute).expect("an open batch");
                        let ids: Vec<i64> = batch.ids().iter().map(|&id| id as i64).collect();
                        let field = batch.field::<i64>("id").expect("ids");
                        launch_host(&compute, "check", [field.into()], [], move |memory| {
                            assert_eq!(memory.input::<i64>(0), ids);
                        })
                        .expect("a check");
                    }
                }
                compute.synchronize().expect("the checks");
                loader.stop(LONG).expect("a clean end");
            }
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_empty(&device);
        }
    });
}

#[test]
fn what_cannot_be_resident_is_refused_with_the_reason() {
    alone(|| {
        let device = Device::new_host();
        let refused = |builder: LoaderBuilder| {
            let builder = builder.batch_size(8).transfer_mode(TransferMode::Resident);
            builder.build(&device).map(drop).expect_err("it cannot be resident")
        };
        let error = refused(Loader::builder(fixed()).resident_budget(700));
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert_eq!(
            error.message(),
            "resident is not possible, the set takes 4608 bytes on the device, and its budget of 700 is too \
             small for a sample beside the rows of a batch: ask for auto or staged"
        );
        let error = refused(Loader::builder(Random::new(20, 2).expect("a set")));
        assert!(error.kind() == ErrorKind::Config && error.message().contains("random numbers"), "{error}");
        let error = refused(Loader::builder(fixed()).map_batch(|_, _| Ok(())));
        assert!(error.message().contains("map_batch needs the batch in host memory"), "{error}");
        let error = refused(Loader::builder(failing(fixed(), [50])));
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(50)));
        assert_empty(&device);
    });
}
