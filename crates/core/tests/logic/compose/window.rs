use feedline_core::Dataset;

use super::*;

#[test]
fn take_and_skip_keep_the_contract_and_read_in_bulk() {
    let inner = Numbered::new(0, 50);
    let middle = inner.clone().skip(10).take(20);
    assert_keeps_the_contract(&middle);
    inner.groups();
    assert_eq!(numbers(&read(&middle, &[0, 19, 3], 0)), [10, 29, 13]);
    assert_eq!(inner.groups(), [[10, 29, 13]]);
    assert_eq!((middle.len(), middle.path(19), middle.path(20)), (20, inner.path(29), None));
    assert_keeps_the_contract(&laid(3, 40).skip(4).take(30));
}

#[test]
fn take_and_skip_end_where_the_set_does() {
    let lens = |set: &dyn Fn() -> Numbered| {
        [set().take(0).len(), set().take(9).len(), set().take(u64::MAX).len(), set().skip(8).len()]
            .into_iter()
            .chain([set().skip(9).len(), set().skip(u64::MAX).len(), set().skip(u64::MAX).take(5).len()])
            .collect::<Vec<_>>()
    };
    assert_eq!(lens(&|| Numbered::new(0, 9)), [0, 9, 9, 1, 0, 0, 0]);
    assert_eq!(lens(&|| Numbered::new(0, 0)), [0; 7]);
}

#[test]
fn the_column_is_that_of_the_window() {
    assert_eq!(column(&laid(100, 10).skip(3).take(4)), Some(vec![103, 104, 105, 106]));
    assert_eq!(column(&laid(100, 10).skip(10)), None, "no rows");
    assert_eq!(column(&Numbered::new(0, 9).take(5)), None);
}

#[test]
fn an_error_names_the_inner_sample() {
    let (seen, why) = read_until(&Numbered::new(0, 50).failing(12).skip(10), &[0, 1, 2, 3]);
    assert_eq!((seen.len(), why.as_str()), (2, "below the window: planned failure of 12 (sample 12)"));
}

#[test]
fn the_fingerprint_covers_the_window() {
    let set = || Numbered::new(0, 9);
    assert_fingerprints_differ([&set(), &set().take(5), &set().take(4), &set().skip(4), &set().skip(5)]);
}
