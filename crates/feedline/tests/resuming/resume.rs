//! A loader restored at any step continues as if it had never stopped, for every sampler and last batch;
//! `zoo` has every data set. A cursor that does not fit is refused, and the loader keeps working.

use std::collections::BTreeSet;

use crate::common::{alone, alone_in_parts, assert_empty, one_at_a_time};
use crate::restoring::{Restored, read_source, sources, variants};
use feedline::{
    Cursor, Device, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Result, Sampler, Workers, World,
};
use feedline_testkit::fixtures::{self, Fine, Random};
use feedline_testkit::restore::{self, From, MIXES, Pipeline};
use feedline_testkit::{Watchdog, watchdog};

/// Samples of the data sets: two full batches of [`BATCH`] and a short one.
const LEN: u64 = 24;
const BATCH: usize = 9;
const LAST_BATCHES: [LastBatch; 3] = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad];

/// Every sampler, with the name of its variant.
fn samplers() -> Vec<(&'static str, Sampler)> {
    let weights: Vec<f64> = (0..LEN).map(|id| [1.0, 3.0, 0.5][id as usize % 3]).collect();
    let labels: Vec<u32> = (0..LEN).map(|id| u32::from(id > 15)).collect();
    let lengths: Vec<u32> = (0..LEN as u32).map(|id| id % 7).collect();
    let listed: Vec<u64> = (0..LEN).filter(|id| id % 5 > 0).collect();
    vec![
        ("Sequential", Sampler::Sequential),
        ("Shuffle", Sampler::Shuffle),
        ("Block", Sampler::block(4, 6).unwrap()),
        ("Weighted", Sampler::weighted(&weights).unwrap()),
        ("WithoutReplacement", Sampler::weighted_without_replacement(&weights).unwrap()),
        ("Balanced", Sampler::balanced(&labels, 2).unwrap().draws(LEN + 4).unwrap()),
        ("Bucketed", Sampler::bucketed(&lengths, BATCH as u64, 2).unwrap()),
        ("Subset", Sampler::subset(listed, Sampler::Shuffle).unwrap()),
        ("ByEpoch", Sampler::by_epoch([(0, Sampler::Shuffle), (1, Sampler::block(4, 6).unwrap())]).unwrap()),
        ("Grouped", Sampler::grouped(3, Sampler::Shuffle).unwrap()),
        ("Batches", Sampler::batches(3, false, |epoch, step| Ok(own_batch(epoch, step))).unwrap()),
        ("Custom", Sampler::custom("turned", LEN, |epoch, position| (position * 5 + epoch) % LEN).unwrap()),
    ]
}

/// A batch of one's own, of up to [`BATCH`] samples.
fn own_batch(epoch: u64, step: u64) -> Vec<u64> {
    (0..[9, 4, 6][step as usize]).map(|at| (9 * step + at + epoch) % LEN).collect()
}

/// Restores the loader at every step, and checks that it continues the same.
#[track_caller]
fn everywhere(builder: impl Fn() -> LoaderBuilder + Sync) {
    let _watchdog = Watchdog::new(watchdog::LIMIT, "restored everywhere");
    let done = restore::everywhere(|mix| Restored::new(builder(), mix));
    assert!(done.steps >= 4 && done.restored >= 12 * done.steps, "{done:?}");
}

#[test]
fn every_sampler_and_last_batch_resumes_with_random_augmentation() {
    alone_in_parts(|| {
        for (_, sampler) in samplers() {
            for last_batch in LAST_BATCHES {
                let data = || Loader::builder(Random::new(LEN, 3).unwrap());
                everywhere(|| {
                    data().batch_size(BATCH).sampler(sampler.clone()).seed(29).last_batch(last_batch)
                });
            }
        }
    });
}

#[test]
fn every_rank_and_a_run_with_skipped_steps_resume() {
    alone_in_parts(|| {
        let data = || Loader::builder(Random::new(61, 2).unwrap()).batch_size(5).shuffle().seed(3);
        for rank in 0..3 {
            everywhere(|| data().world(World::new(rank, 3).unwrap()));
        }
        everywhere(|| data().skip(0, 1..3).skip(1, 0..1).skip(1, 11..12));
    });
}

/// Fails when a sampler or a last batch is added and not restored above; `zoo` looks for data sets.
#[test]
fn no_sampler_or_last_batch_is_left_out() {
    let _one = one_at_a_time(); // The files that it opens would show in the census of another test.
    let Some(root) = sources("no_sampler_or_last_batch_is_left_out") else { return };
    let names = |tested: Vec<&str>| tested.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();

    let text = read_source(&root.join("crates/core/src/sampler/mod.rs"));
    assert_eq!(variants(&text, "Sampler"), names(samplers().iter().map(|(name, _)| *name).collect()));

    let text = read_source(&root.join("crates/core/src/batch_sampler.rs"));
    let last_batches = LAST_BATCHES.map(|last_batch| format!("{last_batch:?}"));
    assert_eq!(variants(&text, "LastBatch"), BTreeSet::from(last_batches));
}

#[test]
fn skipped_steps_are_not_read() {
    alone(|| {
        let (data, reads) = fixtures::counting(Fine::new(40, 8).unwrap());
        let builder = Loader::builder(data).batch_size(4).skip(0, 2..5).epochs(1);
        let mut loader = Restored::new(builder, MIXES[4]);
        let ids: Vec<u64> =
            loader.run(From::Epoch(0), usize::MAX).into_iter().flat_map(|step| step.ids).collect();
        assert!(ids.into_iter().eq((0..8).chain(20..40)));
        let read: Vec<u64> = (0..40).map(|id| reads.of(id)).collect();
        assert!(
            read.iter().zip(0..).all(|(&times, id)| times == u64::from(!(8..20).contains(&id))),
            "{read:?}"
        );
    });
}

#[test]
fn another_batch_size_and_last_batch_resume_at_every_step() {
    alone(|| {
        let loader = |batch, last_batch| {
            let data = Loader::builder(Random::new(LEN, 2).unwrap());
            Restored::new(data.batch_size(batch).shuffle().seed(8).last_batch(last_batch), MIXES[4])
        };
        let rows = |steps: &[restore::Step]| -> Vec<u64> {
            steps.iter().flat_map(|step| step.ids[..step.valid].to_vec()).collect()
        };
        let whole = rows(&loader(1, LastBatch::Keep).run(From::Epoch(0), usize::MAX));
        for (before, after, last_batch) in
            [(4, 7, LastBatch::Keep), (7, 4, LastBatch::Pad), (5, 1, LastBatch::Drop)]
        {
            let mut first = loader(before, LastBatch::Keep);
            for taken in 0..LEN as usize / before {
                let mut delivered = rows(&first.run(From::Epoch(0), taken));
                delivered
                    .extend(rows(&loader(after, last_batch).run(From::Cursor(first.cursor()), usize::MAX)));
                assert_eq!(delivered, whole, "{taken} batches of {before}, then {after}");
            }
        }
    });
}

/// A loader of `len` samples, and its cursor after two steps.
fn after_two_steps(len: u64, seed: u64) -> (Loader, Cursor) {
    let data = Fine::new(len, 4).unwrap();
    let builder = Loader::builder(data).batch_size(4).shuffle().seed(seed).workers(Workers::Count(2));
    let mut loader = builder.build(&Device::new_host()).unwrap();
    let batches = loader.epoch(0).unwrap();
    assert_eq!(batches.take(2).filter(Result::is_ok).count(), 2);
    let cursor = loader.cursor();
    (loader, cursor)
}

#[test]
fn a_cursor_that_does_not_fit_is_refused_and_the_loader_keeps_working() {
    alone(|| {
        let (mut loader, own) = after_two_steps(40, 1);
        let edited = |from: &str, to: &str| {
            let text = serde_json::to_string(&own).unwrap();
            assert!(text.contains(from), "{text}");
            serde_json::from_str::<Cursor>(&text.replace(from, to)).unwrap()
        };
        let refusals = [
            (after_two_steps(41, 1).1, "the cursor belongs to another data set"),
            (after_two_steps(40, 2).1, "the cursor has seed 2, this run has seed 1: use the cursor's seed"),
            (edited(r#""position":8"#, r#""position":41"#), "at position 41, beyond the 40 of an epoch"),
            (edited(r#""position":8"#, r#""position":7"#), "inside a step"),
            (edited(r#""world":1"#, r#""world":3"#), "inside a step: position 8 is 8 samples into"),
            (edited(r#""rank":0"#, r#""rank":1"#), "contradicts itself"),
        ];
        for (cursor, part) in refusals {
            let error = loader.resume(cursor).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cursor);
            assert!(error.to_string().contains(part) && !error.to_string().contains('\n'), "{error}");
            assert_eq!(loader.cursor(), own, "a refused cursor changes nothing");
        }
        assert_eq!(loader.resume(own).unwrap().filter(Result::is_ok).count(), 8);
    });
}

#[test]
fn the_cursor_of_another_sampler_is_refused() {
    alone(|| {
        let (_, cursor) = after_two_steps(40, 1);
        let builder = Loader::builder(Fine::new(40, 4).unwrap()).batch_size(4).seed(1);
        let mut loader = builder.build(&Device::new_host()).unwrap();
        let error: Error = loader.resume(cursor).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("another order of the samples"), "{error}");
    });
}

#[test]
fn reading_the_cursor_neither_starts_nor_moves_anything() {
    alone(|| {
        let (data, reads) = fixtures::counting(Fine::new(12, 4).unwrap());
        let device = Device::new_host();
        let mut loader = Loader::builder(data).batch_size(4).epochs(1).build(&device).unwrap();
        let fresh = loader.cursor();
        assert_eq!((loader.cursor(), reads.total()), (fresh, 0));
        let mut batches = loader.epoch(0).unwrap();
        assert!(batches.next().is_some_and(|batch| batch.is_ok()));
        let (one, two) = (batches.cursor(), batches.cursor());
        assert_eq!((one, one.position(), one.proof().count()), (two, 4, 4));
        assert_eq!(batches.filter(Result::is_ok).count(), 2);
        drop(loader);
        assert_empty(&device);
    });
}
