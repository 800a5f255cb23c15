//! Each way to lay documents into batches: every item comes exactly once, also after 200 resumes and on 1, 2,
//! 3 and 8 ranks, in a fixed order.

use crate::common::alone;
use feedline::dataset::{Cost, Long, Packed, PackedBuilder, Random, Unpadded};
use feedline::{Cursor, DType, Dataset, Loader, LoaderBuilder, Sampler, Spec, Workers, World};
use feedline_core::from_fn;

/// 240 documents of 0 to 40 ids with labels; ids differ.
fn documents() -> (impl Dataset, Vec<u32>) {
    let random = &mut Random::from_key(44);
    let lengths: Vec<u32> = (0..240).map(|_| random.below(41) as u32).collect();
    let spec = Spec::new().ragged("ids", DType::I64, [], 40).unwrap();
    let spec = spec.ragged("labels", DType::I64, [], 40).unwrap();
    let of = lengths.clone();
    let set = from_fn(240, spec, move |id, row, _| {
        let ids: Vec<i64> = (1..=i64::from(of[id as usize])).map(|item| 100 * id as i64 + item).collect();
        row.write_ragged(0, &ids)?;
        Ok(row.write_ragged(1, &ids)?)
    });
    (set, lengths)
}

fn packed(order: fn(PackedBuilder) -> PackedBuilder) -> LoaderBuilder {
    let (set, lengths) = documents();
    let builder = Packed::builder(set, &lengths, 64).field("ids").labels("labels");
    Loader::builder(order(builder).build().unwrap())
}

/// A mode's name, its loader, and the hash of the order of its epochs 0 and 1.
type Mode = (&'static str, fn() -> LoaderBuilder, u64);

/// Every mode.
fn modes() -> Vec<Mode> {
    vec![
        ("in order", || packed(PackedBuilder::in_order), 0x86A1_058E_F8F4_A8E1),
        ("best fit", || packed(|builder| builder.best_fit().shuffle(3)), 0xE6F7_D82C_86CE_7435),
        (
            "best fit within 50",
            || packed(|builder| builder.best_fit_within(50).shuffle(3)),
            0xBC0E_A5FA_C820_DEA5,
        ),
        ("cut", || packed(|builder| builder.best_fit().long(Long::Cut)), 0x4E28_398B_1B1F_4F1D),
        (
            "token budget",
            || {
                let (set, lengths) = documents();
                let builder = Packed::builder(set, &lengths, 64).field("ids").labels("labels").unpadded();
                let batches = builder.build().unwrap();
                let sampler = Sampler::alike(&batches.costs(Cost::Squares), 24).unwrap();
                Loader::builder(batches).sampler(sampler).seed(5)
            },
            0x965F_8645_097D_6405,
        ),
        (
            "unpadded",
            || {
                let set = Unpadded::builder(documents().0).field("ids").labels("labels").build().unwrap();
                Loader::builder(set)
            },
            0x5590_6326_9864_7457,
        ),
    ]
}

/// The ids of a batch's samples, and its documents' ids without padding.
type Delivered = (Vec<u64>, Vec<i64>);

/// The batches of an epoch, from a cursor or from its beginning, up to `max`; and the cursor after them.
fn deliver(builder: LoaderBuilder, epoch: u64, from: Option<Cursor>, max: usize) -> (Vec<Delivered>, Cursor) {
    let mut loader = builder.build_host().unwrap();
    let mut batches = Vec::new();
    {
        let part = match from {
            Some(cursor) => loader.resume(cursor).unwrap(),
            None => loader.epoch(epoch).unwrap(),
        };
        for batch in part.take(max) {
            let batch = batch.unwrap();
            // A row of padding, so that all ranks take the step.
            if batch.valid_rows() == 0 {
                batches.push(Delivered::default());
                continue;
            }
            let ids = match batch.field::<i64>("ids") {
                Ok(ids) => ids.to_vec(),
                Err(_) => batch.ragged::<i64>("ids").unwrap().0.to_vec(),
            };
            let labels = match batch.field::<i64>("labels") {
                Ok(labels) => labels.to_vec(),
                Err(_) => batch.ragged::<i64>("labels").unwrap().0.to_vec(),
            };
            assert!(ids.iter().zip(&labels).all(|(id, label)| id == label || *label == -100));
            batches.push((batch.ids().to_vec(), ids.into_iter().filter(|id| *id > 0).collect()));
        }
    }
    let cursor = loader.checkpoint().unwrap().cursor;
    (batches, cursor)
}

/// A hash of all ids in their order.
fn hash(batches: &[Delivered]) -> u64 {
    let ids = batches.iter().flat_map(|(_, ids)| ids);
    ids.fold(0xCBF2_9CE4_8422_2325, |hash, id| (hash ^ *id as u64).wrapping_mul(0x0100_0000_01B3))
}

#[test]
fn every_mode_delivers_each_item_once_after_200_resumes_and_in_worlds_of_1_2_3_and_8() {
    alone(|| {
        let mut wrong = Vec::new();
        for (name, build, golden) in modes() {
            let builder = || match name {
                "token budget" => build().batch_size(1),
                _ => build().batch_size(3).shuffle().seed(5),
            };
            let builder = || builder().workers(Workers::Count(1));
            let epochs: Vec<Vec<Delivered>> =
                (0..2).map(|epoch| deliver(builder(), epoch, None, usize::MAX).0).collect();
            let found = hash(&epochs.concat());
            if found != golden {
                wrong.push(format!("{name}: {found:#x}"));
            }
            let (_, lengths) = documents();
            let wanted: Vec<i64> = (0..)
                .zip(&lengths)
                .flat_map(|(id, length)| (1..=i64::from(*length)).map(move |item| 100 * id + item))
                .collect();
            let sorted = |batches: &[Delivered]| {
                let mut ids: Vec<i64> = batches.iter().flat_map(|(_, ids)| ids.clone()).collect();
                ids.sort_unstable();
                ids
            };
            for epoch in &epochs {
                assert_eq!(sorted(epoch), wanted, "{name}");
            }
            // Resumes at random steps of epoch 1, with other workers.
            let random = &mut Random::from_key(7);
            for resume in 0..200 {
                let steps = 1 + random.below(epochs[1].len() as u64 - 1) as usize;
                let (before, cursor) = deliver(builder(), 1, None, steps);
                let workers = Workers::Count(1 + resume % 3);
                let (after, _) = deliver(builder().workers(workers), 1, Some(cursor), usize::MAX);
                assert!([before, after].concat() == epochs[1], "{name}, resumed after {steps} steps");
            }
            for size in [1, 2, 3, 8] {
                let ranks: Vec<Vec<Delivered>> = (0..size)
                    .map(|rank| {
                        deliver(builder().world(World::new(rank, size).unwrap()), 1, None, usize::MAX).0
                    })
                    .collect();
                assert!(ranks.iter().all(|rank| rank.len() == ranks[0].len()), "{name}, {size} ranks");
                assert_eq!(sorted(&ranks.concat()), wanted, "{name}, {size} ranks");
                let all: Vec<u64> = (0..ranks[0].len())
                    .flat_map(|step| ranks.iter().flat_map(move |rank| rank[step].0.clone()))
                    .collect();
                let one: Vec<u64> = epochs[1].iter().flat_map(|(ids, _)| ids.clone()).collect();
                assert_eq!(all, one, "{name}, {size} ranks together");
            }
        }
        assert!(wrong.is_empty(), "other orders: {}", wrong.join(", "));
    });
}
