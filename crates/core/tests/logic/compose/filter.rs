use feedline_core::{Dataset, ErrorKind};

use super::*;

#[test]
fn a_filter_keeps_what_the_function_keeps() {
    let inner = Numbered::plain(5, 150);
    let mut read_once = Vec::new();
    let kept = inner.clone().filter(|sample| {
        let number = sample.field::<i64>(0).expect("numbers")[0];
        read_once.push(number);
        number % 7 == 0
    });
    let kept = kept.expect("a filter");
    assert_eq!(read_once, (5..155).collect::<Vec<_>>());
    assert_eq!(kept.ids()[..3], [2, 9, 16]);
    assert_eq!(numbers(&read(&kept, &[0, 1, 2], 0)), [7, 14, 21]);
    assert_keeps_the_contract(&kept);
    assert_eq!(kept.len(), (5..155).filter(|number| number % 7 == 0).count() as u64);
    let again = inner.subset(kept.ids()).expect("a subset");
    assert_eq!(again.fingerprint(), kept.fingerprint(), "the index is the filter");
}

#[test]
fn a_filter_may_keep_nothing_or_be_of_nothing() {
    let none = Numbered::plain(0, 9).filter(|_| false).expect("a filter");
    assert!(none.len() == 0 && none.path(0).is_none());
    assert_eq!(Numbered::plain(0, 0).filter(|_| true).expect("a filter").len(), 0);
}

#[test]
fn a_sample_that_cannot_be_read_and_samples_that_differ_between_epochs_are_errors() {
    let error = Numbered::plain(0, 99).failing(70).filter(|_| true).map(drop).expect_err("a failure");
    assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(70)));
    assert!(error.to_string().contains("planned failure of 70 (file low"), "{error}");
    assert!(refused(Numbered::new(0, 9).filter(|_| true)).contains("filter first"));
}
