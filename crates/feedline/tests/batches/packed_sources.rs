//! Documents of a stream in windows: every item comes exactly once, also after 200 resumes and on 1, 2, 3 and
//! 8 ranks, in a fixed order.

use crate::common::alone;
use feedline::dataset::{PackedSource, PackedSourceBuilder, Random};
use feedline::{Cursor, DType, Loader, LoaderBuilder, Source, Spec, Workers, World, source};

const SHARDS: u64 = 3;
const DOCUMENTS: u64 = 160;

/// The ids of a document: 0 to 40 of them; ids differ.
fn ids(shard: u64, document: u64) -> Vec<i64> {
    let length = Random::from_key(1000 * shard + document).below(41) as i64;
    (1..=length).map(|item| 100 * (1000 * shard + document) as i64 + item).collect()
}

fn packed(order: fn(PackedSourceBuilder) -> PackedSourceBuilder) -> PackedSource {
    let spec = Spec::new().ragged("ids", DType::I64, [], 40).unwrap();
    let records = |_, shard: u64| Ok((0..DOCUMENTS).map(move |number| Ok(vec![shard as u8, number as u8])));
    let documents = source::from_iter(SHARDS, spec, records, |record, row, _| {
        Ok(row.write_ragged(0, &ids(record[0].into(), record[1].into()))?)
    });
    order(PackedSource::builder(documents, 64).field("ids").labels_of("ids")).build().unwrap()
}

/// A mode's name, its source, and the hash of the order of its epochs 0 and 1.
type Mode = (&'static str, fn(PackedSourceBuilder) -> PackedSourceBuilder, u64);

const MODES: [Mode; 3] = [
    ("best fit within 50", |builder| builder.within(50), 0xC7A8_04E7_7872_FF1B),
    ("in order within 30", |builder| builder.in_order().within(30), 0x79DA_ECCC_2FB2_B451),
    ("unpadded", |builder| builder.within(64).unpadded(), 0x9639_D8B4_64C1_8729),
];

fn loader(order: fn(PackedSourceBuilder) -> PackedSourceBuilder) -> LoaderBuilder<dyn Source> {
    let builder = Loader::source_builder(packed(order)).batch_size(3).seed(5).shuffle_shards();
    builder.shuffle_buffer(12_000).workers(Workers::Count(1))
}

/// The ids of each batch of an epoch, from a cursor or from its beginning; and the cursor after them.
fn deliver(
    builder: LoaderBuilder<dyn Source>,
    from: Result<Cursor, u64>,
    max: usize,
) -> (Vec<Vec<i64>>, Cursor) {
    let mut loader = builder.build_host().unwrap();
    let mut batches = Vec::new();
    {
        let part = match from {
            Ok(cursor) => loader.resume(cursor).unwrap(),
            Err(epoch) => loader.epoch(epoch).unwrap(),
        };
        for batch in part.take(max) {
            let batch = batch.unwrap();
            let of = |name: &str| match batch.field::<i64>(name) {
                Ok(ids) => ids.to_vec(),
                Err(_) => batch.ragged::<i64>(name).unwrap().0.to_vec(),
            };
            let (ids, labels) = (of("ids"), of("labels"));
            assert!(ids.iter().zip(&labels).all(|(id, label)| id == label || *label == -100));
            batches.push(ids.into_iter().filter(|id| *id > 0).collect());
        }
    }
    let cursor = loader.checkpoint().unwrap().cursor;
    (batches, cursor)
}

fn hash(batches: &[Vec<i64>]) -> u64 {
    let ids = batches.iter().flatten();
    ids.fold(0xCBF2_9CE4_8422_2325, |hash, id| (hash ^ *id as u64).wrapping_mul(0x0100_0000_01B3))
}

fn sorted(batches: &[Vec<i64>]) -> Vec<i64> {
    let mut ids = batches.concat();
    ids.sort_unstable();
    ids
}

#[test]
fn every_mode_of_a_stream_delivers_each_item_once_after_200_resumes_and_in_worlds_of_1_2_3_and_8() {
    alone(|| {
        let places = (0..SHARDS).flat_map(|shard| (0..DOCUMENTS).map(move |document| (shard, document)));
        let wanted: Vec<i64> = places.flat_map(|(shard, document)| ids(shard, document)).collect();
        let mut wrong = Vec::new();
        for (name, order, golden) in MODES {
            let epochs = [0, 1].map(|epoch| deliver(loader(order), Err(epoch), usize::MAX).0);
            assert_ne!(epochs[0], epochs[1], "{name}: the buffer shuffles windows");
            epochs.iter().for_each(|epoch| assert!(sorted(epoch) == wanted, "{name}"));
            let found = hash(&epochs.concat());
            if found != golden {
                wrong.push(format!("{name}: {found:#x}"));
            }
            let random = &mut Random::from_key(7);
            for resume in 0..200 {
                let steps = 1 + random.below(epochs[1].len() as u64 - 1) as usize;
                let (before, cursor) = deliver(loader(order), Err(1), steps);
                let workers = Workers::Count(1 + resume % 3);
                let (after, _) = deliver(loader(order).workers(workers), Ok(cursor), usize::MAX);
                assert!([before, after].concat() == epochs[1], "{name}, resumed after {steps} steps");
            }
            for size in [1, 2, 3, 8] {
                let rank = |rank| {
                    let builder = loader(order).split_shards().world(World::new(rank, size).unwrap());
                    deliver(builder, Err(1), usize::MAX).0
                };
                let ranks: Vec<Vec<i64>> = (0..size).flat_map(rank).collect();
                assert!(sorted(&ranks) == wanted, "{name}, {size} ranks");
            }
        }
        assert!(wrong.is_empty(), "other orders: {}", wrong.join(", "));
    });
}
