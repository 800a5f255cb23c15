//! `map_batch` runs exactly once per batch, on whole batches. Its random numbers depend neither on the
//! workers nor on resumes, and its failures name the batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{LONG, alone, assert_empty};
use feedline::bad_samples::Budget;
use feedline::batch::FilledBatch;
use feedline::{
    BadSamples, Cursor, Dataset, Device, Error, ErrorKind, HostLoader, LastBatch, Loader, LoaderBuilder,
    Stage, TransferMode, Workers, World,
};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::fixtures::{Fine, Laid, failing, slow};

const LEN: u64 = 103;
const BATCH: usize = 8;

/// How often the hook saw a batch, by epoch and ids.
type Calls = Arc<Mutex<BTreeMap<(u64, Vec<u64>), u64>>>;

/// A loader whose hook counts its calls, and writes a random number into the first bytes of every row.
fn stamped(set: impl Dataset, calls: &Calls) -> LoaderBuilder {
    let calls = calls.clone();
    Loader::builder(set).batch_size(BATCH).shuffle().seed(7).map_batch(
        move |batch: &mut FilledBatch<'_>, context| {
            *calls.lock().expect("calls").entry((batch.epoch(), batch.ids().to_vec())).or_default() += 1;
            let stamp = context.random().next_u64().to_le_bytes();
            let rows = batch.len();
            // Whole: every row holds its own sample.
            let ids: Vec<i64> = batch.ids().iter().map(|&id| id as i64).collect();
            if *batch.field_mut::<i64>("id")? != ids[..] {
                return Err("a row of another sample, or not read yet".into());
            }
            let bytes = batch.field_mut::<u8>("bytes")?;
            bytes.chunks_exact_mut(16).for_each(|row| row[..8].copy_from_slice(&stamp));
            assert_eq!(bytes.len(), rows * 16);
            Ok(())
        },
    )
}

fn fine() -> Fine {
    Fine::new(LEN, 16).expect("a set")
}

/// The ids and stamps of each batch.
type Stamps = Vec<(Vec<u64>, Vec<u8>)>;

fn take(batches: feedline::HostEpoch<'_>, max: usize) -> Stamps {
    let stamp = |batch: feedline::Result<feedline::HostBatch>| {
        let batch = batch.expect("a batch");
        let bytes = batch.field::<u8>("bytes").expect("bytes");
        let stamps: Vec<&[u8]> = bytes.chunks_exact(16).map(|row| &row[..8]).collect();
        assert!(stamps.windows(2).all(|pair| pair[0] == pair[1]), "rows of one batch differ");
        (batch.ids().to_vec(), stamps[0].to_vec())
    };
    batches.take(max).map(stamp).collect()
}

fn epochs(loader: &mut HostLoader) -> Stamps {
    (0..2).flat_map(|epoch| take(loader.epoch(epoch).expect("an epoch"), usize::MAX)).collect()
}

#[test]
fn the_hook_sees_each_whole_batch_once_and_writes_the_same_for_any_number_of_workers() {
    alone(|| {
        let mut want: Option<Stamps> = None;
        // Slow rows are split over the workers, quick ones are not.
        for (workers, delay) in [(1, 0), (2, 0), (8, 0), (2, 200), (8, 200)] {
            let calls = Calls::default();
            let set = slow(fine(), (delay == 0).then_some(u64::MAX), Duration::from_micros(delay));
            let mut loader = stamped(set, &calls)
                .epochs(2)
                .workers(Workers::Count(workers))
                .build_host()
                .expect("a loader");
            let seen = epochs(&mut loader);
            let calls = std::mem::take(&mut *calls.lock().expect("calls"));
            assert_eq!((seen.len(), calls.len()), (26, 26));
            assert!(calls.values().all(|&times| times == 1), "{workers} workers: {calls:?}");
            let mut stamps: Vec<_> = seen.iter().map(|(_, stamp)| stamp.clone()).collect();
            stamps.sort_unstable();
            stamps.dedup();
            assert_eq!(stamps.len(), 26, "every batch has its own random numbers");
            match &want {
                None => want = Some(seen),
                Some(want) => assert!(seen == *want, "{workers} workers write something else"),
            }
        }
    });
}

#[test]
fn a_resumed_run_and_every_rank_draw_the_same_numbers() {
    alone(|| {
        let calls = Calls::default();
        let build = |world| stamped(fine(), &calls).world(world).build_host().expect("a loader");
        for (rank, size) in [(0, 1), (0, 2), (1, 2)] {
            let world = World::new(rank, size).expect("a world");
            let want = take(build(world).epoch(1).expect("an epoch"), usize::MAX);
            for stop in [1, 3, want.len() - 1] {
                let mut first = build(world);
                take(first.epoch(1).expect("an epoch"), stop);
                let cursor: Cursor = first.cursor();
                let rest = take(build(world).resume(cursor).expect("the rest"), usize::MAX);
                assert!(rest == want[stop..], "rank {rank} of {size}, after {stop} batches");
            }
        }
        let of_rank = |rank| {
            let world = World::new(rank, 2).expect("a world");
            take(build(world).epoch(0).expect("an epoch"), 1).swap_remove(0).1
        };
        assert_ne!(of_rank(0), of_rank(1), "ranks draw different numbers");
    });
}

/// The number of batches before the error that ends the epoch, and the error.
fn ends(builder: LoaderBuilder) -> (usize, Error) {
    let device = Device::new_host();
    let mut loader = builder.build(&device).expect("a loader");
    let mut before = 0;
    let error = loader.epoch(0).expect("an epoch").find_map(|batch| match batch {
        Ok(_) => {
            before += 1;
            None
        }
        Err(error) => Some(error),
    });
    loader.stop(LONG).expect("a clean end");
    drop(loader);
    assert_empty(&device);
    (before, error.expect("a failure"))
}

#[test]
fn an_error_and_a_panic_end_the_run_at_their_batch() {
    alone(|| {
        for workers in [1, 4] {
            let at = |fails: fn() -> Result<(), feedline::ReadError>| {
                let tolerant = BadSamples::Substitute { budget: Budget::Count(100) };
                let builder = Loader::builder(fine()).batch_size(BATCH).bad_samples(tolerant);
                ends(
                    builder
                        .workers(Workers::Count(workers))
                        .map_batch(move |batch, _| if batch.ids().contains(&30) { fails() } else { Ok(()) }),
                )
            };
            let (before, error) = at(|| Err("planned failure".into()));
            assert_eq!((before, error.kind(), error.batch()), (3, ErrorKind::Sample, Some(3)));
            assert_eq!(error.to_string(), "map_batch failed: planned failure (stage decode, batch 3)");
            let (before, error) = at(|| panic!("planned panic"));
            assert_eq!((before, error.kind(), error.batch()), (3, ErrorKind::Panic, Some(3)));
            assert_eq!(
                (error.stage(), error.message()),
                (Some(Stage::Decode), "map_batch panicked: planned panic")
            );
        }
    });
}

#[test]
fn the_hook_sees_substitutes_padding_and_batches_of_a_source() {
    alone(|| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = seen.clone();
        let note = move |builder: LoaderBuilder<()>| {
            let note = note.clone();
            builder.map_batch(move |batch, _| {
                note.lock().expect("batches").push((batch.ids().to_vec(), batch.valid_rows()));
                Ok(())
            })
        };
        let tolerant = BadSamples::Substitute { budget: Budget::Count(1) };
        let builder = Loader::builder(failing(fine(), [2])).batch_size(60).epochs(1).bad_samples(tolerant);
        let builder = note(builder.last_batch(LastBatch::Pad).workers(Workers::Count(1)).either());
        let mut loader = builder.build_host().expect("a loader");
        let batches: Vec<_> =
            loader.epoch(0).expect("an epoch").map(|batch| batch.expect("a batch")).collect();
        let delivered: Vec<_> =
            batches.iter().map(|batch| (batch.ids().to_vec(), batch.valid_rows())).collect();
        let noted = std::mem::take(&mut *seen.lock().expect("batches"));
        assert_eq!(noted, delivered);
        assert!(noted[0].0[2] != 2 && noted[1].1 == 43, "{noted:?}");
        drop((batches, loader));

        let source = Generator::new([3, 10]).expect("a source");
        let builder = Loader::source_builder(source).batch_size(5).epochs(1).workers(Workers::Count(1));
        let builder = note(builder.either());
        let mut loader = builder.build_host().expect("a loader");
        assert_eq!(loader.epoch(0).expect("an epoch").filter(Result::is_ok).count(), 3);
        assert_eq!(
            seen.lock().expect("batches").iter().map(|(ids, _)| ids.len()).collect::<Vec<_>>(),
            [5, 5, 3]
        );
    });
}

#[test]
fn a_hook_needs_the_batch_in_host_memory() {
    alone(|| {
        let laid = || Laid::columns(&fine(), 0).expect("a laid set");
        let build = |mode| {
            let builder = Loader::builder(laid()).batch_size(BATCH).map_batch(|_, _| Ok(()));
            builder.transfer_mode(mode).build(&Device::new_host())
        };
        let error = build(TransferMode::ZeroCopy).map(drop).expect_err("zero copy is not possible");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("map_batch needs the batch in host memory"), "{error}");
        let auto = build(TransferMode::Auto).expect("a loader");
        assert!(matches!(auto.transfer_mode(), feedline::report::ChosenMode::Staged { .. }));
    });
}

#[test]
fn a_loader_gives_its_data_set_back() {
    alone(|| {
        let device = Device::new_host();
        let shared = Arc::new(fine());
        let mut loader = Loader::builder(shared.clone()).batch_size(BATCH).build(&device).expect("a loader");
        let mut batches = loader.epoch(0).expect("an epoch");
        assert!(batches.next().is_some_and(|batch| batch.is_ok()));
        // With workers that read.
        let back = loader.dataset().expect("the set of a running loader");
        drop(loader);
        assert_eq!((back.len(), back.fingerprint()), (LEN, shared.fingerprint()));
        let mut again = Loader::builder(back).batch_size(BATCH).build(&device).expect("a loader");
        assert_eq!(again.epoch(0).expect("an epoch").filter(Result::is_ok).count(), 13);
        again.stop(LONG).expect("a clean end");
        assert!(again.dataset().is_none(), "the workers have dropped it");
        assert_eq!(Arc::strong_count(&shared), 1, "nothing else keeps it");
        drop(again);
        assert_empty(&device);

        let source = Generator::new([3, 10]).expect("a source");
        let loader = Loader::source_builder(source).batch_size(5).build(&device).expect("a loader");
        assert!(loader.dataset().is_none());
    });
}
