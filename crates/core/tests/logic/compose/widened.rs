//! Parts whose ragged fields have different limits, and parts that differ in more.

use feedline_core::compose::{Concat, Mix};
use feedline_core::{InMemory, Packed, PackedOptions, Pad, from_fn};

use super::*;

/// Texts of the lengths `0..=max`, where at most `max` items are allowed.
fn texts(max: usize) -> InMemory {
    let rows = (0..=max).map(|len| vec![len as u8; len]);
    let labels: Vec<i32> = (0..=max as i32).collect();
    let set = InMemory::new().ragged("text", [], max, rows).expect("texts");
    set.field("label", [], labels).expect("labels")
}

/// The texts of `ids`, which are read by one `read_many`, and one by one.
fn read_texts(set: &dyn Dataset, ids: &[u64]) -> Result<Vec<Vec<u8>>, RowError> {
    let (layout, mut slab) = slab(set, ids.len());
    let mut context = Context::new(SEED, 0);
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut slab);
    let of_slab = |bytes: &[u8]| {
        (0..ids.len()).map(|row| layout.row_values(bytes, 0, row).to_vec()).collect::<Vec<_>>()
    };
    set.read_many(ids, &mut feedline_core::Rows::new(&layout, bytes, ids.len()), &mut context)?;
    let together = of_slab(bytes);
    let mut rows = feedline_core::Rows::new(&layout, bytes, ids.len());
    for (row, &id) in ids.iter().enumerate() {
        set.read(id, &mut rows.row(row), &mut context).map_err(|error| (row, error))?;
    }
    drop(rows);
    assert_eq!(of_slab(bytes), together);
    Ok(together)
}

fn limit(set: &dyn Dataset, field: &str) -> usize {
    let index = set.spec().index_of(field).expect("the field");
    set.spec().fields()[index].as_ragged().expect("a ragged field").max_per_sample()
}

#[test]
fn limits_widen_to_the_largest_of_the_parts_and_every_part_reads_as_alone() {
    for maxes in [vec![3, 9], vec![9, 3], vec![1, 200, 7]] {
        let parts = || maxes.iter().map(|&max| texts(max));
        let all = Concat::new(parts().map(|part| Arc::new(part) as Arc<dyn Dataset>)).expect("one set");
        let largest = *maxes.iter().max().expect("a part");
        assert_eq!(limit(&all, "text"), largest);
        assert_keeps_limits(&all, &maxes);
        let mix = parts().fold(Mix::builder(3), |builder, part| builder.dataset(part, 1.0));
        let mix = mix.build().expect("a mix");
        assert_eq!(limit(&mix, "text"), largest);
        let ids: Vec<u64> = (0..mix.len()).collect();
        let read = read_texts(&mix, &ids).expect("samples");
        for (id, text) in ids.iter().zip(read) {
            let (_, inner) = mix.place(0, *id).expect("a place");
            assert_eq!(text, vec![inner as u8; inner as usize]);
        }
    }
}

fn assert_keeps_limits(all: &Concat, maxes: &[usize]) {
    let ids: Vec<u64> = (0..all.len()).rev().collect();
    let lens = |id: u64| all.place(id).expect("a place").1 as usize;
    let expected: Vec<_> = ids.iter().map(|&id| vec![lens(id) as u8; lens(id)]).collect();
    assert_eq!(read_texts(all, &ids).expect("samples"), expected, "{maxes:?}");
    let options = CheckOptions { samples: Samples::Spread(all.len()), epochs: 1, seed: SEED };
    let report = check_dataset(all, &options).expect("a check");
    assert!(report.is_clean(), "{report}");
    // Through other compositions too.
    let nested = texts(2)
        .concat(texts(5))
        .expect("two")
        .repeat(2)
        .expect("two rounds")
        .take(7)
        .concat(texts(4))
        .expect("two");
    assert_eq!(limit(&nested, "text"), 5);
    assert_eq!(read_texts(&nested, &[10, 5, 0]).expect("samples"), [vec![3; 3], vec![2; 2], vec![]]);
}

/// A part that writes more than its limit is refused, as it is alone.
#[test]
fn a_part_keeps_its_own_limit() {
    let lies = |max| {
        let spec = Spec::new().ragged("text", DType::U8, [], max).expect("a spec");
        from_fn(1, spec, |_, row, _| Ok(row.write_ragged(0, &[1_u8; 5])?))
    };
    let both = lies(4).concat(lies(9)).expect("two");
    assert_eq!(read_texts(&both, &[1]).expect("the second"), [vec![1; 5]]);
    let (_, error) = read_texts(&both, &[0]).expect_err("the first");
    assert!(format!("{error}").contains("at most 4 per sample"), "{error}");
}

#[test]
fn corpora_packed_by_best_fit_are_mixed_and_concatenated() {
    let packed = |documents: &[&str], window: usize| {
        let lengths: Vec<u32> = documents.iter().map(|text| text.len() as u32).collect();
        let texts = documents.iter().map(|text| text.as_bytes().to_vec());
        let set = InMemory::new().ragged("ids", [], 16, texts).expect("documents");
        let options = PackedOptions { window, split: true, shuffle: None };
        Packed::new(set, "ids", &lengths, options).expect("windows")
    };
    let (web, books) = (|| packed(&["abcdefgh", "abc", "def"], 8), || packed(&["a", "b", "c", "d", "ef"], 8));
    assert_ne!(limit(&web(), "cu_seqlens"), limit(&books(), "cu_seqlens"));
    let both = web().concat(books()).expect("two");
    assert_eq!((both.len(), limit(&both, "cu_seqlens")), (3, limit(&books(), "cu_seqlens")));
    let mix = Mix::builder(7).dataset(web(), 3.0).dataset(books(), 1.0).build().expect("a mix");
    for set in [&both as &dyn Dataset, &mix] {
        let options = CheckOptions { samples: Samples::Spread(set.len()), epochs: 1, seed: SEED };
        let report = check_dataset(set, &options).expect("a check");
        assert!(report.is_clean(), "{report}");
    }
    let why = refused(web().concat(packed(&["abc"], 4)));
    assert!(why.contains("its field \"ids\" has shape [4] instead of [8]"), "{why}");
}

#[test]
fn the_property_that_differs_is_named() {
    let empty = |spec: Spec| from_fn(1, spec, |_, _, _| Ok(()));
    let first = || {
        let spec = Spec::new().field("x", DType::F32, [2]).expect("a spec");
        spec.ragged("text", DType::U8, [3], 4).expect("a spec")
    };
    let x = || Spec::new().field("x", DType::F32, [2]).expect("a spec");
    let others = [
        (Spec::new().field("x", DType::F64, [2]), "its field \"x\" has dtype f64 instead of f32"),
        (Spec::new().field("x", DType::F32, [2, 1]), "its field \"x\" has shape [2, 1] instead of [2]"),
        (Spec::new().ragged("x", DType::F32, [2], 4), "its field \"x\" varies in length"),
    ];
    let others =
        others.map(|(spec, why)| (spec.and_then(|spec| spec.ragged("text", DType::U8, [3], 4)), why));
    let all = others.into_iter().chain([
        (x().ragged("text", DType::I8, [3], 4), "its field \"text\" has dtype i8 instead of u8"),
        (x().ragged("text", DType::U8, [], 4), "its field \"text\" has shape [] per item instead of [3]"),
        (x().field("text", DType::U8, [3]), "its field \"text\" does not vary in length"),
        (x().ragged("words", DType::U8, [3], 4), "it has a field \"words\" instead of \"text\""),
        (Ok(x()), "it has no field \"text\""),
        (first().field("y", DType::U8, []), "it also has a field \"y\""),
        (
            Spec::new().ragged("text", DType::U8, [3], 4).and_then(|spec| spec.field("x", DType::F32, [2])),
            "its fields are in the order \"text\", \"x\" instead of \"x\", \"text\"",
        ),
        (first().padded("text", Pad::longest()), "its field \"text\" has padded rows instead of rows"),
    ]);
    for (spec, part) in all {
        let other = || empty(spec.clone().expect("a spec"));
        let why = refused(empty(first()).concat(other()));
        assert!(why.starts_with("part 1 of the concatenation differs from part 0: "), "{why}");
        assert!(why.contains(part), "no {part:?} in: {why}");
        let mix = Mix::builder(0).dataset(empty(first()), 1.0).dataset(empty(first()), 1.0);
        let why = refused(mix.dataset(other(), 1.0).build());
        assert!(why.starts_with("part 2 of the mix differs from part 0: "), "{why}");
    }
}
