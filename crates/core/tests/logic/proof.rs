//! The proof must detect a single duplicate, loss or replacement.

use feedline_core::{
    BatchProof, BatchSampler, BatchSamplerOptions, ErrorKind, LastBatch, Proof, Sampler, World,
};
use proptest::prelude::*;

fn batch_sampler(
    sampler: Sampler,
    len: u64,
    batch: usize,
    last_batch: LastBatch,
    rank: u32,
    world: u32,
) -> BatchSampler {
    let world = World::new(rank, world).unwrap();
    BatchSampler::new(BatchSamplerOptions { len, sampler, seed: 9, batch, last_batch, world }).unwrap()
}

fn samplers(len: u64) -> Vec<Sampler> {
    let weights: Vec<f64> = (0..len).map(|id| (id % 3) as f64).collect();
    let labels: Vec<u32> = (0..len as u32).map(|id| id % 4).collect();
    vec![
        Sampler::Sequential,
        Sampler::Shuffle,
        Sampler::block(7, 20).unwrap(),
        Sampler::weighted(&weights).unwrap(),
        Sampler::weighted_without_replacement(&weights).unwrap(),
        Sampler::balanced(&labels, 4).unwrap(),
        Sampler::subset((0..len / 2).collect(), Sampler::Shuffle).unwrap(),
    ]
}

#[test]
fn the_merged_proof_of_all_ranks_is_the_expected_one() {
    for sampler in samplers(101) {
        for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
            for world in [1, 2, 4, 8] {
                let mut all = Proof::default();
                let first = batch_sampler(sampler.clone(), 101, 4, last_batch, 0, world);
                for rank in 0..world {
                    let batch_sampler = batch_sampler(sampler.clone(), 101, 4, last_batch, rank, world);
                    let (mut proof, mut ids) = (Proof::default(), Vec::new());
                    for epoch in 2..5 {
                        for step in 0..batch_sampler.steps(epoch, 0) {
                            let valid = batch_sampler.batch(epoch, 0, step, &mut ids);
                            proof.add_all(epoch, &ids[..valid]);
                        }
                    }
                    all.merge(&proof);
                }
                let expected = Proof::expected(&first, 2..5);
                assert!(all.check(&expected).is_ok(), "{sampler:?} {last_batch:?} {world}");
                assert!(all.check(&Proof::expected(&first, 3..6)).is_err(), "other epochs have another sum");
            }
        }
    }
}

#[test]
fn the_expected_proof_excludes_skipped_samples() {
    let mut batch_sampler = batch_sampler(Sampler::Shuffle, 100, 5, LastBatch::Keep, 0, 1);
    batch_sampler.skip(0, 3..7).unwrap();
    let (mut proof, mut ids) = (Proof::default(), Vec::new());
    for step in 0..batch_sampler.steps(0, 0) {
        let valid = batch_sampler.batch(0, 0, step, &mut ids);
        proof.add_all(0, &ids[..valid]);
    }
    assert_eq!(proof.count(), 80);
    assert!(proof.check(&Proof::expected(&batch_sampler, 0..1)).is_ok());
}

#[test]
fn the_expected_proof_is_the_sum_over_all_samples() {
    for len in [1, 511, 512, 513, 5000] {
        let batch_sampler = batch_sampler(Sampler::Shuffle, len, 4, LastBatch::Keep, 0, 1);
        let mut one_by_one = Proof::default();
        (0..len).for_each(|id| one_by_one.add(6, id));
        assert_eq!(Proof::expected(&batch_sampler, 6..7), one_by_one);
        let mut by_parts = Proof::expected_part(&batch_sampler, 6, 0..len / 3);
        by_parts.merge(&Proof::expected_part(&batch_sampler, 6, len / 3..len));
        assert_eq!(by_parts, one_by_one);
    }
}

#[test]
fn the_expected_proof_can_be_added_up_from_parts_of_two_worlds() {
    let (four, two) = (
        batch_sampler(Sampler::Shuffle, 103, 5, LastBatch::Drop, 0, 4),
        batch_sampler(Sampler::Shuffle, 103, 5, LastBatch::Drop, 0, 2),
    );
    let change = four.position_after(0, 0, 1);
    let mut expected = Proof::expected_part(&four, 0, 0..change);
    expected.merge(&Proof::expected_part(&two, 0, change..two.end(0, change)));
    assert_eq!((change, two.end(0, change), expected.count()), (40, 100, 100));
    assert_eq!(expected, Proof::expected_part(&four, 0, 0..100));
}

#[test]
fn the_error_says_how_many_samples_are_wrong() {
    let mut expected = Proof::default();
    expected.add_all(0, &[1, 2, 3]);
    let message = |ids: &[u64]| {
        let mut proof = Proof::default();
        proof.add_all(0, ids);
        let error = proof.check(&expected).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        error.message().to_owned()
    };
    assert_eq!(message(&[1, 3]), "1 of 3 samples were not delivered");
    assert_eq!(message(&[1, 3, 2, 2]), "1 more samples were delivered than the 3 expected");
    let replaced = "3 samples were delivered, as many as expected, but not the expected ones";
    assert!(message(&[1, 3, 3]).starts_with(replaced));
}

#[test]
fn an_exchange_between_epochs_is_detected() {
    let (mut right, mut wrong) = (Proof::default(), Proof::default());
    right.add_all(0, &[1, 2, 3]);
    right.add_all(1, &[4, 5, 6]);
    wrong.add_all(0, &[1, 2, 6]);
    wrong.add_all(1, &[4, 5, 3]);
    assert!(wrong.check(&right).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_duplicate_loss_or_replacement_is_detected(
        ids in prop::collection::hash_set(any::<u64>(), 2..200),
        epoch: u64,
        at: prop::sample::Index,
        by: prop::sample::Index,
    ) {
        let ids: Vec<u64> = ids.into_iter().collect();
        let (at, by) = (at.index(ids.len()), by.index(ids.len()));
        let proof_of = |ids: &[u64]| {
            let mut proof = Proof::default();
            proof.add_all(epoch, ids);
            proof
        };
        let right = proof_of(&ids);

        let mut more = ids.clone();
        more.push(ids[at]);
        prop_assert!(proof_of(&more).check(&right).is_err());
        let mut fewer = ids.clone();
        fewer.swap_remove(at);
        prop_assert!(proof_of(&fewer).check(&right).is_err());
        let mut twice = ids.clone();
        twice[at] = ids[by];
        prop_assert_eq!(proof_of(&twice).check(&right).is_err(), at != by);

        let mut shuffled = ids.clone();
        shuffled.swap(at, by);
        prop_assert!(proof_of(&shuffled).check(&right).is_ok());
        let order = |ids: &[u64]| BatchProof::of(0, ids).order();
        prop_assert_eq!(order(&ids) == order(&shuffled), at == by);
    }
}

#[test]
fn proofs_survive_json() {
    let mut proof = Proof::default();
    proof.add_all(u64::MAX, &[u64::MAX, 0, 1]);
    let text = serde_json::to_string(&proof).unwrap();
    assert_eq!(serde_json::from_str::<Proof>(&text).unwrap(), proof);
    assert_eq!(serde_json::to_string(&Proof::default()).unwrap(), r#"{"count":0,"sum":"0x0"}"#);
    for torn in [r#"{"count":0,"sum":"12"}"#, r#"{"count":0,"sum":"0xzz"}"#, r#"{"count":0,"sum":0}"#] {
        assert!(serde_json::from_str::<Proof>(torn).is_err(), "{torn}");
    }
}
