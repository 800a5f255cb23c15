use feedline_core::Dataset;

use super::*;

#[test]
fn a_repetition_keeps_the_contract_and_draws_anew_each_time() {
    let inner = Numbered::new(0, 4);
    let three = inner.clone().repeat(3).expect("a repetition");
    assert_eq!((three.len(), three.path(11), three.path(12)), (12, Some(Path::new("low")), None));
    assert_keeps_the_contract(&three);
    inner.groups();
    let seen = read(&three, &[0, 4, 8, 3, 7], 0);
    assert_eq!((numbers(&seen), inner.groups()), (vec![0, 0, 0, 3, 3], vec![vec![0, 0, 0, 3, 3]]));
    assert_draws_differ(&seen);
    let (_, why) = read_until(&Numbered::new(0, 4).failing(2).repeat(9).expect("a repetition"), &[30]);
    assert_eq!(why, "below the repetition: planned failure of 2 (sample 2)");
}

#[test]
fn nothing_repeated_and_nothing_at_all_are_empty() {
    for set in [Numbered::new(0, 4).repeat(0), Numbered::new(0, 0).repeat(5)] {
        let set = set.expect("a repetition");
        assert!(set.len() == 0 && set.path(0).is_none());
        assert_eq!(read_until(&set, &[0]).1, "no sample 0: there are 0");
    }
    assert!(refused(Numbered::new(0, 1 << 40).repeat(1 << 40)).contains("more than 2^63 samples"));
    let of = |times| Numbered::new(0, 4).repeat(times).expect("a repetition");
    assert_fingerprints_differ([&Numbered::new(0, 4), &of(1), &of(2)]);
}
