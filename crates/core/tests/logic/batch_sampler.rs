//! Batches over ranks: every sample exactly once, for any world size, last-batch policy, restarts and skips.

use std::ops::Range;

use feedline_core::{BatchSampler, BatchSamplerOptions, ErrorKind, LastBatch, Sampler, World};
use proptest::prelude::*;

const SEED: u64 = 2026;
const LAST_BATCHES: [LastBatch; 3] = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad];

fn batch_sampler(len: u64, batch: usize, last_batch: LastBatch, rank: u32, world: u32) -> BatchSampler {
    let world = World::new(rank, world).unwrap();
    BatchSampler::new(BatchSamplerOptions {
        len,
        sampler: Sampler::Shuffle,
        seed: SEED,
        batch,
        last_batch,
        world,
    })
    .unwrap()
}

fn ranks(len: u64, batch: usize, last_batch: LastBatch, world: u32) -> Vec<BatchSampler> {
    (0..world).map(|rank| batch_sampler(len, batch, last_batch, rank, world)).collect()
}

/// The ids that one step delivers on every rank, and the valid ones of all ranks.
fn step(samplers: &[BatchSampler], epoch: u64, start: u64, step: u64) -> (Vec<Vec<u64>>, Vec<u64>) {
    let (mut all, mut valid) = (Vec::new(), Vec::new());
    for batch_sampler in samplers {
        let mut ids = vec![u64::MAX; 3];
        let count = batch_sampler.batch(epoch, start, step, &mut ids);
        valid.extend_from_slice(&ids[..count]);
        all.push(ids);
    }
    (all, valid)
}

/// The valid ids of `steps` from `start`, over all ranks, in global order.
fn valid_ids(samplers: &[BatchSampler], epoch: u64, start: u64, steps: Range<u64>) -> Vec<u64> {
    steps.flat_map(|number| step(samplers, epoch, start, number).1).collect()
}

fn whole(len: u64, epoch: u64) -> Vec<u64> {
    let mut ids = vec![0; len as usize];
    Sampler::Shuffle.fill(len, SEED, epoch, 0, &mut ids);
    ids
}

#[test]
fn ranks_of_any_world_size_deliver_every_sample_once() {
    for len in [1, 7, 31, 32, 33, 100, 257] {
        for world in [1, 2, 4, 8] {
            for batch in [1, 3, 8] {
                for last_batch in LAST_BATCHES {
                    let global = batch as u64 * u64::from(world);
                    if last_batch == LastBatch::Drop && global > len {
                        continue;
                    }
                    let samplers = ranks(len, batch, last_batch, world);
                    let steps = samplers[0].steps(1, 0);
                    assert!(samplers.iter().all(|batch_sampler| batch_sampler.steps(1, 0) == steps));
                    let ids = valid_ids(&samplers, 1, 0, 0..steps);
                    let kept = if last_batch == LastBatch::Drop { len / global * global } else { len };
                    assert_eq!(ids, whole(len, 1)[..kept as usize], "{len} {batch}x{world} {last_batch:?}");
                    assert!(
                        step(&samplers, 1, 0, steps).0.iter().all(Vec::is_empty),
                        "no step follows the last one"
                    );
                }
            }
        }
    }
}

#[test]
fn dropping_and_padding_give_full_steps_and_keeping_even_ones() {
    for (len, batch, world) in [(100, 8, 4), (33, 8, 4), (5, 8, 4), (1, 1, 8), (129, 4, 8)] {
        for last_batch in LAST_BATCHES {
            if last_batch == LastBatch::Drop && len < batch as u64 * u64::from(world) {
                continue;
            }
            let samplers = ranks(len, batch, last_batch, world);
            for number in 0..samplers[0].steps(0, 0) {
                let (all, _) = step(&samplers, 0, 0, number);
                let sizes: Vec<usize> = all.iter().map(Vec::len).collect();
                let (min, max) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                match last_batch {
                    LastBatch::Keep => {
                        assert!(max - min <= 1 && *max <= batch && *min > 0, "{sizes:?}");
                    }
                    LastBatch::Drop | LastBatch::Pad => assert_eq!((*min, *max), (batch, batch)),
                }
            }
        }
    }
}

/// Worlds, batch sizes and lengths around the multiples of a step.
fn uneven_cases() -> Vec<(u32, usize, u64)> {
    let mut cases = Vec::new();
    for world in [1, 2, 3, 4, 8] {
        for batch in [1, 2, 3, 16] {
            let global = u64::from(world) * batch as u64;
            for steps in 0..4 {
                for around in 0..=2 * u64::from(world) {
                    cases.push((world, batch, steps * global + around));
                    cases.push((world, batch, (steps * global).saturating_sub(around)));
                }
            }
        }
    }
    cases.retain(|&(.., len)| len > 0);
    cases.sort_unstable();
    cases.dedup();
    cases
}

#[test]
fn no_rank_gets_an_empty_batch_and_every_sample_comes_once_in_equal_numbers_of_steps() {
    for (world, batch, len) in uneven_cases() {
        let samplers = ranks(len, batch, LastBatch::Keep, world);
        let steps = samplers[0].steps(1, 0);
        let global = u64::from(world) * batch as u64;
        assert_eq!(steps, len.div_ceil(global), "no further step");
        assert!(samplers.iter().all(|sampler| sampler.steps(1, 0) == steps));
        let name = format!("{len} samples in batches of {batch} on {world} ranks");
        let (mut draws, mut padded) = (Vec::<u64>::new(), 0);
        for number in 0..steps {
            for sampler in &samplers {
                let (mut ids, mut of_rank) = (Vec::new(), Vec::new());
                let valid = sampler.batch(1, 0, number, &mut ids);
                sampler.draws(1, 0, number, &mut of_rank);
                assert!((1..=batch).contains(&ids.len()), "{name}: {} rows in step {number}", ids.len());
                assert!(of_rank.iter().map(|&draw| sampler.id(1, draw)).eq(ids.iter().map(|&id| Some(id))));
                draws.extend(&of_rank[..valid]);
                padded += ids.len() - valid;
            }
            assert_eq!(draws.len() as u64, samplers[0].position_after(1, 0, number), "{name}");
        }
        assert!(draws.into_iter().eq(0..len), "{name}: each sample once, in order");
        // Padding is used only if necessary: with batches of one row, or fewer samples than ranks.
        let rest = len % u64::from(world);
        let has_to_pad = (batch == 1 || len < u64::from(world)) && rest > 0;
        assert_eq!(padded as u64, if has_to_pad { u64::from(world) - rest } else { 0 }, "{name}");
        assert_eq!(samplers[0].end(1, 0), len);
    }
}

#[test]
fn a_step_that_lends_samples_to_the_last_one_is_one_row_shorter_on_some_ranks() {
    let rows = |len, batch, world| {
        let samplers = ranks(len, batch, LastBatch::Keep, world);
        let of = |number| step(&samplers, 0, 0, number).0.iter().map(Vec::len).collect();
        (0..samplers[0].steps(0, 0)).map(of).collect::<Vec<Vec<usize>>>()
    };
    assert_eq!(rows(97, 16, 2), [[16, 16], [16, 16], [16, 15], [1, 1]]);
    assert_eq!(rows(13, 3, 4), [[3, 2, 2, 2], [1, 1, 1, 1]]);
    assert_eq!(rows(16, 3, 4), [[3, 3, 3, 3], [1, 1, 1, 1]], "each rank has one");
    assert_eq!(rows(3, 3, 4), [[1, 1, 1, 1]], "the last rank gets padding");
    assert_eq!(rows(5, 1, 4), [[1, 1, 1, 1], [1, 1, 1, 1]], "three ranks get padding");
}

#[test]
fn a_run_resumes_after_every_step_also_on_another_world_and_in_another_batch_size() {
    for (world, batch, len) in uneven_cases().into_iter().filter(|(_, batch, len)| *batch < 4 && *len < 40) {
        let before = ranks(len, batch, LastBatch::Keep, world);
        for number in 0..before[0].steps(2, 0) {
            let position = before[0].position_after(2, 0, number);
            for (other, size) in [(world, batch), (1, 2), (3, 2), (5, 4)] {
                let after = ranks(len, size, LastBatch::Keep, other);
                let steps = after[0].steps(2, position);
                let mut ids = valid_ids(&before, 2, 0, 0..number + 1);
                ids.extend(valid_ids(&after, 2, position, 0..steps));
                let name = format!("{len} in {batch} x {world}, after step {number} in {size} x {other}");
                assert_eq!(ids, whole(len, 2), "{name}");
                if (other, size) == (world, batch) {
                    let all: Vec<_> = (0..before[0].steps(2, 0)).map(|at| step(&before, 2, 0, at)).collect();
                    let rest: Vec<_> = (0..steps).map(|at| step(&after, 2, position, at)).collect();
                    assert_eq!(rest, all[number as usize + 1..], "{name}: the same batches");
                }
                for rank in &after {
                    let mut ids = Vec::new();
                    assert!((0..steps).all(|at| (rank.batch(2, position, at, &mut ids), !ids.is_empty()).1));
                }
            }
        }
    }
}

#[test]
fn a_skipped_step_is_skipped_as_it_was_and_leaves_the_others() {
    for (world, batch, len) in [(2, 16, 97), (4, 3, 13), (3, 2, 20), (4, 3, 16), (4, 1, 7)] {
        let plain = ranks(len, batch, LastBatch::Keep, world);
        let steps = plain[0].steps(0, 0);
        for skipped in 0..steps {
            let mut skipping = plain.clone();
            skipping.iter_mut().for_each(|sampler| sampler.skip(0, skipped..skipped + 1).unwrap());
            let kept: Vec<_> =
                (0..steps).filter(|&at| at != skipped).map(|at| step(&plain, 0, 0, at).1).collect();
            let have: Vec<_> = (0..skipping[0].steps(0, 0)).map(|at| step(&skipping, 0, 0, at).1).collect();
            assert_eq!(have, kept, "{len} in {batch} x {world} without step {skipped}");
        }
        for at in 0..steps {
            let first = plain[0].position(0, 0, at, 0).unwrap();
            assert_eq!(plain[0].step_of(first), at, "{len} in {batch} x {world}");
            assert_eq!(plain[0].step_of(plain[0].position_after(0, 0, at) - 1), at);
        }
    }
}

#[test]
fn padding_repeats_the_beginning_of_the_epoch() {
    let ids = whole(10, 0);
    let samplers = ranks(10, 4, LastBatch::Pad, 2);
    let (all, valid) = step(&samplers, 0, 0, 1);
    assert_eq!(all.concat(), [&ids[8..10], &ids[0..6]].concat());
    assert_eq!(valid, ids[8..10]);
    // More than once when the data set is small, also after a resume.
    let samplers = ranks(3, 4, LastBatch::Pad, 2);
    let ids = whole(3, 0);
    assert_eq!(step(&samplers, 0, 0, 0).0.concat(), [&ids[..], &ids, &ids[..2]].concat());
    assert_eq!(step(&samplers, 0, 2, 0).0.concat(), [&ids[2..], &ids, &ids, &ids[..1]].concat());
}

#[test]
fn another_world_resumes_after_any_step_in_the_same_order() {
    let (len, batch) = (403, 5);
    let before = ranks(len, batch, LastBatch::Keep, 4);
    let expected = whole(len, 2);
    for number in 0..before[0].steps(2, 0) {
        let position = before[0].position_after(2, 0, number);
        for world in [1, 2, 8] {
            let after = ranks(len, batch, LastBatch::Keep, world);
            let mut ids = valid_ids(&before, 2, 0, 0..number + 1);
            assert_eq!(ids.len() as u64, position);
            ids.extend(valid_ids(&after, 2, position, 0..after[0].steps(2, position)));
            assert_eq!(ids, expected, "4 -> {world} after step {number}");
        }
    }
}

#[test]
fn dropping_a_step_larger_than_the_epoch_is_rejected() {
    let options = |batch, len| BatchSamplerOptions {
        len,
        sampler: Sampler::Shuffle,
        seed: SEED,
        batch,
        last_batch: LastBatch::Drop,
        world: World::new(0, 4).unwrap(),
    };
    let error = BatchSampler::new(options(32, 100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    for part in [
        "the batch is larger than the epoch and the last batch is dropped",
        "32 samples on 4 ranks are 128",
        "has 100",
        "take a smaller batch",
    ] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(BatchSampler::new(options(25, 100)).is_ok());
    assert!(BatchSampler::new(options(0, 100)).unwrap_err().message().contains("batch size is 0"));
    assert!(BatchSampler::new(options(1, 0)).unwrap_err().message().contains("the data set is empty"));
    let large = BatchSamplerOptions { last_batch: LastBatch::Pad, ..options(usize::MAX / 7, 100) };
    assert!(BatchSampler::new(large).unwrap_err().message().contains("above 2^63"));
    assert!(BatchSampler::new(options(usize::MAX, 100)).unwrap_err().message().contains("above 2^63"));
}

#[test]
fn positions_match_rows_and_substitutes_match_on_all_ranks() {
    let samplers = ranks(50, 4, LastBatch::Pad, 2);
    for batch_sampler in &samplers {
        let mut ids = Vec::new();
        for number in 0..batch_sampler.steps(0, 8) {
            batch_sampler.batch(0, 8, number, &mut ids);
            for (row, &id) in ids.iter().enumerate() {
                let position = batch_sampler.position(0, 8, number, row).unwrap();
                assert_eq!(batch_sampler.id(0, position), Some(id));
            }
            assert_eq!(batch_sampler.position(0, 8, number, ids.len()), None);
        }
    }
    assert_eq!(samplers[0].id(0, 50), None);
    let other = ranks(50, 1, LastBatch::Keep, 8);
    let chosen = |batch_sampler: &BatchSampler| {
        (0..50).map(|position| batch_sampler.substitute(1, position, 0)).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&samplers[0]), chosen(&other[7]));
    assert!(
        (0..50).filter(|&p| samplers[0].substitute(1, p, 0) == samplers[0].substitute(1, p, 1)).count() < 10
    );
    // Substitutes come from the sampler only: a validation sample must not get into training.
    let sampler = Sampler::subset((20..30).collect(), Sampler::Shuffle).unwrap();
    let world = World::single();
    let subset = BatchSampler::new(BatchSamplerOptions {
        len: 50,
        sampler,
        seed: 1,
        batch: 2,
        last_batch: LastBatch::Keep,
        world,
    })
    .unwrap();
    assert!((0..10).all(|position| (20..30).contains(&subset.substitute(0, position, 0))));
}

#[test]
fn skipping_steps_does_not_change_the_others() {
    let mut skipping = ranks(103, 5, LastBatch::Keep, 2);
    let plain = skipping.clone();
    for batch_sampler in &mut skipping {
        batch_sampler.skip(1, 3..5).unwrap();
        batch_sampler.skip(1, 9..u64::MAX).unwrap();
    }
    let kept: Vec<_> = [0, 1, 2, 5, 6, 7, 8].map(|number| step(&plain, 1, 0, number)).into();
    let have: Vec<_> = (0..skipping[0].steps(1, 0)).map(|number| step(&skipping, 1, 0, number)).collect();
    assert_eq!(have, kept);
    assert_eq!(skipping[0].position_after(1, 0, 2), 50, "after the skipped steps");
    assert_eq!(skipping[0].end(1, 0), 103, "after the skipped end");
    assert_eq!(valid_ids(&skipping, 0, 0, 0..11), whole(103, 0), "other epochs are complete");
    for positions in [5..5, 0..104, Range { start: 9, end: 3 }] {
        assert!(
            skipping[0]
                .skip_positions(0, positions)
                .unwrap_err()
                .message()
                .starts_with("cannot skip positions")
        );
    }
    assert!(skipping[0].skip(0, 11..12).is_err(), "step 11 does not exist");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn skipped_positions_are_removed(
        len in 20u64..200,
        batch in 1usize..6,
        world in 1u32..5,
        last_batch in prop::sample::select(&LAST_BATCHES[..]),
        cuts in prop::collection::vec((0u64..20, 1u64..12), 0..6),
        start: prop::sample::Index,
    ) {
        let mut samplers = ranks(len, batch, last_batch, world);
        let mut live: Vec<u64> = (0..len).collect();
        for (first, size) in cuts {
            let cut = first * len / 20..(first * len / 20 + size).min(len);
            live.retain(|position| !cut.contains(position));
            for batch_sampler in &mut samplers {
                batch_sampler.skip_positions(0, cut.clone()).unwrap();
            }
        }
        let start = start.index(len as usize) as u64;
        let ids = whole(len, 0);
        let left = live.iter().filter(|&&position| position >= start).map(|&position| ids[position as usize]);
        let left: Vec<u64> = left.collect();
        let global = batch * world as usize;
        let kept = if last_batch == LastBatch::Drop { left.len() / global * global } else { left.len() };
        let steps = samplers[0].steps(0, start);
        prop_assert_eq!(valid_ids(&samplers, 0, start, 0..steps), &left[..kept]);
        // A run that resumes after any step delivers the remaining samples.
        for number in 0..steps {
            let position = samplers[0].position_after(0, start, number);
            let rest = valid_ids(&samplers, 0, position, 0..samplers[0].steps(0, position));
            let before = valid_ids(&samplers, 0, start, 0..number + 1);
            prop_assert_eq!([before, rest].concat(), &left[..kept]);
        }
    }

    #[test]
    fn extreme_arguments_do_not_overflow(
        len in 1..=1u64 << 63,
        batch in 1..=usize::MAX >> 8,
        world in 1u32..300,
        epoch: u64,
        start: u64,
        number: u64,
    ) {
        // These batches do not fit in memory, so `batch` is called only for a step that does not exist.
        let world = World::new(world - 1, world).unwrap();
        for last_batch in LAST_BATCHES {
            let sampler = Sampler::Shuffle;
            let options = BatchSamplerOptions { len, sampler, seed: 1, batch, last_batch, world };
            let Ok(batch_sampler) = BatchSampler::new(options) else { continue };
            let after = batch_sampler.position_after(epoch, start, number);
            prop_assert!(after <= len.max(start));
            let position = batch_sampler.position(epoch, start, number, 0);
            prop_assert!(position.is_none_or(|position| position < len));
            let steps = batch_sampler.steps(epoch, start);
            prop_assert_eq!(batch_sampler.batch(epoch, start, steps, &mut Vec::new()), 0);
        }
    }
}
