//! The samples, their order and their bytes are the same for any number of workers and slots.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{alone, assert_empty, assert_intact, elements};
use feedline::{Device, Loader, LoaderBuilder, Workers};
use feedline_testkit::fixtures::{self, Fine, Random, Wide};

const WORKERS: [usize; 3] = [1, 2, 8];
const DEPTHS: [usize; 3] = [1, 2, 8];

/// Calls `test` with a function that sets the options, for every mix of workers and depth.
fn for_every_mix(test: impl Fn(&dyn Fn(LoaderBuilder) -> LoaderBuilder)) {
    for workers in WORKERS {
        for depth in DEPTHS {
            test(&|builder| builder.workers(Workers::Count(workers)).depth(depth));
        }
    }
}

/// The ids of `epochs`, batch by batch. Checks every byte.
fn batches(fine: &Fine, builder: LoaderBuilder, epochs: &[u64]) -> Vec<Vec<u64>> {
    let device = Device::new_host();
    let mut all = Vec::new();
    {
        let compute = device.stream().unwrap();
        let mut loader = builder.build(&device).unwrap();
        for &epoch in epochs {
            for (step, batch) in (0..).zip(loader.epoch(epoch).unwrap()) {
                let batch = batch.unwrap().wait_on(&compute).unwrap();
                assert_eq!((batch.epoch(), batch.step()), (epoch, step));
                assert_intact(fine, &batch);
                all.push(batch.ids().to_vec());
            }
        }
    }
    assert_empty(&device);
    all
}

#[test]
fn the_order_and_the_bytes_are_the_same_for_any_workers_and_depth() {
    alone(|| {
        // Rows that take some microseconds, so that every batch is split between workers, not only the first.
        let fine = Fine::new(103, 5000).unwrap();
        for shuffled in [false, true] {
            let builder = || {
                let builder = Loader::builder(fine.clone()).batch_size(8);
                if shuffled { builder.shuffle().seed(11) } else { builder }
            };
            let first = batches(&fine, builder().workers(Workers::Count(1)).depth(1), &[0, 1, 2]);
            assert_eq!(first.len(), 3 * 13);
            if !shuffled {
                assert!(first[..13].concat().into_iter().eq(0..103));
            }
            for_every_mix(|mix| assert_eq!(batches(&fine, mix(builder()), &[0, 1, 2]), first));
        }
    });
}

#[test]
fn a_shuffle_differs_per_epoch_and_seed() {
    alone(|| {
        let fine = Fine::new(103, 16).unwrap();
        let sampler = |seed, epoch| {
            batches(&fine, Loader::builder(fine.clone()).batch_size(10).shuffle().seed(seed), &[epoch])
                .concat()
        };
        let orders: BTreeSet<Vec<u64>> =
            [(1, 0), (1, 1), (2, 0), (2, 7)].map(|(seed, epoch)| sampler(seed, epoch)).into();
        assert_eq!(orders.len(), 4, "two orders are the same");
        assert_eq!(sampler(2, 7), sampler(2, 7));
    });
}

#[test]
fn any_epoch_can_be_requested_repeatedly() {
    alone(|| {
        let fine = Fine::new(57, 16).unwrap();
        let builder =
            || Loader::builder(fine.clone()).batch_size(8).shuffle().seed(5).workers(Workers::Count(2));
        let single = |epoch| batches(&fine, builder(), &[epoch]);
        let requested = [4, 4, 5, 0, 1 << 40, 4, u64::MAX, u64::MAX, 0];
        let wanted: Vec<_> = requested.iter().flat_map(|&epoch| single(epoch)).collect();
        assert_eq!(batches(&fine, builder(), &requested), wanted);
        let sequence: Vec<_> = (0..5).flat_map(single).collect();
        assert_eq!(batches(&fine, builder().epochs(5), &[0, 1, 2, 3, 4]), sequence);
    });
}

#[test]
fn a_short_last_batch_is_delivered_or_dropped() {
    alone(|| {
        for (len, batch, sizes_kept) in
            [(10, 4, vec![4, 4, 2]), (8, 4, vec![4, 4]), (3, 4, vec![3]), (1, 1, vec![1])]
        {
            let fine = Fine::new(len, 5).unwrap();
            let sizes = |last_batch| {
                let builder = Loader::builder(fine.clone()).batch_size(batch).last_batch(last_batch);
                batches(&fine, builder, &[0, 1]).iter().map(Vec::len).collect::<Vec<_>>()
            };
            assert_eq!(sizes(feedline::LastBatch::Keep), [sizes_kept.clone(), sizes_kept.clone()].concat());
            if len >= batch as u64 {
                let full: Vec<_> = sizes_kept.into_iter().filter(|&size| size == batch).collect();
                assert_eq!(sizes(feedline::LastBatch::Drop), [full.clone(), full].concat());
            }
        }
    });
}

#[test]
fn every_sample_is_read_and_delivered_once_per_epoch() {
    alone(|| {
        for_every_mix(|mix| {
            let fine = Fine::new(101, 16).unwrap();
            let (counted, reads) = fixtures::counting(fine.clone());
            let epochs = 3;
            let builder = mix(Loader::builder(counted).batch_size(8).shuffle().seed(3)).epochs(epochs);
            let mut delivered = batches(&fine, builder, &[0, 1, 2]).concat();
            delivered.sort_unstable();
            assert!(delivered.into_iter().eq((0..101).flat_map(|id| [id; 3])));
            assert_eq!(reads.other_than(epochs), [], "ids and how often each was read");
        });
    });
}

#[test]
fn random_augmentation_is_bit_equal_for_any_workers_and_depth() {
    const DRAWS: usize = 5;
    alone(|| {
        for_every_mix(|mix| {
            let device = Device::new_host();
            let compute = device.stream().unwrap();
            let data = Random::new(61, DRAWS).unwrap();
            let mut loader =
                mix(Loader::builder(data).batch_size(9).shuffle().seed(17)).build(&device).unwrap();
            for epoch in [0, 1, 0] {
                for (batch, first) in loader.epoch(epoch).unwrap().zip((0..).step_by(9)) {
                    let batch = batch.unwrap().wait_on(&compute).unwrap();
                    let draws = elements(&compute, batch.field::<f64>("draws").unwrap());
                    let positions = first..first + batch.len() as u64;
                    let wanted = positions.flat_map(|draw| Random::expected(17, epoch, draw, DRAWS));
                    assert!(draws.into_iter().map(f64::to_bits).eq(wanted.map(f64::to_bits)), "{batch:?}");
                }
            }
        });
    });
}

#[test]
fn a_field_of_every_type_arrives() {
    alone(|| {
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader =
            Loader::builder(Wide::new(30).unwrap()).batch_size(7).shuffle().seed(1).build(&device).unwrap();
        let fields = loader.layout().spec().fields().to_vec();
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            macro_rules! check {
                ($($index:literal: $type:ty),*) => {$(
                    let got = elements(&compute, batch.field::<$type>(fields[$index].name()).unwrap());
                    let n = fields[$index].elements();
                    let values =
                        batch.ids().iter().flat_map(|&id| (0..n).map(move |k| Wide::value(id, $index, k)));
                    let wanted: Vec<f64> = values.map(f64::from).collect();
                    let got: Vec<f64> = got.into_iter().map(f64::from).collect();
                    assert_eq!(got, wanted, "{}", stringify!($type));
                )*};
            }
            check!(0: u8, 1: i8, 2: u16, 3: i16, 4: u32, 5: i32);
            check!(7: half::f16, 8: half::bf16, 9: f32, 10: f64, 11: u8);
            let got = elements(&compute, batch.field::<i64>(fields[6].name()).unwrap());
            let wanted =
                batch.ids().iter().flat_map(|&id| (0..7).map(move |k| i64::from(Wide::value(id, 6, k))));
            assert!(got.into_iter().eq(wanted), "i64");
        }
    });
}

#[test]
fn a_slow_sample_does_not_change_the_order() {
    alone(|| {
        let fine = Fine::new(40, 16).unwrap();
        let slow = || fixtures::slow(fine.clone(), [0, 19], Duration::from_millis(40));
        for_every_mix(|mix| {
            let ids = batches(&fine, mix(Loader::builder(slow()).batch_size(4)).epochs(1), &[0]).concat();
            assert!(ids.into_iter().eq(0..40));
        });
    });
}
