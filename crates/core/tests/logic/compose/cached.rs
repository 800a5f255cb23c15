use feedline_core::Dataset;

use super::*;

/// Bytes of a sample of [`Numbered`].
const ROW: usize = 24;

#[test]
fn a_cache_keeps_the_contract_and_reads_each_kept_sample_once() {
    let inner = Numbered::plain(0, 50);
    let cached = inner.clone().cached(1000 * ROW).expect("a cache");
    assert_eq!(cached.stats().kept, 50);
    let ids: Vec<u64> = (0..50).rev().collect();
    let first = read(&cached, &ids, 0);
    assert_eq!((cached.stats().hits, cached.stats().misses, inner.groups()), (0, 50, vec![ids.clone()]));
    for epoch in 0..3 {
        assert_eq!(read(&cached, &ids, epoch), first);
    }
    assert_eq!((cached.stats().hits, cached.stats().misses, inner.groups().len()), (150, 50, 0));
    assert_keeps_the_contract(&Numbered::plain(0, 50).cached(1000 * ROW).expect("a cache"));
}

#[test]
fn the_budget_holds_and_misses_between_hits_are_read_in_bulk() {
    let inner = Numbered::plain(0, 50);
    let cached = inner.clone().cached(10 * ROW + ROW - 1).expect("a cache");
    assert_eq!(cached.stats().kept, 10);
    read(&cached, &[2, 3, 40], 0);
    inner.groups();
    let seen = read(&cached, &[0, 1, 2, 40, 41, 3, 5], 0);
    assert_eq!(numbers(&seen), [0, 1, 2, 40, 41, 3, 5]);
    assert_eq!(inner.groups(), [vec![0, 1], vec![40, 41], vec![5]]);
    assert_keeps_the_contract(&cached);
    for budget in [0, ROW - 1] {
        let none = inner.clone().cached(budget).expect("a cache");
        assert_keeps_the_contract(&none);
        assert_eq!((none.stats().kept, none.stats().hits), (0, 0));
    }
    assert_eq!(Numbered::plain(0, 0).cached(9).expect("a cache").len(), 0);
}

#[test]
fn large_rows_and_many_blocks_are_kept() {
    let spec =
        feedline_core::Spec::new().field("bytes", feedline_core::DType::U8, [100_000]).expect("a spec");
    let set = feedline_core::from_fn(20, spec.clone(), |id, row, _| {
        row.bytes_mut(0).iter_mut().zip(0_u64..).for_each(|(byte, at)| *byte = (id * 31 + at) as u8);
        Ok(())
    });
    let cached = set.cached(15 * 100_000).expect("a cache");
    let options = CheckOptions { samples: Samples::Spread(20), epochs: 2, seed: SEED };
    assert!(check_dataset(&cached, &options).expect("a check").is_clean());
    assert!((cached.stats().kept, cached.stats().hits > 100) == (15, true), "{} hits", cached.stats().hits);
}

#[test]
fn samples_that_differ_between_epochs_are_refused_and_failures_pass_through() {
    let cached = Numbered::new(0, 9).cached(1000).expect("a cache");
    let (good, why) = read_until(&cached, &[0, 1]);
    assert!(good.is_empty() && why.contains("put the cache before what does"), "{why}");

    let cached = Numbered::plain(0, 9).failing(3).cached(1000).expect("a cache");
    for _ in 0..2 {
        let (good, why) = read_until(&cached, &[1, 2, 3, 4]);
        assert_eq!((numbers(&good), why.as_str()), (vec![1, 2], "planned failure of 3"));
    }
    assert_eq!((cached.stats().hits, cached.path(3)), (2, Some(Path::new("low"))));
    // Random numbers drawn after the cache do not concern the cache.
    let spec = cached.spec().clone();
    let mapped = Numbered::plain(0, 9).cached(1000).expect("a cache").map(spec, |sample, row, context| {
        row.field_mut::<i64>(0)?.copy_from_slice(sample.field(0)?);
        row.field_mut::<i64>(1)?.fill_with(|| context.random().next_u64() as i64);
        Ok(())
    });
    assert_keeps_the_contract(&mapped.expect("a map"));
}

#[test]
fn the_fingerprint_is_that_of_a_cache_whatever_its_size_and_columns_stay() {
    let of = |budget| Numbered::plain(0, 9).cached(budget).expect("a cache");
    assert_eq!(of(0).fingerprint(), of(1000).fingerprint());
    assert_fingerprints_differ([
        &Numbered::plain(0, 9),
        &of(0),
        &Numbered::plain(1, 9).cached(0).expect("a cache"),
    ]);
    assert_eq!(column(&laid(4, 2).cached(1000).expect("a cache")), Some(vec![4, 5]));
}
