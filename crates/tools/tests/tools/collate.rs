//! Batches of documents equal those of TRL's collator: padded, or as one sequence.

use std::path::Path;

use feedline::dataset::Unpadded;
use feedline::{DType, Dataset, Loader, Pad, Spec, from_fn};
use feedline_testkit::not_run;
use serde_json::{Value as Json, json};

/// A document: its ids, and its labels.
type Document = (Vec<i64>, Vec<i64>);

/// The documents of a batch; a feature may hold several, one after another.
fn documents(features: &[Json]) -> Vec<Document> {
    let mut all = Vec::new();
    for feature in features {
        let numbers = |name: &str| -> Option<Vec<i64>> {
            feature.get(name).map(|numbers| serde_json::from_value(numbers.clone()).unwrap())
        };
        let ids = numbers("input_ids").unwrap();
        let labels = numbers("labels").unwrap_or_else(|| ids.clone());
        let lengths = numbers("seq_lengths").unwrap_or_else(|| vec![ids.len() as i64]);
        let mut at = 0;
        for length in lengths {
            let items = at..at + length as usize;
            at = items.end;
            all.push((ids[items.clone()].to_vec(), labels[items].to_vec()));
        }
    }
    all
}

fn set(documents: Vec<Document>) -> impl Dataset {
    let spec = Spec::new().ragged("input_ids", DType::I64, [], 500).unwrap();
    let spec = spec.ragged("labels", DType::I64, [], 500).unwrap();
    from_fn(documents.len() as u64, spec, move |id, row, _| {
        let (ids, labels) = &documents[id as usize];
        row.write_ragged(0, ids)?;
        Ok(row.write_ragged(1, labels)?)
    })
}

/// `values` in rows of equal width.
fn rows<T: serde::Serialize>(values: &[T], rows: usize) -> Json {
    json!(values.chunks(values.len() / rows).collect::<Vec<_>>())
}

#[test]
fn collated_batches_equal_those_of_trl() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("FEEDLINE_SHARED").map_or_else(beside, Into::into);
    let file = root.join("text-training/packing/collate.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        not_run("the golden data of texts for training", format!("there is no {}", file.display()));
        return;
    };
    let (mut padded, mut flat) = (0, 0);
    for line in text.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let (options, expected) = (&case["options"], &case["expected"]);
        let documents = documents(case["features"].as_array().unwrap());
        let (count, is_flat) = (documents.len(), options["padding_free"] == json!(true));
        if is_flat {
            flat += 1;
            let set = Unpadded::builder(set(documents)).field("input_ids").labels("labels").build().unwrap();
            let mut loader = Loader::builder(set).batch_size(count).build_host().unwrap();
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
            let (ids, labels) =
                (batch.ragged::<i64>("input_ids").unwrap().0, batch.ragged::<i64>("labels").unwrap().0);
            let (position, ends) =
                (batch.ragged::<u32>("position").unwrap().0, batch.ragged::<u32>("cu_seqlens").unwrap().0);
            assert_eq!(json!([ids]), expected["input_ids"], "{case}");
            assert_eq!(json!([labels]), expected["labels"], "{case}");
            assert_eq!(json!([position]), expected["position_ids"], "{case}");
            let number = |pair: &[u32]| (pair[0]..pair[1]).map(|_| 0).collect::<Vec<usize>>();
            let each =
                ends.windows(2).enumerate().flat_map(|(at, pair)| number(pair).into_iter().map(move |_| at));
            let segments = json!([each.collect::<Vec<_>>()]);
            for (name, found) in [
                ("seq_idx", segments),
                ("cu_seq_lens_q", json!(ends)),
                ("max_length_q", json!(batch.longest("cu_seqlens").unwrap())),
            ] {
                assert!(expected.get(name).is_none_or(|expected| *expected == found), "{name}: {case}");
            }
            continue;
        }
        padded += 1;
        let multiple = options["pad_to_multiple_of"].as_u64().unwrap_or(1) as usize;
        let pad = if multiple > 1 { Pad::multiple_of(multiple) } else { Pad::longest() };
        let builder =
            Loader::builder(set(documents)).batch_size(count).pad("input_ids", pad.fill_value(0_i64));
        let mut loader = builder.pad("labels", pad.fill_value(-100_i64)).build_host().unwrap();
        let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
        let (ids, lengths) = batch.padded::<i64>("input_ids").unwrap();
        let (labels, _) = batch.padded::<i64>("labels").unwrap();
        assert_eq!(rows(ids, count), expected["input_ids"], "{case}");
        assert_eq!(rows(labels, count), expected["labels"], "{case}");
        // TRL marks documents by masks and positions, a batch by the lengths of its rows.
        let width = ids.len() / count;
        let each = |number: fn(usize, usize) -> usize| -> Json {
            let row = |length: &u32| (0..width).map(|at| number(at, *length as usize)).collect::<Vec<_>>();
            json!(lengths.iter().map(row).collect::<Vec<_>>())
        };
        if let Some(expected) = expected.get("attention_mask") {
            assert_eq!(each(|at, length| usize::from(at < length)), *expected, "{case}");
        }
        if let Some(expected) = expected.get("position_ids") {
            assert_eq!(each(|at, length| if at < length { at } else { 0 }), *expected, "{case}");
        }
    }
    assert!(padded + flat == 40 && padded >= 10 && flat >= 10, "{padded} padded, {flat} flat");
}
