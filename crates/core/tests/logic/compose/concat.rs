use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::compose::Concat;
use feedline_core::{
    Context, DType, Dataset, Decoded, DecodedRows, ReadError, Result, Row, Spec, Storage, from_fn,
};

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

/// A set that is decoded in groups of four, and knows its lengths.
#[derive(Debug)]
struct Grouped {
    spec: Spec,
    len: u64,
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct Rows;

impl DecodedRows for Rows {
    fn slice(&self, _: usize, _: usize) -> Option<&[u8]> {
        None
    }
}

impl Dataset for Grouped {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        Ok(row.put(0, &[])?)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Grouped {
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok((self.len > 0).then(|| vec![vec![self.len as u32; self.len as usize]]))
    }

    fn group(&self, id: u64) -> Range<u64> {
        id / 4 * 4..(id / 4 * 4 + 4).min(self.len)
    }

    fn decoded(&self, id: u64) -> Result<Option<Decoded>> {
        Ok(Some(Decoded::new(self.group(id), Arc::new(Rows))))
    }

    fn forget(&self, id: u64) {
        self.forgotten.store(id, Ordering::Relaxed);
    }
}

#[test]
fn a_concatenation_has_the_groups_and_the_lengths_of_its_parts() {
    let spec = || Spec::new().ragged("x", DType::U8, [], 9).expect("a field");
    let of = |len| Arc::new(Grouped { spec: spec(), len, forgotten: AtomicU64::new(u64::MAX) });
    let parts = [of(6), of(5)];
    let all = Concat::new(parts.clone().map(|part| part as Arc<dyn Dataset>)).expect("a concatenation");
    let storage = all.storage();
    let groups: Vec<_> = (0..11).map(|id| storage.group(id)).collect();
    assert_eq!(groups[3..7], [0..4, 4..6, 4..6, 6..10]);
    assert_eq!((groups[10].clone(), storage.group(11)), (10..11, 11..11));
    for (id, group) in (0..).zip(&groups) {
        let decoded = storage.decoded(id).expect("a group").expect("some");
        assert_eq!(decoded.samples(), *group, "sample {id}");
    }
    assert!(storage.decoded(11).expect("no sample").is_none());
    storage.forget(9);
    assert_eq!(parts.map(|part| part.forgotten.load(Ordering::Relaxed)), [u64::MAX, 3]);
    assert_eq!(storage.lengths().expect("lengths"), Some(vec![[vec![6; 6], vec![5; 5]].concat()]));
    // A part that only reading can measure.
    let unknown = Concat::new([of(6) as Arc<dyn Dataset>, of(0)]).expect("a concatenation");
    assert_eq!(unknown.storage().lengths().expect("none"), None);
}
