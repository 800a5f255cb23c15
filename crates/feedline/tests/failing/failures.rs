//! After a failure the caller gets the batches before it, then one error that names its place, then nothing.
//! No call hangs, and no epoch is short without an error.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::small::{BATCH, LEN, STEPS, builder, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone, assert_intact, hush_planned_panics, wait_until, wait_until_gone};
use feedline::{
    Context, Dataset, Device, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, ReadError, Row, Sampler,
    Spec, Stage, Stream, TryNext, WorkerPool, Workers, World,
};
use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::fixtures::{self, Fine};

/// Takes epoch 0, whose sample `id` is bad. Checks the batches before it, its error, and that nothing
/// follows.
#[track_caller]
fn assert_ends_at(loader: &mut Loader, compute: &Stream, id: u64, kind: ErrorKind, word: &str) -> Error {
    let bad_batch = id / BATCH as u64;
    let mut batches = loader.epoch(0).unwrap();
    for step in 0..bad_batch {
        let batch = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
        assert_eq!(batch.step(), step);
        assert_intact(&fine(), &batch);
    }
    let error = batches.next().expect("an error, not a short epoch").unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(
        (error.stage(), error.batch(), error.sample()),
        (Some(Stage::Decode), Some(bad_batch), Some(id))
    );
    assert!(error.to_string().contains(&format!("planned {word} of sample {id}")), "{error}");
    assert!(batches.is_over() && batches.next().is_none());
    assert!(matches!(batches.try_next().unwrap(), TryNext::Over));
    error
}

#[test]
fn a_bad_sample_ends_the_epoch_after_the_batches_before_it() {
    hush_planned_panics();
    alone(|| {
        for bad_batch in [0, STEPS / 2, STEPS - 1] {
            for row in [0, BATCH as u64 / 2, BATCH as u64 - 1] {
                let id = bad_batch * BATCH as u64 + row;
                for workers in [1, 3] {
                    on_a_device(|device, compute| {
                        let builder =
                            builder(fixtures::failing(fine(), [id])).workers(Workers::Count(workers));
                        let mut loader = builder.build(device).unwrap();
                        let first = assert_ends_at(&mut loader, compute, id, ErrorKind::Sample, "failure");
                        // Another request returns the same error and does not hang.
                        let again = loader.epoch(1).map(|mut epoch| epoch.next().unwrap().unwrap_err());
                        assert_eq!(again.unwrap_or_else(|error| error).to_string(), first.to_string());
                    });
                    on_a_device(|device, compute| {
                        let builder =
                            builder(fixtures::panicking(fine(), [id])).workers(Workers::Count(workers));
                        let mut loader = builder.build(device).unwrap();
                        assert_ends_at(&mut loader, compute, id, ErrorKind::Panic, "panic");
                    });
                }
            }
        }
    });
}

#[test]
fn the_first_cause_is_reported_however_the_threads_race() {
    hush_planned_panics();
    alone(|| {
        for round in 0..400 {
            on_a_device(|device, compute| {
                let id = round % BATCH as u64;
                let mut loader = builder(fixtures::failing(fine(), [id]))
                    .workers(Workers::Count(1))
                    .build(device)
                    .unwrap();
                assert_ends_at(&mut loader, compute, id, ErrorKind::Sample, "failure");
            });
        }
    });
}

#[test]
fn of_several_bad_samples_the_first_in_order_is_named() {
    alone(|| {
        for round in 0..50 {
            on_a_device(|device, compute| {
                // The last row fails at once; the rows before the first bad one are slow.
                let delay = Duration::from_micros(200 * (round % 5));
                let slow = fixtures::slow(fixtures::failing(fine(), [2, 5, 7]), [0, 1], delay);
                let mut loader = builder(slow).workers(Workers::Count(3)).build(device).unwrap();
                assert_ends_at(&mut loader, compute, 2, ErrorKind::Sample, "failure");
            });
        }
    });
}

/// Fails to read a sample in epoch 1, and sets a flag when that happens.
struct FailsLater(Fine, u64, Arc<AtomicBool>);

impl Dataset for FailsLater {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if (context.epoch(), id) == (1, self.1) {
            self.2.store(true, Ordering::SeqCst);
            return Err("planned failure later".into());
        }
        self.0.read(id, row, context)
    }
}

#[test]
fn an_error_met_while_reading_ahead_is_delivered_in_order() {
    alone(|| {
        on_a_device(|device, compute| {
            let failed = Arc::new(AtomicBool::new(false));
            let data = FailsLater(fine(), BATCH as u64, failed.clone());
            let mut loader = builder(data).depth(8).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            let first = batches.next().unwrap().unwrap();
            // The whole epoch and the first batch of the next one fit in the slots; the second batch fails.
            wait_until("the read has failed", || failed.load(Ordering::SeqCst));
            assert_intact(&fine(), &first.wait_on(compute).unwrap());
            for batch in batches {
                assert_intact(&fine(), &batch.unwrap().wait_on(compute).unwrap());
            }
            let mut batches = loader.epoch(1).unwrap();
            assert_intact(&fine(), &batches.next().unwrap().unwrap().wait_on(compute).unwrap());
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.batch()), (ErrorKind::Sample, Some(1)));
            assert!(batches.next().is_none());
        });
    });
}

#[test]
fn a_read_that_never_returns_is_named_and_keeps_its_memory() {
    alone(|| {
        on_a_device(|device, compute| {
            let (data, gate) = fixtures::blocking(fine(), [19]);
            let mut loader = builder(data).build(device).unwrap();
            let held = loader.memory_use();
            let mut batches = loader.epoch(0).unwrap();
            for _ in 0..2 {
                assert_intact(&fine(), &batches.next().unwrap().unwrap().wait_on(compute).unwrap());
            }
            assert!(gate.wait_until_waiting(1, LONG));
            let next = batches.next_timeout(Duration::from_millis(20)).unwrap();
            assert!(matches!(next, TryNext::NotYet));
            assert!(!batches.is_over());

            let error = loader.stop(Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            for part in ["fl-decode-", "sample 19", "batch 2"] {
                assert!(error.to_string().contains(part), "no {part:?} in: {error}");
            }
            // The drop waits a bounded time and frees no memory that the read may still write.
            let start = Instant::now();
            drop(loader);
            assert!(start.elapsed() < LONG);
            assert_eq!(device.stats().pinned_bytes.get(), held.pinned_bytes);
            let errors = device.stats().take_errors();
            assert!(errors.iter().any(|error| error.kind() == ErrorKind::Timeout), "{errors:?}");

            gate.open();
            wait_until("the memory is freed", || device.stats().pinned_bytes.get() == 0);
            wait_until_gone("fl-decode");
            wait_until("the copy stream is gone", || device.stats().streams.get() == 1);
            wait_until("the device memory is freed", || device.stats().device_bytes.get() == 0);
            wait_until("the events are gone", || device.stats().events.get() == 0);
        });
    });
}

/// Several batches are read at once; a batch that never finishes does not hold back the error of an earlier
/// one.
#[test]
fn an_error_is_delivered_while_a_later_read_never_returns() {
    alone(|| {
        on_a_device(|device, compute| {
            let (data, gate) = fixtures::blocking(fine(), [19]);
            let gate = std::sync::Arc::new(gate);
            let seen = gate.clone();
            let data = fixtures::Before::new(data, move |id| match id {
                8 if seen.wait_until_waiting(1, LONG) => Err("planned".into()),
                _ => Ok(()),
            });
            let mut loader = builder(data).workers(Workers::Count(2)).depth(2).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            assert_intact(&fine(), &batches.next().unwrap().unwrap().wait_on(compute).unwrap());
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.batch(), error.sample()), (ErrorKind::Sample, Some(1), Some(8)));
            let error = loader.stop(Duration::from_millis(20)).unwrap_err();
            assert!(error.to_string().contains("sample 19"), "{error}");
            gate.open();
            loader.stop(LONG).unwrap();
        });
    });
}

#[test]
fn holding_every_slot_is_an_error() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).held_timeout(Duration::from_millis(50)).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            // Opened or not, each batch holds its slot.
            let one = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let two = batches.next().unwrap().unwrap();
            assert!(matches!(batches.try_next().unwrap(), TryNext::NotYet));
            let next = batches.next_timeout(Duration::from_millis(5)).unwrap();
            assert!(matches!(next, TryNext::NotYet));
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SlotsHeld);
            assert!(error.to_string().contains("all 2 device slots"), "{error}");
            assert!(batches.next().is_none());
            drop((one, two));
            take_epoch(&mut loader, 0, compute);
            take_epoch(&mut loader, 1, compute);
        });
    });
}

/// Fails the consumer's `record` calls from the `nth` on, so the end of its reading is never recorded.
#[derive(Debug)]
struct FailsToRecord(AtomicU64);

impl Interceptor for FailsToRecord {
    fn intercept<R>(
        &self,
        _: &dyn Backend,
        call: Call,
        make: impl FnOnce() -> feedline::Result<R>,
    ) -> feedline::Result<R> {
        let by_stage = std::thread::current().name().is_some_and(|name| name.starts_with("fl-"));
        if call.op == Op::Record && !by_stage && self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.store(1, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::Device, "planned failure to record"));
        }
        make()
    }
}

#[test]
fn a_pipeline_whose_slots_are_all_lost_ends_with_an_error() {
    alone(|| {
        let device =
            feedline_device::with_backend(Intercepted::with(Host::new(), FailsToRecord(AtomicU64::new(2))));
        {
            let compute = device.stream().unwrap();
            let mut loader = builder(fine()).depth(2).build(&device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            for _ in 0..3 {
                assert_intact(&fine(), &batches.next().unwrap().unwrap().wait_on(&compute).unwrap());
            }
            let error = batches.next_timeout(LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            assert!(error.to_string().contains("planned failure to record"), "{error}");
            assert!(batches.next().is_none());
        }
        assert_eq!(device.stats().pinned_bytes.get(), 0);
    });
}

/// Panics when an error asks for the file of a sample.
struct NoPath(Fine);

impl Dataset for NoPath {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id == BATCH as u64 {
            return Err("planned failure".into());
        }
        self.0.read(id, row, context)
    }

    fn path(&self, _: u64) -> Option<&Path> {
        panic!("planned panic in path")
    }
}

#[test]
fn a_panic_in_path_hides_neither_the_error_nor_its_place() {
    hush_planned_panics();
    alone(|| {
        for workers in [1, 3] {
            on_a_device(|device, compute| {
                let mut loader =
                    builder(NoPath(fine())).workers(Workers::Count(workers)).build(device).unwrap();
                let mut batches = loader.epoch(0).unwrap();
                assert_intact(&fine(), &batches.next().unwrap().unwrap().wait_on(compute).unwrap());
                let error = batches.next().expect("an error, not a short epoch").unwrap_err();
                assert_eq!(
                    (error.kind(), error.batch(), error.sample()),
                    (ErrorKind::Sample, Some(1), Some(8))
                );
                assert!(error.to_string().contains("planned failure"), "{error}");
                assert!(batches.next().is_none());
            });
        }
    });
}

#[test]
fn a_loader_that_cannot_be_built_leaves_nothing_behind() {
    alone(|| {
        let refused = |build: &dyn Fn(&Device) -> feedline::Result<Loader>, kind| {
            on_a_device(|device, _| {
                let error = build(device).map(drop).unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert!(!error.to_string().contains('\n'), "{error}");
            });
        };
        refused(&|device| builder(fine()).depth(0).build(device), ErrorKind::Config);
        refused(&|device| builder(fine()).batch_size(0).build(device), ErrorKind::Config);
        refused(&|device| builder(fine()).workers(Workers::Count(0)).build(device), ErrorKind::Config);
        refused(
            &|device| builder(fine()).batch_size(41).last_batch(LastBatch::Drop).build(device),
            ErrorKind::Config,
        );
        refused(&|device| builder(fine()).pinned_budget(1000).build(device), ErrorKind::Budget);
    });
}

/// No call of a builder is silently ignored because of another one; the error names both.
#[test]
fn options_that_contradict_each_other_are_refused() {
    let _one = crate::common::one_at_a_time();
    let set = || Loader::builder(fine()).batch_size(4);
    let source =
        |shards: usize| Loader::source_builder(Generator::new(vec![10; shards]).unwrap()).batch_size(4);
    let world = |size| World::new(0, size).unwrap();
    let buckets = |batch| Sampler::bucketed(&[1; LEN as usize], batch, 2).unwrap();
    let listed = |batch| Sampler::subset((0..LEN).collect(), buckets(batch)).unwrap();
    let pool = WorkerPool::new(Workers::Count(3)).unwrap();
    let device = Device::new_host();
    for (builder, words) in [
        (source(2).world(world(3)).either(), ["2 shards", "3 ranks"]),
        (source(1).world(world(2)).either(), ["1 shard ", "2 ranks"]),
        (source(2).shuffle_buffer(0).either(), ["shuffle_buffer is 0 bytes", "leave it out"]),
        (set().sampler(buckets(6)).either(), ["batches of 6", "batch_size is 4"]),
        (set().sampler(buckets(8)).either(), ["batches of 8", "batch_size is 4"]),
        (
            set().sampler(buckets(12)).world(world(2)).either(),
            ["batches of 12", "give it 4, or 8 if the 2 ranks"],
        ),
        (set().sampler(listed(2)).either(), ["batches of 2", "batch_size is 4"]),
        (set().epochs(3).skip(3, 0..1).either(), ["epoch 3", "epochs is 3"]),
    ] {
        let error = builder.build(&device).map(drop).expect_err(words[0]);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(words.iter().all(|word| error.message().contains(word)), "{error}: {words:?}");
        assert!(!error.message().contains('\n'), "{error}");
    }
    // Options that agree with each other, and an option that another one implies.
    for builder in [
        set().sampler(buckets(4)).either(),
        set().sampler(buckets(8)).world(world(2)).either(),
        set().workers(Workers::Count(9)).pool(&pool).either(),
        set().epochs(3).skip(2, 0..1).either(),
        source(2).shuffle_shards().seed(3).world(world(2)).either(),
    ] {
        builder.build(&device).expect("a loader");
    }
    let loader = set().workers(Workers::AutoUpTo(1)).build(&device).expect("a loader");
    assert_eq!(loader.report().setup.workers, 1);
}

/// `shuffle`, `sampler` and `seed` say one thing each: the last order counts, and so does the last seed,
/// whatever stands between them.
#[test]
fn the_last_order_and_the_last_seed_count() {
    let _one = crate::common::one_at_a_time();
    let order = |builder: LoaderBuilder| {
        let loader = builder.batch_size(4).build(&Device::new_host()).unwrap();
        let options = loader.batch_sampler().options();
        (format!("{:?}", options.sampler), options.seed)
    };
    let set = || Loader::builder(fine());
    let block = || Sampler::block(2, 4).unwrap();
    assert_eq!(order(set()), (format!("{:?}", Sampler::Sequential), 0));
    assert_eq!(order(set().seed(9)), (format!("{:?}", Sampler::Sequential), 9));
    let shuffled = (format!("{:?}", Sampler::Shuffle), 5);
    assert_eq!(order(set().seed(9).shuffle().seed(5)), shuffled);
    assert_eq!(order(set().seed(5).sampler(block()).shuffle()), shuffled);
    assert_eq!(order(set().shuffle().seed(5).sampler(block())), (format!("{:?}", block()), 5));
    let of_shards = |sampler: Option<Sampler>| {
        let source = Loader::source_builder(Generator::new([3, 4, 5]).unwrap()).seed(5).shuffle_shards();
        let source = if let Some(sampler) = sampler { source.sampler(sampler) } else { source };
        let loader = source.build(&Device::new_host()).unwrap();
        loader.batch_sampler().digest()
    };
    assert_eq!(of_shards(None), of_shards(Some(Sampler::Shuffle)));
    assert_ne!(of_shards(None), of_shards(Some(Sampler::Sequential)));
}
