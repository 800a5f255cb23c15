//! Batches of one's own: by steps, the same on any number of ranks, and refused if they are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Proof, Result, Sampler, World};

const LEN: u64 = 100;
const STEPS: u64 = 11;
const BATCH: usize = 4;

/// 1 to 4 samples, other ones in each epoch.
fn named(epoch: u64, step: u64) -> Vec<u64> {
    let size = 1 + (epoch + step) % 4;
    (0..size).map(|row| (4 * step + row + 7 * epoch) % LEN).collect()
}

fn batches_of(sampler: &Sampler, last_batch: LastBatch, rank: u32, ranks: u32) -> Result<BatchSampler> {
    let world = World::new(rank, ranks).unwrap();
    let sampler = sampler.clone();
    BatchSampler::new(BatchSamplerOptions { len: LEN, sampler, seed: 7, batch: BATCH, last_batch, world })
}

fn own() -> Sampler {
    Sampler::batches(STEPS, false, |epoch, step| Ok(named(epoch, step))).unwrap()
}

fn refused(function: impl Fn(u64, u64) -> Vec<u64> + Send + Sync + 'static) -> String {
    let sampler = Sampler::batches(STEPS, false, move |epoch, step| Ok(function(epoch, step)));
    let made = sampler.and_then(|sampler| batches_of(&sampler, LastBatch::Keep, 0, 1));
    made.map(drop).unwrap_err().to_string()
}

#[test]
fn every_step_is_a_batch_of_one_rank_from_every_step_on() {
    let mut ids = Vec::new();
    for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        for ranks in [1, 2, 3, 8] {
            let of: Vec<_> =
                (0..ranks).map(|rank| batches_of(&own(), last_batch, rank, ranks).unwrap()).collect();
            let n = u64::from(ranks);
            let steps = if last_batch == LastBatch::Drop { STEPS / n } else { STEPS.div_ceil(n) };
            let mut start = 0;
            for step in 0..steps {
                for (rank, sampler) in (0..).zip(&of) {
                    assert_eq!(sampler.steps(3, start), steps - step);
                    let valid = sampler.batch(3, start, 0, &mut ids);
                    let number = n * step + rank;
                    if number < STEPS {
                        assert_eq!((ids.clone(), valid), (named(3, number), ids.len()));
                        let position = sampler.position(3, start, 0, 0);
                        assert_eq!(position, Some(number * BATCH as u64), "the same in every world");
                    } else {
                        assert!(valid == 0 && !ids.is_empty(), "padding");
                    }
                }
                start = of[0].position_after(3, start, 0);
            }
            assert_eq!(of[0].steps(3, start), 0);
        }
    }
}

#[test]
fn the_proof_counts_the_rows_of_short_batches() {
    let sampler = batches_of(&own(), LastBatch::Keep, 0, 1).unwrap();
    let (mut proof, mut ids) = (Proof::default(), Vec::new());
    for step in 0..STEPS {
        sampler.batch(2, 0, step, &mut ids);
        ids.iter().for_each(|&id| proof.add(2, id));
    }
    proof.check(&Proof::expected(&sampler, 2..3)).unwrap();
    assert_eq!((sampler.id(2, 3), sampler.id(2, 0)), (None, Some(14)));
}

#[test]
fn a_substitute_is_a_sample_of_the_epoch() {
    let sampler = batches_of(&own(), LastBatch::Keep, 0, 1).unwrap();
    let all: Vec<_> = (0..STEPS).flat_map(|step| named(1, step)).collect();
    for (position, attempt) in (0..STEPS * BATCH as u64).zip([0, 1].into_iter().cycle()) {
        assert!(all.contains(&sampler.substitute(1, position, attempt)));
    }
}

#[test]
fn the_digest_covers_the_batches_and_the_batch_size() {
    let digest = |sampler: &Sampler, batch| {
        let (sampler, world) = (sampler.clone(), World::single());
        let last_batch = LastBatch::Keep;
        let options = BatchSamplerOptions { len: LEN, sampler, seed: 7, batch, last_batch, world };
        BatchSampler::new(options).unwrap().digest()
    };
    let moved = |step: u64| if step == 5 { vec![0] } else { vec![step] };
    let other = Sampler::batches(STEPS, true, move |_, step| Ok(moved(step))).unwrap();
    let same = Sampler::batches(STEPS, true, |_, step| Ok(vec![step])).unwrap();
    // The same ids in the same order, cut at another place.
    let cut = |first: u64| move |_, step| Ok(vec![0; if step == first { 2 } else { 1 }]);
    let [early, late] = [0, 1].map(|first| Sampler::batches(STEPS, true, cut(first)).unwrap());
    assert_ne!(digest(&early, 4), digest(&late, 4));
    let all = [digest(&own(), 4), digest(&own(), 5), digest(&other, 4), digest(&same, 4)];
    assert!((0..4).all(|one| (0..one).all(|other| all[one] != all[other])), "{all:?}");
    assert_eq!(digest(&own(), 4), digest(&own(), 4));
}

#[test]
fn wrong_batches_are_refused_with_epoch_and_step() {
    let at_3 = |wrong: Vec<u64>| move |_, step| if step == 3 { wrong.clone() } else { vec![step] };
    for (wrong, why) in [
        (vec![], "the batch of step 3 of epoch 0 has no samples"),
        (vec![LEN], "the batch of step 3 of epoch 0 has sample 100: the data set has ids 0 to 99"),
        (vec![u64::MAX], "the data set has ids 0 to 99"),
        (vec![20, 21, 22, 23, 24], "the batch of step 3 of epoch 0 has 5 samples, and the batch size is 4"),
        (vec![8], "sample 8 comes twice in epoch 0, in the batches of steps 3 and 8"),
        (vec![30, 30], "sample 30 comes twice in epoch 0, in the batches of steps 3 and 3"),
    ] {
        let said = refused(at_3(wrong));
        assert!(said.contains(why), "{said}");
    }
    let calls = AtomicU64::new(0);
    let said = refused(move |_, _| vec![calls.fetch_add(1, Ordering::Relaxed)]);
    assert!(said.contains("gave other ones for epoch 0 in a second pass"), "{said}");
    let none = Sampler::batches(0, false, |_, _| Ok(vec![0])).unwrap_err();
    assert!(none.to_string().contains("at least 1"), "{none}");
    let subset = Sampler::subset(vec![0], own()).unwrap_err();
    assert!(subset.to_string().contains("make no subset of them"), "{subset}");
    let grouped = Sampler::grouped(4, own()).unwrap_err();
    assert!(grouped.to_string().contains("are no groups"), "{grouped}");
}

#[test]
fn an_error_of_a_later_epoch_is_that_of_its_batches_and_another_loader_asks_again() {
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let sampler = Sampler::batches(STEPS, false, move |epoch, step| match epoch {
        1 if step == 2 && down.load(Ordering::Relaxed) => Err("no server".into()),
        2 => panic!("a bug"),
        _ => Ok(vec![step]),
    });
    let (sampler, mut ids) = (sampler.unwrap(), Vec::new());
    let first = batches_of(&sampler, LastBatch::Keep, 0, 1).unwrap();
    first.batch(1, 0, 0, &mut ids);
    let said = first.fault(1, 0, 0, 0).to_string();
    assert!(said.contains("no batch of step 2 of epoch 1") && said.contains("no server"), "{said}");
    is_down.store(false, Ordering::Relaxed);
    first.batch(1, 0, 0, &mut ids);
    assert_eq!(first.fault(1, 0, 0, 0).to_string(), said, "this loader keeps it");
    batches_of(&sampler, LastBatch::Keep, 0, 1).unwrap().batch(1, 0, 2, &mut ids);
    assert_eq!(ids, [2]);
    first.batch(2, 0, 0, &mut ids);
    assert!(first.fault(2, 0, 0, 0).to_string().contains("a bug"));
}

#[test]
fn an_epoch_is_asked_for_once() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let sampler = Sampler::batches(STEPS, false, move |_, step| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec![step])
    });
    let sampler = batches_of(&sampler.unwrap(), LastBatch::Keep, 0, 1).unwrap();
    let mut ids = Vec::new();
    for (epoch, step) in [(0, 10), (1, 0), (0, 9), (1, 1), (2, 0), (1, 2)] {
        sampler.batch(epoch, 0, step, &mut ids);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4 * STEPS, "epoch 0 twice");
}
