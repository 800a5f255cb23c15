use feedline_core::Dataset;

use super::*;

#[test]
fn a_subset_keeps_the_contract_and_reads_in_bulk() {
    let inner = Numbered::new(0, 50);
    let subset = inner.clone().subset([40, 2, 2, 49]).expect("a subset");
    assert_keeps_the_contract(&subset);
    inner.groups();
    let seen = read(&subset, &[3, 0, 1, 2], 0);
    assert_eq!(numbers(&seen), [49, 40, 2, 2]);
    assert_draws_differ(&seen);
    assert_eq!(inner.groups(), [[49, 40, 2, 2]]);
    let (good, why) = read_until(&inner.failing(2).subset([40, 2]).expect("a subset"), &[0, 1]);
    assert_eq!((good.len(), why.as_str()), (1, "below the subset: planned failure of 2 (sample 2)"));
}

#[test]
fn a_subset_may_be_empty_but_not_list_what_is_not_there() {
    let none = Numbered::new(0, 9).subset([]).expect("a subset");
    assert_eq!(none.len(), 0);
    let (seen, why) = read_until(&none, &[0]);
    assert_eq!((seen.len(), why.as_str()), (0, "no sample 0: there are 0"));
    assert_eq!(refused(Numbered::new(0, 9).subset([1, 9])), "a subset lists sample 9: the data set has 9");
}

#[test]
fn the_fingerprint_covers_the_ids_and_their_order() {
    let of = |ids: &[u64]| Numbered::new(0, 9).subset(ids).expect("a subset");
    assert_fingerprints_differ([&Numbered::new(0, 9), &of(&[]), &of(&[1, 2]), &of(&[2, 1]), &of(&[1, 2, 3])]);
}
