use feedline_core::Dataset;

use super::*;

#[test]
fn parts_are_disjoint_cover_the_set_and_depend_on_the_seed_only() {
    for len in [0, 1, 2, 7, 100, 1001] {
        for seed in 0..3 {
            let split = || Numbered::new(0, len).split([0.7, 0.2, 0.1], seed).expect("a split");
            let parts = split();
            let mut all: Vec<u64> = parts.iter().flat_map(|part| part.ids().to_vec()).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..len), "{len} samples, seed {seed}");
            assert!(parts.iter().all(|part| part.ids().is_sorted()));
            assert_eq!(parts.map(|part| part.ids().to_vec()), split().map(|part| part.ids().to_vec()));
        }
    }
    let of_seed = |seed| Numbered::new(0, 100).split([0.5, 0.5], seed).expect("a split")[0].ids().to_vec();
    assert_ne!(of_seed(0), of_seed(1));
    // Random, not the first half: about a quarter of all samples is in the first half of both.
    let low = of_seed(0).iter().filter(|&&id| id < 50).count();
    assert!((10..40).contains(&low), "{low} of 50");
}

#[test]
fn parts_have_their_shares_and_keep_the_contract() {
    let inner = Numbered::new(0, 1000);
    let parts = inner.split([0.25, 0.0, 0.75], 4).expect("a split");
    assert_eq!(parts.each_ref().map(|part| part.len()), [250, 0, 750]);
    assert_keeps_the_contract(&parts[0]);
    assert_fingerprints_differ([&parts[0], &parts[1], &parts[2]]);
    let tenths = Numbered::new(0, 10).split([0.1; 10], 4).expect("tenths that do not add up to exactly 1");
    assert!(tenths.iter().all(|part| part.len() == 1));
}

#[test]
fn fractions_that_do_not_add_up_are_refused() {
    let set = || Numbered::new(0, 10);
    for fractions in [[0.5, 0.4], [1.5, -0.5], [f64::NAN, 0.5], [0.6, 0.6]] {
        assert!(refused(set().split(fractions, 0)).contains("together they are 1"));
    }
    assert!(refused(set().split([], 0)).contains("together they are 1"));
}
