//! Groups of consecutive samples: whole and together in every order, on any number of ranks, after any step.

use feedline_core::compose::InMemory;
use feedline_core::{BatchSampler, BatchSamplerOptions, Dataset, LastBatch, Sampler, World};

fn batches(len: u64, size: u64, batch: usize, last_batch: LastBatch, rank: u32, ranks: u32) -> BatchSampler {
    let sampler = Sampler::grouped(size, Sampler::Shuffle).unwrap();
    let world = World::new(rank, ranks).unwrap();
    BatchSampler::new(BatchSamplerOptions { len, sampler, seed: 7, batch, last_batch, world }).unwrap()
}

#[test]
fn groups_are_whole_on_one_rank_and_come_once_from_every_step_on() {
    for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        for (groups, size, per_batch) in [(13, 4, 2), (24, 3, 1), (40, 2, 4), (5, 8, 1)] {
            let len = groups * size;
            for ranks in [1, 2, 3, 8] {
                let batch = (size * per_batch) as usize;
                if last_batch == LastBatch::Drop && batch as u64 * u64::from(ranks) > len {
                    continue;
                }
                let of: Vec<_> =
                    (0..ranks).map(|rank| batches(len, size, batch, last_batch, rank, ranks)).collect();
                let (steps, mut start, mut all, mut ids) = (of[0].steps(1, 0), 0, Vec::new(), Vec::new());
                for number in 0..steps {
                    let mut draws = Vec::new();
                    for sampler in &of {
                        assert_eq!(sampler.steps(1, start), steps - number, "resumed before each step");
                        let valid = sampler.batch(1, start, 0, &mut ids);
                        assert!(!ids.is_empty());
                        let can_share = per_batch > 1 && groups >= u64::from(ranks);
                        if last_batch == LastBatch::Keep && can_share {
                            assert_eq!(valid, ids.len(), "each rank has a group of its own");
                        }
                        for group in ids.chunks(size as usize) {
                            let first = group[0];
                            assert!(first.is_multiple_of(size), "begins with the first of a group");
                            assert!(group.iter().copied().eq(first..first + size), "{group:?}");
                        }
                        all.extend_from_slice(&ids[..valid]);
                        sampler.draws(1, start, 0, &mut draws);
                        assert_eq!(draws.len(), ids.len());
                    }
                    start = of[0].position_after(1, start, 0);
                    assert!(start.is_multiple_of(size));
                }
                let whole = batches(len, size, len as usize, LastBatch::Keep, 0, 1);
                whole.batch(1, 0, 0, &mut ids);
                let kept = if last_batch == LastBatch::Drop { all.len() } else { len as usize };
                assert_eq!(all, ids[..kept], "{groups} groups of {size}, {ranks} ranks, {last_batch:?}");
            }
        }
    }
}

#[test]
fn a_piece_of_an_epoch_is_that_of_the_whole_also_within_a_group() {
    let sampler = Sampler::grouped(5, Sampler::Shuffle).unwrap();
    let mut whole = vec![0; 35];
    sampler.fill(35, 7, 2, 0, &mut whole);
    for start in 0..35 {
        for end in start..=35 {
            let mut piece = vec![0; end - start];
            sampler.fill(35, 7, 2, start as u64, &mut piece);
            assert_eq!(piece, whole[start..end]);
        }
    }
}

#[test]
fn the_substitutes_of_a_group_come_from_one_other_group() {
    let sampler = batches(40, 4, 8, LastBatch::Keep, 0, 1);
    for group in 0..10 {
        let of: Vec<_> = (0..4).map(|row| sampler.substitute(0, group * 4 + row, 0)).collect();
        assert!(of[0].is_multiple_of(4) && of.iter().copied().eq(of[0]..of[0] + 4), "{of:?}");
    }
}

#[test]
fn what_divides_a_group_is_refused() {
    let with = |len, batch| {
        let sampler = Sampler::grouped(4, Sampler::Shuffle).unwrap();
        let world = World::single();
        let last_batch = LastBatch::Keep;
        BatchSampler::new(BatchSamplerOptions { len, sampler, seed: 7, batch, last_batch, world })
    };
    let said = |refused: feedline_core::Result<BatchSampler>| refused.unwrap_err().to_string();
    assert!(said(with(40, 6)).contains("batch size is 6, and groups of 4 samples stay together"));
    assert!(said(with(42, 8)).contains("42 samples are no groups of 4: the last group has 2"));
    let skipped = with(40, 8).unwrap().skip_positions(0, 2..4).unwrap_err();
    assert!(skipped.to_string().contains("divide a group of 4"), "{skipped}");
    with(40, 8).unwrap().skip(0, 1..2).unwrap();
    let twice = Sampler::grouped(2, Sampler::grouped(4, Sampler::Shuffle).unwrap()).unwrap_err();
    assert!(twice.to_string().contains("group the samples once"), "{twice}");
    let spans = [(0, Sampler::grouped(2, Sampler::Shuffle).unwrap()), (1, Sampler::Shuffle)];
    let mixed = Sampler::by_epoch(spans).unwrap().check(40).unwrap_err();
    assert!(mixed.to_string().contains("groups of one size"), "{mixed}");
}

#[test]
fn a_repeated_set_has_each_sample_in_a_row_and_is_repeated_once() {
    let once = || InMemory::new().field("x", [], [5_u8, 6]).unwrap();
    let set = once().repeated(3).unwrap();
    let of = |id| set.storage().slice(id, 0).map(<[u8]>::to_vec);
    assert_eq!((0..6).map(|id| of(id).unwrap()[0]).collect::<Vec<_>>(), [5, 5, 5, 6, 6, 6]);
    assert_ne!(set.fingerprint(), once().repeat(3).unwrap().fingerprint());
    assert_eq!([set.about().copies, once().repeat(3).unwrap().about().copies], [3, 0]);
    assert!(set.repeated(2).unwrap_err().to_string().contains("repeated 3 times already"));
    assert!(once().repeated(0).unwrap_err().to_string().contains("at least 1 copy"));
}
