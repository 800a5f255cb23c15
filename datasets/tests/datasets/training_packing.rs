//! Windows and flattened batches equal TRL's and transformers'.

use crate::training::{golden, json, lines};
use feedline_core::packed::Piece;
use feedline_core::{
    Context, DType, Dataset, Extent, Layout, Long, Packed, PackedBuilder, Spec, Unpadded, from_fn,
};
use serde_json::{Value as Json, json};

/// Documents of these lengths. Their items are numbered on from document to document.
fn numbered(lengths: &[u32]) -> impl Dataset {
    let max = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
    let spec = Spec::new().ragged("ids", DType::I64, [], max).unwrap();
    let ends: Vec<i64> = lengths
        .iter()
        .scan(0, |end, len| {
            *end += i64::from(*len);
            Some(*end)
        })
        .collect();
    let lengths = lengths.to_vec();
    from_fn(lengths.len() as u64, spec, move |id, row, _| {
        let end = ends[id as usize];
        let ids: Vec<i64> = (end - i64::from(lengths[id as usize])..end).collect();
        Ok(row.write_ragged(0, &ids)?)
    })
}

fn builder(lengths: &[u32], window: usize, strategy: &str) -> PackedBuilder {
    let builder = Packed::builder(numbered(lengths), lengths, window).field("ids");
    match strategy {
        "bfd" => builder.best_fit().long(Long::Cut),
        "bfd_split" => builder.best_fit().long(Long::Split),
        _ => builder.in_order(),
    }
}

fn pieces(packed: &Packed, first: u64) -> Vec<Json> {
    let piece = |Piece { document, items }: Piece| json!([first + document, items.start, items.end]);
    (0..packed.len()).map(|window| packed.pieces(0, window).map(piece).collect()).collect()
}

#[test]
fn windows_of_2000_documents_equal_those_of_trl() {
    let Some(folder) = golden("packing") else { return };
    let lengths: Vec<u32> =
        serde_json::from_value(json(&folder.join("lengths.json"))["lengths"].clone()).unwrap();
    for strategy in ["bfd", "bfd_split", "wrapped"] {
        let expected = |name: &str| json(&folder.join(format!("{strategy}-{name}.json")));
        let all = expected("all");
        let packed = builder(&lengths, 2048, strategy).build().unwrap();
        assert_eq!(Json::from(pieces(&packed, 0)), all["pieces"], "{strategy}");
        assert_eq!(packed.fate().left_out, all["tokens_dropped"].as_u64().unwrap_or(0));
        let efficiency = all["efficiency"].as_f64().unwrap();
        assert!((1.0 - packed.padding_share() - efficiency).abs() < 1e-12, "{strategy}: {packed:?}");
        // TRL packs every 1,000 documents separately.
        let within = expected("map1000");
        let found: Vec<Json> = if strategy == "wrapped" {
            let parts = (0..).zip(lengths.chunks(1000));
            parts
                .flat_map(|(part, lengths)| {
                    pieces(&builder(lengths, 2048, strategy).build().unwrap(), 1000 * part)
                })
                .collect()
        } else {
            let long = if strategy == "bfd" { Long::Cut } else { Long::Split };
            let builder = builder(&lengths, 2048, strategy).best_fit_within(1000).long(long);
            pieces(&builder.build().unwrap(), 0)
        };
        assert_eq!(Json::from(found), within["pieces"], "{strategy}");
    }
}

/// The ids of each window without its padding, and the lengths of its documents.
fn windows(packed: &Packed) -> (Vec<Json>, Vec<Json>) {
    let layout = Layout::new(packed.spec(), 1).unwrap();
    let mut slab = vec![0_u64; layout.bytes() / 8];
    let window = |window| {
        let mut rows = feedline_core::Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 1);
        let mut row = rows.row(0);
        packed.read(window, &mut row, &mut Context::new(0, 0)).unwrap();
        let used = row.field_mut::<u32>(2).unwrap()[0] as usize;
        let lengths: Vec<_> = packed.pieces(0, window).map(|piece| piece.items.len()).collect();
        (json!(row.field_mut::<i64>(0).unwrap()[..used]), json!(lengths))
    };
    (0..packed.len()).map(window).unzip()
}

#[test]
fn windows_of_small_cases_equal_those_of_trl() {
    let Some(folder) = golden("packing") else { return };
    let cases = lines(&folder.join("small-cases.jsonl"));
    for case in &cases {
        let lengths: Vec<u32> = serde_json::from_value(case["lengths"].clone()).unwrap();
        let window = case["window"].as_u64().unwrap() as usize;
        for strategy in ["bfd", "bfd_split", "wrapped"] {
            let expected = &case[strategy];
            if lengths.iter().all(|&length| length == 0) {
                assert!(builder(&lengths, window, strategy).build().is_err());
                continue;
            }
            let (ids, lengths) = windows(&builder(&lengths, window, strategy).build().unwrap());
            assert_eq!(Json::from(ids), expected["input_ids"], "{case}, {strategy}");
            if let Some(expected) = expected.get("seq_lengths") {
                assert_eq!(&Json::from(lengths), expected, "{case}, {strategy}");
            }
        }
    }
    assert!(cases.len() >= 60);
}

/// The numbers of the features of a batch. Without `labels`, the ids are the labels.
fn feature(feature: &Json, name: &str) -> Vec<i64> {
    let of = feature.get(name).unwrap_or(&feature["input_ids"]);
    serde_json::from_value(of.clone()).unwrap()
}

#[test]
fn flattened_batches_equal_those_of_transformers() {
    let Some(folder) = golden("packing") else { return };
    for case in lines(&folder.join("flatten.jsonl")) {
        let features = case["features"].as_array().unwrap().clone();
        let rows = features.len();
        let spec = Spec::new().ragged("input_ids", DType::I64, [], 500).unwrap();
        let spec = spec.ragged("labels", DType::I64, [], 500).unwrap();
        let documents = from_fn(rows as u64, spec, move |id, row, _| {
            row.write_ragged(0, &feature(&features[id as usize], "input_ids"))?;
            Ok(row.write_ragged(1, &feature(&features[id as usize], "labels"))?)
        });
        let flat = Unpadded::builder(documents).field("input_ids").labels("labels").build().unwrap();
        let layout = Layout::new(flat.spec(), rows).unwrap();
        let mut slab = vec![0_u64; layout.bytes() / 8];
        let slab: &mut [u8] = bytemuck::cast_slice_mut(&mut slab);
        let ids: Vec<u64> = (0..rows as u64).collect();
        flat.read_many(&ids, &mut feedline_core::Rows::new(&layout, slab, rows), &mut Context::new(0, 0))
            .unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        layout.finish(slab, rows, &mut extents).unwrap();
        let longs = |field: usize| -> Vec<i64> {
            let bytes = &slab[layout.values(field).start..][..8 * extents[field].items];
            bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect()
        };
        let words = |field: usize| -> Vec<u32> {
            let bytes = &slab[layout.values(field).start..][..4 * extents[field].items];
            bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
        };
        let Some(expected) = case.get("expected") else {
            // transformers refuses a batch of empty documents; here it is a sequence without items.
            assert_eq!((longs(0), words(3), extents[3].longest), (vec![], vec![0], 0), "{case}");
            continue;
        };
        assert_eq!(json!(longs(0)), expected["input_ids"], "{case}");
        assert_eq!(json!(longs(1)), expected["labels"], "{case}");
        assert_eq!(json!(words(2)), expected["position_ids"], "{case}");
        assert_eq!(json!(words(3)), expected["cu_seq_lens_q"], "{case}");
        assert_eq!(json!(extents[3].longest), expected["max_length_q"], "{case}");
    }
}
