use feedline_core::compose::Concat;
use feedline_core::{DType, Dataset, Spec, from_fn};

use super::*;

fn shared(set: impl Dataset) -> Arc<dyn Dataset> {
    Arc::new(set)
}

#[test]
fn a_concatenation_keeps_the_contract_and_reads_runs_of_a_part_in_bulk() {
    let (low, high) = (Numbered::new(0, 10), Numbered::new(100, 20));
    let empty = || shared(Numbered::new(0, 0));
    let parts = [empty(), shared(low.clone()), empty(), empty(), shared(high.clone()), empty()];
    let all = Concat::new(parts).expect("a concatenation");
    assert_eq!(
        (all.len(), all.place(0), all.place(10), all.place(30)),
        (30, Some((1, 0)), Some((4, 0)), None)
    );
    assert_keeps_the_contract(&all);
    low.groups();
    high.groups();
    let seen = read(&all, &[8, 9, 10, 11, 12, 0, 29], 0);
    assert_eq!(numbers(&seen), [8, 9, 100, 101, 102, 0, 119]);
    assert_draws_differ(&read(&all, &(0..30).collect::<Vec<_>>(), 0));
    low.groups();
    high.groups();
    read(&all, &[8, 9, 10, 11, 12, 0, 29], 0);
    assert_eq!((low.groups(), high.groups()), (vec![vec![8, 9], vec![0]], vec![vec![0, 1, 2], vec![19]]));
    assert_eq!((all.path(9), all.path(10)), (Some(Path::new("low")), Some(Path::new("high"))));
}

#[test]
fn random_numbers_follow_the_loader_s_id_through_nested_parts() {
    let nested = |draws| {
        let part = |first| if draws { Numbered::new(first, 6) } else { Numbered::plain(first, 6) };
        part(0).concat(part(100)).expect("two").skip(1).subset([0, 6, 10, 5, 4]).expect("five")
    };
    assert_keeps_the_contract(&nested(true));
    let seen = read(&nested(true), &[4, 3, 2, 1, 0], 3);
    assert_eq!(numbers(&seen), [5, 100, 105, 101, 1]);
    // Sample `id` of the outermost set draws the numbers that a single set would draw.
    let expected = read(&Numbered::new(0, 5), &[4, 3, 2, 1, 0], 3);
    assert!(seen.iter().zip(&expected).all(|(seen, expected)| seen.draw == expected.draw));
}

#[test]
fn an_error_names_the_part_and_its_sample() {
    let all = Numbered::new(0, 3).concat(Numbered::new(100, 20).failing(5)).expect("a concatenation");
    let (seen, why) = read_until(&all, &[0, 3, 8, 1]);
    assert_eq!(numbers(&seen), [0, 100]);
    assert_eq!(why, "in part 1 of the concatenation: planned failure of 5 (sample 5)");
}

#[test]
fn the_column_is_that_of_the_only_part_with_samples() {
    assert_eq!(column(&laid(7, 0).concat(laid(5, 3)).expect("two")), Some(vec![5, 6, 7]));
    assert_eq!(column(&laid(7, 1).concat(laid(5, 3)).expect("two")), None);
}

#[test]
fn parts_of_other_specs_and_too_many_samples_are_refused() {
    let other = Spec::new().field("number", DType::F32, []).expect("a spec");
    let why = refused(Numbered::new(0, 1).concat(from_fn(1, other, |_, _, _| Ok(()))));
    assert_eq!(
        why,
        "part 1 of the concatenation differs from part 0: it has no field \"draw\"; map the parts to one spec"
    );
    let long = || Numbered::new(0, 1 << 62);
    assert!(long().concat(long()).is_ok());
    let three = Concat::new([shared(long()), shared(long()), shared(Numbered::new(0, 1))]);
    assert!(refused(three).contains("more than 2^63 samples"));
    assert!(refused(Numbered::new(0, u64::MAX).concat(Numbered::new(0, u64::MAX))).contains("2^63"));
    assert!(refused(Concat::new([])).contains("no data sets"));
}

#[test]
fn the_fingerprint_covers_the_parts_and_their_order() {
    let part = |first, len| Numbered::new(first, len);
    let two = |a: (i64, u64), b: (i64, u64)| part(a.0, a.1).concat(part(b.0, b.1)).expect("two");
    assert_fingerprints_differ([
        &part(0, 3),
        &two((0, 3), (9, 4)),
        &two((9, 4), (0, 3)),
        &two((0, 3), (9, 5)),
        &Concat::new([shared(part(0, 3))]).expect("one"),
    ]);
}
