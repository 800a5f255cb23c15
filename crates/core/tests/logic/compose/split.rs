use feedline_core::{Dataset, compose};

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
    // The drawn half is random: about half of its samples have low ids.
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

#[test]
fn folds_cover_the_set_once_and_have_their_share_of_each_label() {
    for (len, count) in [(2, 2), (7, 3), (100, 5), (101, 10)] {
        let labels: Vec<u32> =
            (0..len as u32).map(|id| u32::from(id % 4 == 0) + u32::from(id % 20 == 7)).collect();
        for labels in [None, Some(&labels[..])] {
            let folds = || Numbered::new(0, len).folds(count, labels, 5).expect("folds");
            let mut all = Vec::new();
            for [train, validate] in folds() {
                let mut both = [train.ids(), validate.ids()].concat();
                assert!(train.ids().is_sorted() && validate.ids().is_sorted());
                both.sort_unstable();
                assert!(both.iter().copied().eq(0..len), "{len} samples, {count} folds");
                all.extend_from_slice(validate.ids());
                for label in 0..3 {
                    let Some(labels) = labels else { break };
                    let share = |ids: &[u64]| ids.iter().filter(|&&id| labels[id as usize] == label).count();
                    let mean = (share(&both) / count, share(&both).div_ceil(count));
                    assert!(
                        (mean.0..=mean.1).contains(&share(validate.ids())),
                        "label {label}: {len}, {count}"
                    );
                }
            }
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..len));
            let ids = |folds: Vec<[compose::Subset; 2]>| {
                folds.into_iter().map(|[_, val]| val.ids().to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(ids(folds()), ids(folds()));
            let sizes: Vec<_> = ids(folds()).iter().map(Vec::len).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }
    let of_seed = |seed| Numbered::new(0, 100).folds(2, None, seed).expect("folds")[0][1].ids().to_vec();
    assert_ne!(of_seed(0), of_seed(1));
    let set = || Numbered::new(0, 10);
    assert!(refused(set().folds(1, None, 0)).contains("1 folds of 10 samples"));
    assert!(refused(set().folds(11, None, 0)).contains("11 folds of 10 samples"));
    assert!(refused(set().folds(2, Some(&[0; 9]), 0)).contains("9 labels for 10 samples"));
}

#[test]
fn all_samples_of_a_group_are_in_one_fold_and_the_folds_have_about_one_size() {
    for (groups, count) in [(7_u32, 2), (40, 5), (5, 5), (100, 3)] {
        // The groups have 1 to 6 samples, which lie apart.
        let of: Vec<u32> = (0..6 * groups).map(|id| id % groups * 10).filter(|id| id % 60 < 50).collect();
        let len = of.len() as u64;
        let folds = |seed| Numbered::new(0, len).folds_of_groups(count, &of, seed).expect("folds");
        let mut fold_of = vec![None; of.len()];
        let mut largest = 0;
        for (fold, [train, validate]) in folds(5).iter().enumerate() {
            largest = largest.max(validate.ids().len());
            for &id in validate.ids() {
                assert_eq!(fold_of[id as usize].replace(fold), None, "in one validation set");
            }
            let mut both = [train.ids(), validate.ids()].concat();
            both.sort_unstable();
            assert!(both.into_iter().eq(0..len), "the others are in the training set");
        }
        for (a, b) in (0..of.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert!(of[a] != of[b] || fold_of[a] == fold_of[b], "group {}", of[a]);
        }
        assert!(fold_of.iter().all(Option::is_some));
        assert!(largest <= len.div_ceil(count as u64) as usize + 5, "{largest} of {len} in {count} folds");
        let ids = |seed| folds(seed).iter().map(|[_, val]| val.ids().to_vec()).collect::<Vec<_>>();
        assert_eq!(ids(5), ids(5));
        assert!(groups < 40 || ids(5) != ids(6), "another seed, other folds");
    }
    // One group of 50 samples, and five of 10.
    let uneven: Vec<u32> = (0..100).map(|id| if id < 50 { 9 } else { id / 10 - 5 }).collect();
    let folds = Numbered::new(0, 100).folds_of_groups(2, &uneven, 5).expect("folds");
    assert!(folds.iter().all(|[_, validate]| validate.ids().len() == 50));
    let refused = |count, groups: &[u32]| {
        Numbered::new(0, 4).folds_of_groups(count, groups, 0).map(drop).unwrap_err().to_string()
    };
    assert!(refused(3, &[1, 1, 2, 2]).contains("3 folds of 2 groups"));
    assert!(refused(1, &[1, 1, 2, 2]).contains("1 folds of 2 groups"));
    assert!(refused(2, &[1, 2]).contains("2 groups for 4 samples: give one for each"));
}
