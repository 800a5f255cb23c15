//! The guarantees of each sampler, and the arguments that it rejects.

use std::collections::{BTreeMap, BTreeSet};

use feedline_core::sampler::{MAX_LEN, custom::NO_SAMPLE};
use feedline_core::{ErrorKind, Sampler};
use proptest::prelude::*;

fn epoch(sampler: &Sampler, len: u64, seed: u64, epoch: u64) -> Vec<u64> {
    sampler.check(len).unwrap();
    let mut ids = vec![0; sampler.len(len) as usize];
    sampler.fill(len, seed, epoch, 0, &mut ids);
    ids
}

fn sorted<T: Ord>(mut ids: Vec<T>) -> Vec<T> {
    ids.sort_unstable();
    ids
}

fn labels(len: u64) -> Vec<u32> {
    (0..len as u32).map(|id| id * id % 7 % 3).collect()
}

/// Samplers of every kind over `len` samples, at least 4.
fn every_kind(len: u64) -> Vec<Sampler> {
    let weights: Vec<f64> = (0..len).map(|id| (id % 5) as f64).collect();
    vec![
        Sampler::Sequential,
        Sampler::Shuffle,
        Sampler::block(1 + len / 7, 1 + len / 3).unwrap(),
        Sampler::weighted(&weights).unwrap(),
        Sampler::weighted(&weights).unwrap().draws(2 * len).unwrap(),
        Sampler::weighted_without_replacement(&weights).unwrap(),
        Sampler::weighted_without_replacement(&weights).unwrap().draws(1).unwrap(),
        Sampler::balanced(&labels(len), 3).unwrap(),
        Sampler::bucketed(&labels(len), 3, 2).unwrap(),
        Sampler::subset((0..len).step_by(2).collect(), Sampler::Shuffle).unwrap(),
        Sampler::by_epoch([(0, Sampler::Shuffle), (1, Sampler::block(3, 5).unwrap())]).unwrap(),
        Sampler::grouped(1, Sampler::Shuffle).unwrap(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn fill_returns_any_part_of_the_epoch(
        len in 4u64..700, seed: u64, number: u64, from: prop::sample::Index, run: prop::sample::Index,
    ) {
        for sampler in every_kind(len) {
            let whole = epoch(&sampler, len, seed, number);
            let start = from.index(whole.len());
            let end = start + run.index(whole.len() - start + 1);
            let mut piece = vec![0; end - start];
            sampler.fill(len, seed, number, start as u64, &mut piece);
            prop_assert_eq!(&piece, &whole[start..end], "{:?}", sampler);
            prop_assert_eq!(sampler.id(len, seed, number, start as u64), whole[start]);
            prop_assert!(whole.iter().all(|&id| id < len));
        }
    }

    #[test]
    fn a_permutation_yields_every_sample_once(
        len in 1u64..3000,
        seed: u64,
        block in 1u64..4000,
        window in 1u64..4000,
    ) {
        let block_shuffle = Sampler::block(block, window).unwrap();
        let bucketed = Sampler::bucketed(&labels(len), block, window).unwrap();
        for sampler in [Sampler::Sequential, Sampler::Shuffle, block_shuffle, bucketed] {
            prop_assert!(sampler.is_permutation());
            let ids = sorted(epoch(&sampler, len, seed, 3));
            prop_assert_eq!(ids, (0..len).collect::<Vec<_>>(), "{:?}", sampler);
        }
    }
}

#[test]
fn random_samplers_depend_only_on_seed_and_epoch() {
    for sampler in every_kind(500) {
        let first = epoch(&sampler, 500, 7, 0);
        assert_eq!(first, epoch(&sampler.clone(), 500, 7, 0));
        if matches!(sampler, Sampler::Sequential) {
            continue;
        }
        assert_ne!(first, epoch(&sampler, 500, 7, 1), "{sampler:?} is the same in the next epoch");
        assert_ne!(first, epoch(&sampler, 500, 8, 0), "{sampler:?} is the same under another seed");
    }
}

/// Batches of 8 from buckets of 32 of 805 samples: a bucket spans a range of lengths, the batches are
/// shuffled, and the short batch of 5 comes last, with other lengths in each epoch.
#[test]
fn a_bucketed_batch_has_similar_lengths_and_other_samples_in_every_epoch() {
    let lengths: Vec<u32> = (0..805).map(|id| id * 7 % 805).collect();
    let sampler = Sampler::bucketed(&lengths, 8, 4).unwrap();
    let of = |number| -> Vec<Vec<u32>> {
        let ids = epoch(&sampler, 805, 7, number);
        ids.chunks(8).map(|ids| ids.iter().map(|&id| lengths[id as usize]).collect()).collect()
    };
    let mut short = BTreeSet::new();
    for number in 0..5 {
        let batches = of(number);
        assert_eq!((batches.len(), batches[100].len()), (101, 5));
        for batch in &batches {
            let (min, max) = (batch.iter().min().unwrap(), batch.iter().max().unwrap());
            assert!(max - min < 32 + 5, "{batch:?}");
        }
        short.insert(batches[100].iter().max().copied());
        let ascending = batches.windows(2).filter(|two| two[0][0] < two[1][0]).count();
        assert!((30..70).contains(&ascending), "{ascending} batches are longer than the one before");
    }
    assert!(short.len() >= 4, "{short:?}");
    let sets = |number| of(number).into_iter().map(sorted).collect::<BTreeSet<_>>();
    assert!(sets(0).intersection(&sets(1)).count() < 5);
}

#[test]
fn a_window_touches_few_blocks_and_blocks_are_shuffled() {
    let (len, block, window) = (10_007, 100, 250);
    let ids = epoch(&Sampler::block(block, window).unwrap(), len, 7, 0);
    for (number, part) in ids.chunks(window as usize).enumerate() {
        let blocks: BTreeSet<u64> = part.iter().map(|id| id / block).collect();
        assert!(blocks.len() as u64 <= window / block + 2, "window {number} touches {blocks:?}");
        assert!(
            part.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 25,
            "window {number} is not shuffled"
        );
    }
    let firsts: Vec<u64> = ids.chunks(block as usize).map(|part| part[0] / block).collect();
    assert!(firsts.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 10, "{firsts:?}");
    // A window of 1 does not split blocks.
    let ids = epoch(&Sampler::block(block, 1).unwrap(), len, 7, 0);
    let starts = ids.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(starts <= 100, "{starts} breaks in 101 blocks");
}

#[test]
fn many_blocks_in_one_call_are_those_of_single_positions() {
    for (len, block, window) in [(10_007, 100, 250), (1000, 3, 1), (777, 2, 1000)] {
        let sampler = Sampler::block(block, window).unwrap();
        let mut ids = vec![0; len as usize];
        sampler.fill(len, 7, 1, 0, &mut ids);
        for (position, &id) in (0..).zip(&ids) {
            let mut one = [0];
            sampler.fill(len, 7, 1, position, &mut one);
            assert_eq!(one, [id], "position {position} of {len} in blocks of {block}");
        }
    }
}

/// The positions of single samples over 4000 epochs, in 25 parts of the epoch: chi-square in its standard
/// deviations, at most 4 for samples that are as likely in each part.
#[test]
fn a_block_shuffle_puts_every_sample_anywhere_as_a_shuffle_does() {
    let (len, epochs, parts) = (1000, 4000, 25);
    let deviations = |sampler: &Sampler| {
        let mut counts = vec![vec![0u64; parts]; len as usize];
        let mut apart = 0.0;
        for number in 0..epochs {
            let mut places = vec![0; len as usize];
            for (place, id) in epoch(sampler, len, 5, number).into_iter().enumerate() {
                counts[id as usize][place * parts / len as usize] += 1;
                places[id as usize] = place;
            }
            apart += places.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>();
        }
        let (mean, freedom) = (epochs as f64 / parts as f64, parts as f64 - 1.0);
        let chi =
            |counts: &Vec<u64>| counts.iter().map(|&count| (count as f64 - mean).powi(2) / mean).sum::<f64>();
        let deviation = |counts: &Vec<u64>| (chi(counts) - freedom) / (2.0 * freedom).sqrt();
        let all: Vec<f64> = counts.iter().map(deviation).collect();
        let largest = all.iter().copied().fold(f64::MIN, f64::max);
        (all.iter().sum::<f64>() / all.len() as f64, largest, apart / (epochs * (len - 1)) as f64)
    };
    // By chance, the largest deviation of 1000 samples is about 4.5, and the mean is within 0.1.
    let block = Sampler::block(20, 80).unwrap();
    let [(mean, largest, apart), (block_mean, block_largest, block_apart)] =
        [&Sampler::Shuffle, &block].map(deviations);
    assert!(mean.abs() < 0.15 && largest < 7.0, "shuffle: mean {mean:.3}, largest {largest:.2}");
    assert!(block_mean.abs() < 0.15 && block_largest < 7.0, "blocks: {block_mean:.3}, {block_largest:.2}");
    // The limit of a block shuffle: neighbours of a block stay within a window, instead of a third of the
    // epoch apart.
    assert!((apart - 333.0).abs() < 5.0 && block_apart < 60.0, "{apart} and {block_apart} apart");
}

#[test]
fn weighted_draws_are_proportional_to_the_weights() {
    let weights = [0.0, 1.0, 2.0, 3.0, 4.0, 0.0];
    let draws = 100_000;
    let ids = epoch(&Sampler::weighted(&weights).unwrap().draws(draws).unwrap(), 6, 7, 0);
    for (id, weight) in (0..).zip(weights) {
        let have = ids.iter().filter(|&&drawn| drawn == id).count() as f64;
        let (mean, spread) = (draws as f64 * weight / 10.0, (draws as f64 * weight / 10.0).sqrt());
        assert!((have - mean).abs() <= 4.0 * spread, "sample {id}: {have} draws, not {mean}");
    }
}

#[test]
fn draws_without_replacement_do_not_repeat_and_follow_the_weights() {
    let weights = [4.0, 0.0, 2.0, 1.0, 1.0];
    let sampler = Sampler::weighted_without_replacement(&weights).unwrap();
    let (mut first, mut pairs, epochs) = (BTreeMap::new(), BTreeMap::new(), 40_000);
    for number in 0..epochs {
        let ids = epoch(&sampler, 5, 7, number);
        assert_eq!(sorted(ids.clone()), [0, 2, 3, 4]);
        *first.entry(ids[0]).or_insert(0u32) += 1;
        *pairs.entry((ids[0], ids[1])).or_insert(0u32) += 1;
    }
    let near = |have: u32, probability: f64| {
        let mean = epochs as f64 * probability;
        assert!((f64::from(have) - mean).abs() < 4.0 * mean.sqrt(), "{have}, not {mean}");
    };
    near(first[&0], 0.5);
    near(first[&2], 0.25);
    near(first[&3], 0.125);
    // As if drawn one by one: after sample 0, sample 2 has 2 of the remaining weight of 4.
    near(pairs[&(0, 2)], 0.5 * 0.5);
    near(pairs[&(2, 0)], 0.25 * 4.0 / 6.0);
    let few = epoch(&sampler.clone().draws(2).unwrap(), 5, 7, 0);
    assert_eq!(few, epoch(&sampler, 5, 7, 0)[..2], "fewer draws are a prefix of more draws");
}

#[test]
fn balanced_rounds_contain_each_class_and_passes_each_member() {
    let labels = [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2];
    let sampler = Sampler::balanced(&labels, 3).unwrap();
    assert_eq!(sampler.len(11), 21, "three classes, the largest has 7");
    let ids = epoch(&sampler, 11, 7, 0);
    for round in ids.chunks(3) {
        let classes: BTreeSet<u32> = round.iter().map(|&id| labels[id as usize]).collect();
        assert_eq!(classes.len(), 3, "{round:?}");
    }
    let of = |class| ids.iter().copied().filter(|&id| labels[id as usize] == class).collect::<Vec<_>>();
    assert_eq!(sorted(of(0)), [0, 1, 2, 3, 4, 5, 6]);
    for pass in of(1).chunks_exact(3) {
        assert_eq!(sorted(pass.to_vec()), [7, 8, 9]);
    }
    assert_eq!(of(2), [10; 7]);
    // Each pass has another order.
    let sampler = Sampler::balanced(&[0; 10], 1).unwrap().draws(30).unwrap();
    let ids = epoch(&sampler, 10, 7, 0);
    assert!(ids[..10] != ids[10..20] && ids[10..20] != ids[20..]);
}

#[test]
fn a_subset_yields_its_ids_in_the_order_of_the_inner_sampler() {
    let ids = vec![90, 5, 40, 5];
    let listed = Sampler::subset(ids.clone(), Sampler::Sequential).unwrap();
    assert_eq!(epoch(&listed, 100, 7, 0), ids);
    let shuffled = Sampler::subset(ids.clone(), Sampler::Shuffle).unwrap();
    assert_eq!(sorted(epoch(&shuffled, 100, 7, 0)), sorted(ids.clone()));
    let weighted = Sampler::subset(ids, Sampler::weighted(&[0.0, 0.0, 1.0, 0.0]).unwrap()).unwrap();
    assert_eq!(epoch(&weighted, 100, 7, 0), [40; 4]);
}

#[test]
fn invalid_arguments_are_rejected_with_the_index() {
    let cases = [
        (Sampler::block(0, 5).map(drop), "the block size is 0"),
        (Sampler::block(5, 0).map(drop), "the window size is 0"),
        (
            Sampler::weighted(&[1.0, -0.5]).map(drop),
            "weight 1 is -0.5: weights must be finite and not negative",
        ),
        (Sampler::weighted(&[1.0, 2.0, f64::NAN]).map(drop), "weight 2 is NaN"),
        (Sampler::weighted(&[f64::INFINITY]).map(drop), "weight 0 is inf"),
        (Sampler::weighted(&[0.0, 0.0]).map(drop), "all 2 weights are zero"),
        (Sampler::weighted_without_replacement(&[1.0, -0.5]).map(drop), "weight 1 is -0.5"),
        (Sampler::weighted_without_replacement(&[f64::NAN]).map(drop), "weight 0 is NaN"),
        (Sampler::weighted_without_replacement(&[1.0, f64::NEG_INFINITY]).map(drop), "weight 1 is -inf"),
        (Sampler::weighted_without_replacement(&[0.0]).map(drop), "all 1 weights are zero"),
        (Sampler::weighted(&[1.0, 1.0]).and_then(|sampler| sampler.check(3)), "2 weights for 3 samples"),
        (
            Sampler::weighted_without_replacement(&[1.0, 1.0]).and_then(|sampler| sampler.check(1)),
            "2 weights for 1 samples",
        ),
        (Sampler::bucketed(&[1, 1], 0, 1).map(drop), "the batch size is 0"),
        (Sampler::bucketed(&[1, 1], 1, 0).map(drop), "the number of batches per bucket is 0"),
        (Sampler::bucketed(&[1, 1], 1, 1).and_then(|sampler| sampler.check(3)), "2 lengths for 3 samples"),
        (Sampler::balanced(&[0, 1], 2).and_then(|sampler| sampler.check(3)), "2 labels for 3 samples"),
        (Sampler::balanced(&[0, 1, 3], 3).map(drop), "label 2 is 3: with 3 classes, labels are below 3"),
        (Sampler::balanced(&[0, 2, 2], 3).map(drop), "class 1 has no samples"),
        (Sampler::balanced(&[0, 0], u32::MAX).map(drop), "some class has no samples"),
        (Sampler::balanced(&[], 0).map(drop), "0 classes"),
        (Sampler::subset(vec![], Sampler::Shuffle).map(drop), "lists no ids"),
        (
            Sampler::subset(vec![1, 99, 100], Sampler::Shuffle).and_then(|sampler| sampler.check(100)),
            "id 2 of the subset is 100",
        ),
        (
            Sampler::subset(vec![1, 2], Sampler::weighted(&[1.0]).unwrap())
                .and_then(|sampler| sampler.check(100)),
            "1 weights for 2 samples",
        ),
        (Sampler::Shuffle.check(0), "the data set is empty"),
        (Sampler::Shuffle.check(MAX_LEN + 1), "the maximum is 2^63"),
        (Sampler::Shuffle.draws(5).map(drop), "draws are for weighted and balanced"),
        (Sampler::weighted(&[1.0]).unwrap().draws(0).map(drop), "0 draws per epoch"),
        (
            Sampler::weighted_without_replacement(&[1.0, 0.0]).unwrap().draws(2).map(drop),
            "2 draws without replacement from 1 samples",
        ),
    ];
    for (result, part) in cases {
        let error = result.expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(part), "{error}\nlacks: {part}");
    }
}

#[test]
fn digests_distinguish_samplers() {
    let mut samplers = every_kind(10);
    samplers.extend([
        Sampler::block(2, 5).unwrap(),
        Sampler::block(5, 2).unwrap(),
        Sampler::weighted(&[2.0; 10]).unwrap(),
        Sampler::weighted_without_replacement(&[2.0; 10]).unwrap(),
        Sampler::balanced(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 2).unwrap(),
        Sampler::balanced(&[0, 1, 0, 1, 0, 1, 0, 1, 1, 0], 2).unwrap(),
        Sampler::subset(vec![1, 2], Sampler::Shuffle).unwrap(),
        Sampler::subset(vec![2, 1], Sampler::Shuffle).unwrap(),
        Sampler::subset(vec![2, 1], Sampler::Sequential).unwrap(),
    ]);
    let digests: BTreeSet<u64> = samplers.iter().map(|sampler| sampler.digest(10)).collect();
    assert_eq!(digests.len(), samplers.len());
    assert_ne!(Sampler::Shuffle.digest(10), Sampler::Shuffle.digest(11));
}

#[test]
fn an_epoch_has_the_sampler_of_its_span() {
    let weights = [1.0, 0.0, 1.0, 0.0];
    let easy = || Sampler::weighted(&weights).unwrap();
    let sampler = Sampler::by_epoch([(0, easy()), (3, Sampler::Shuffle), (5, Sampler::Sequential)]).unwrap();
    for number in 0..8 {
        let of = if number < 3 {
            easy()
        } else {
            [Sampler::Shuffle, Sampler::Sequential][usize::from(number > 4)].clone()
        };
        assert_eq!(epoch(&sampler, 4, 9, number), epoch(&of, 4, 9, number), "epoch {number}");
    }
    assert!(sampler.repeats() && !sampler.is_permutation());
    let spans = |at| Sampler::by_epoch([(0, Sampler::Sequential), (at, Sampler::Shuffle)]).unwrap();
    assert!(spans(1).is_permutation() && spans(1).digest(4) != spans(2).digest(4));
    assert_eq!(format!("{:?}", spans(2)), "ByEpoch(Sequential from epoch 0, Shuffle from epoch 2)");
    let bucketed = Sampler::bucketed(&[1, 2, 3, 4], 2, 1).unwrap();
    let bucketed = Sampler::by_epoch([(0, Sampler::Shuffle), (1, bucketed)]).unwrap();
    assert_eq!(bucketed.bucketed_batch(), Some(2));
    for (spans, why) in [
        (vec![], "the first sampler of by_epoch is not for epoch 0"),
        (vec![(1, Sampler::Shuffle)], "the first sampler of by_epoch is not for epoch 0"),
        (
            vec![(0, Sampler::Shuffle), (2, Sampler::Shuffle), (2, Sampler::Shuffle)],
            "from epoch 2 after one from epoch 2",
        ),
    ] {
        let error = Sampler::by_epoch(spans).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(why), "{error}");
    }
    let uneven = Sampler::by_epoch([(0, easy().draws(3).unwrap()), (4, Sampler::Shuffle)]).unwrap();
    let error = uneven.check(4).unwrap_err().to_string();
    assert!(
        error
            .contains("from epoch 4 has 4 samples per epoch, and that from epoch 0 has 3: set both by draws")
    );
    assert!(spans(1).check(0).is_err() && sampler.check(5).is_err(), "each is checked");
}

#[test]
fn a_custom_sampler_has_the_order_of_its_function_and_the_digest_of_its_name() {
    let reversed = |name: &str, draws| Sampler::custom(name, draws, |epoch, at| 9 - at + epoch).unwrap();
    let sampler = reversed("reversed", 8);
    assert_eq!(epoch(&sampler, 10, 1, 0), [9, 8, 7, 6, 5, 4, 3, 2]);
    let mut part = [0; 2];
    sampler.fill(10, 1, 0, 3, &mut part);
    assert_eq!(part, [6, 5]);
    assert!(sampler.repeats() && !sampler.is_permutation());
    assert_eq!(format!("{sampler:?}"), "Custom(\"reversed\", 8 samples per epoch)");
    let digests = [sampler, reversed("Reversed", 8), reversed("reversed", 7)].map(|one| one.digest(10));
    assert_eq!(BTreeSet::from(digests).len(), 3);
    assert_eq!(digests[0], reversed("reversed", 8).digest(10));
    for (name, draws) in [("", 1), ("none", 0), ("many", MAX_LEN + 1)] {
        assert_eq!(Sampler::custom(name, draws, |_, at| at).unwrap_err().kind(), ErrorKind::Config);
    }
}

/// The loader refuses them. They must not index anything before.
#[test]
fn ids_that_a_set_does_not_have_and_panics_become_no_sample() {
    let beyond = Sampler::custom("beyond", 4, |_, at| if at == 2 { 10 } else { at }).unwrap();
    assert_eq!(epoch(&beyond, 10, 1, 0), [0, 1, NO_SAMPLE, 3]);
    let listed = Sampler::subset(vec![7, 8, 9], beyond).unwrap();
    assert_eq!(epoch(&listed, 10, 1, 0), [7, 8, NO_SAMPLE, NO_SAMPLE]);
    let panics = Sampler::custom("panics", 3, |_, at| [4_u64, 5][at as usize]).unwrap();
    assert_eq!(epoch(&panics, 10, 1, 0), [4, 5, NO_SAMPLE]);
}
