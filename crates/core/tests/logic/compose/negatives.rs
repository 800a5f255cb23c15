use std::collections::BTreeMap;

use feedline_core::{Dataset, InMemory, from_fn};

use super::*;

/// Samples of a list of past items and the next one.
fn sessions(len: u64) -> impl Dataset {
    let spec = Spec::new().ragged("history", DType::I32, [], 9).expect("a spec");
    let spec = spec.field("item", DType::I64, []).expect("a spec");
    from_fn(len, spec, |id, row, _| {
        let history: Vec<i32> = (0..id % 5).map(|place| (id * 7 + place * place) as i32 % 12 - 1).collect();
        row.write_ragged(0, &history)?;
        row.field_mut::<i64>(1)?[0] = (id % 10) as i64;
        Ok(())
    })
}

/// History, item and negatives of these samples.
fn drawn(data: &dyn Dataset, epoch: u64, ids: &[u64]) -> Vec<(Vec<i32>, i64, Vec<i64>)> {
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    data.read_many(ids, &mut rows, &mut Context::new(3, epoch)).map_err(|(_, error)| error).unwrap();
    let row = |at: usize| {
        let history = rows
            .written_bytes_mut(at, 0)
            .unwrap()
            .as_chunks()
            .0
            .iter()
            .map(|bytes| i32::from_le_bytes(*bytes));
        let history = history.collect();
        let mut row = rows.row(at);
        (history, row.field_mut::<i64>(1).unwrap()[0], row.field_mut::<i64>(2).unwrap().to_vec())
    };
    (0..ids.len()).map(row).collect()
}

#[test]
fn negatives_are_other_items_each_equally_often_and_anew_in_each_epoch() {
    let data = || sessions(300).negatives(&["item", "history"], 4, 10, 7).expect("negatives");
    assert_eq!(data().spec().fields()[2].name(), "item.negatives");
    let ids = Vec::from_iter((0..300).rev());
    let mut seen: BTreeMap<i64, [u32; 10]> = BTreeMap::new();
    for epoch in 0..50 {
        for (history, item, negatives) in drawn(&data(), epoch, &ids) {
            for negative in negatives {
                assert!((0..10).contains(&negative) && negative != item, "{negative} beside {item}");
                assert!(!history.contains(&(negative as i32)), "{negative} is in {history:?}");
                if history.is_empty() {
                    seen.entry(item).or_default()[negative as usize] += 1;
                }
            }
        }
    }
    // Each of the nine other items is drawn equally often.
    for (item, counts) in seen {
        let total: u32 = counts.iter().sum();
        for (other, &count) in counts.iter().enumerate().filter(|(other, _)| *other as i64 != item) {
            let wanted = f64::from(total) / 9.0;
            assert!((f64::from(count) - wanted).abs() < 6.0 * wanted.sqrt(), "{item}, {other}: {counts:?}");
        }
    }
    // A function of seed, epoch and sample: the same in any batch.
    let all = drawn(&data(), 4, &ids);
    for (at, &id) in ids.iter().enumerate().step_by(17) {
        assert_eq!(drawn(&data(), 4, &[id])[0], all[at]);
    }
    assert_ne!(drawn(&data(), 5, &ids), all);
    let other_seed = sessions(300).negatives(&["item", "history"], 4, 10, 8).expect("negatives");
    assert_ne!(drawn(&other_seed, 4, &ids), all);
    assert_fingerprints_differ([
        &data() as &dyn Dataset,
        &other_seed,
        &sessions(300).negatives(&["item", "history"], 4, 11, 7).expect("negatives"),
        &sessions(300).negatives(&["item"], 4, 10, 7).expect("negatives"),
    ]);
}

#[test]
fn negatives_keep_the_contract_and_say_which_sample_has_all_items() {
    let data = Numbered::new(0, 40).negatives(&["number"], 3, 100, 1).expect("negatives");
    assert_keeps_the_contract(&data);
    let item = || InMemory::new().field("item", [], [0_i64, -100, 1]).expect("a set");
    let mut context = Context::new(0, 0);
    let data = item().negatives(&["item"], 2, 1, 7).expect("negatives");
    let layout = Layout::new(data.spec(), 3).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
    // Neither padding nor a number beyond the items is an item.
    data.read_many(&[1, 2], &mut rows.part(0..2), &mut context).map_err(|(_, error)| error).unwrap();
    assert_eq!(rows.row(0).field_mut::<i64>(1).unwrap(), [0, 0]);
    let (at, error) = data.read_many(&[2, 1, 0], &mut rows, &mut context).unwrap_err();
    assert!(at == 2 && error.to_string().contains("a sample has all 1 items"), "{error}");
    for (fields, count, items, why) in [
        (&["item"][..], 0, 5, "0 negatives of 5 items"),
        (&["item"], 1, 0, "1 negatives of 0 items"),
        (&[], 1, 5, "negatives name no field"),
        (&["id"], 1, 5, "no field \"id\""),
    ] {
        assert!(refused(item().negatives(fields, count, items, 7)).contains(why), "{why}");
    }
    let score = InMemory::new().field("score", [], [0.5_f32]).expect("a set");
    assert!(refused(score.negatives(&["score"], 1, 5, 7)).contains("\"score\" is f32, and items are whole"));
}
