//! Sources whose records are shuffled in a buffer, or whose shards are split over the ranks.

use std::collections::BTreeSet;

use crate::common::{alone, alone_in_parts};
use crate::iterable::{LENS, SEED, archive, epoch, everywhere, generator, options, rows};
use crate::restoring::Restored;
use feedline::{Device, LastBatch, Loader, LoaderBuilder, Sampler, Source, World, source};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::restore::{From, MIXES, Pipeline};
use feedline_testkit::{Watchdog, watchdog};

/// Bytes of a shuffle buffer whose blocks have two to six records.
pub(crate) const BUFFER: u64 = 600;

#[test]
fn a_shuffled_source_resumes_at_every_step() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path());
        everywhere(|| generator().shuffle_buffer(BUFFER));
        everywhere(|| options(Loader::source_builder(archive.clone())).shuffle_buffer(2 * BUFFER));
        // One block has all records, or one record.
        everywhere(|| generator().shuffle_buffer(1 << 20).last_batch(LastBatch::Drop));
        everywhere(|| options(Loader::source_builder(Generator::new(LENS).unwrap())).shuffle_buffer(1));
        for rank in 0..2 {
            let world = World::new(rank, 2).unwrap();
            everywhere(|| generator().batch_size(5).world(world).shuffle_buffer(BUFFER));
            everywhere(|| generator().batch_size(5).world(world).split_shards());
            everywhere(|| generator().batch_size(5).world(world).split_shards().shuffle_buffer(BUFFER));
        }
    });
}

#[test]
fn a_shuffle_buffer_delivers_every_record_once_in_another_order_each_epoch() {
    alone(|| {
        let places = |builder: LoaderBuilder<dyn Source>, number| -> Vec<_> {
            epoch(builder, number).iter().flat_map(rows).collect()
        };
        let mut orders = BTreeSet::new();
        for number in 0..3 {
            let delivered = places(generator().shuffle_buffer(BUFFER), number);
            let plain = places(generator(), number);
            assert_ne!(delivered, plain);
            let sorted = |places: &[_]| places.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!((delivered.len(), sorted(&delivered)), (plain.len(), sorted(&plain)));
            assert!(orders.insert(delivered));
        }
        let other = generator().shuffle_buffer(BUFFER).shuffle_shards().seed(SEED + 1);
        // `rows` checks random numbers of SEED, so only ids are compared here.
        let ids = |builder| -> Vec<u64> { epoch(builder, 0).into_iter().flat_map(|step| step.ids).collect() };
        assert_ne!(ids(other), ids(generator().shuffle_buffer(BUFFER)), "another seed");
        let hesitant = || options(Loader::source_builder(Generator::new(LENS).unwrap().hesitant()));
        let wanted = ids(generator().shuffle_buffer(BUFFER));
        assert_eq!(ids(hesitant().shuffle_buffer(BUFFER)), wanted, "a source that stalls");
    });
}

#[test]
fn a_shuffled_source_resumes_exactly_at_200_random_steps() {
    alone_in_parts(|| {
        let _watchdog = Watchdog::new(watchdog::LIMIT, "200 resumes");
        let loader = |mix| {
            let source = Generator::new([310, 90, 0, 501, 222, 340]).unwrap();
            Restored::new(options(Loader::source_builder(source)).batch_size(5).shuffle_buffer(20_000), mix)
        };
        let steps = loader(MIXES[4]).run(From::Epoch(1), usize::MAX);
        assert_eq!(steps.len(), 1463_usize.div_ceil(5));
        let mut random = feedline_core::Random::from_key(SEED);
        for resume in 0..200 {
            let at = random.below(steps.len() as u64 - 1) as usize;
            let mut loader = loader(MIXES[resume % MIXES.len()]);
            let rest = loader.run(From::Cursor(steps[at].cursor), 1 + resume % 30);
            assert!(!rest.is_empty());
            for (offset, step) in rest.iter().enumerate() {
                assert!(*step == steps[at + 1 + offset], "step {offset} after a resume at step {at}");
            }
        }
    });
}

/// Statistic of `bins` x `bins` cells: from which part of the epoch the records of each part come. It is near
/// `(bins - 1)^2` for a uniform shuffle, and `(bins - 1) * records` without one.
fn chi_square(order: &[u64], bins: usize) -> f64 {
    let mut cells = vec![0_u64; bins * bins];
    for (to, &from) in order.iter().enumerate() {
        cells[from as usize * bins / order.len() * bins + to * bins / order.len()] += 1;
    }
    let expected = order.len() as f64 / (bins * bins) as f64;
    cells.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

/// The quality of an epoch of a source whose records lie in order, such as sorted by class.
struct Quality {
    /// [`chi_square`] of 64 cells.
    chi_square: f64,
    /// The mean distance of two records that were neighbours.
    apart: f64,
}

fn quality(
    shards: u64,
    records: u64,
    options: impl Fn(LoaderBuilder<dyn Source>) -> LoaderBuilder<dyn Source>,
) -> Quality {
    let source = Generator::new(vec![records; shards as usize]).unwrap();
    let builder = options(Loader::source_builder(source).batch_size(500).seed(SEED));
    let mut loader = builder.build(&Device::new_host()).unwrap();
    let mut order = Vec::new();
    for batch in loader.epoch(0).unwrap() {
        order.extend(batch.unwrap().ids().iter().map(|&id| {
            let (shard, number) = source::place(id);
            shard * records + number
        }));
    }
    assert_eq!(order.len() as u64, shards * records);
    let mut at = vec![0_i64; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| at[from as usize] = to as i64);
    let apart = at.windows(2).map(|pair| (pair[1] - pair[0]).unsigned_abs()).sum::<u64>();
    Quality { chi_square: chi_square(&order, 8), apart: apart as f64 / order.len() as f64 }
}

/// 16,000 records, and a buffer for half of them. The order is fixed, so the figures are too.
#[test]
fn a_buffer_mixes_records_and_many_shards_bring_it_near_a_full_shuffle() {
    alone(|| {
        const RECORDS: u64 = 16_000;
        // Records have 28 bytes on average, and 40 are counted besides.
        let buffer = RECORDS / 2 * 68;
        let mut ids = vec![0; RECORDS as usize];
        Sampler::Shuffle.fill(RECORDS, SEED, 0, 0, &mut ids);
        let full = chi_square(&ids, 8);
        println!("49 degrees of freedom, full shuffle: {full:.0}");
        assert!(full < 80.0);
        for (shards, near) in [(64, 200.0), (1600, 10.0)] {
            let quality = |options: fn(LoaderBuilder<dyn Source>, u64) -> LoaderBuilder<dyn Source>| {
                quality(shards, RECORDS / shards, |builder| options(builder, buffer))
            };
            let none = quality(|builder, _| builder);
            let ordered = quality(|builder, _| builder.sampler(Sampler::Shuffle));
            let alone = quality(|builder, buffer| builder.shuffle_buffer(buffer));
            let both = quality(|builder, buffer| builder.sampler(Sampler::Shuffle).shuffle_buffer(buffer));
            for (what, quality) in
                [("no shuffle", &none), ("shards", &ordered), ("buffer", &alone), ("both", &both)]
            {
                let Quality { chi_square, apart } = quality;
                println!("{shards} shards, {what}: chi-square {chi_square:.0}, neighbours {apart:.0} apart");
            }
            assert!(none.chi_square > 100_000.0 && none.apart < 2.0);
            assert!(both.chi_square < 0.8 * ordered.chi_square && both.chi_square < near * full);
            assert!(alone.chi_square < none.chi_square / 2.0);
            assert!(both.apart > 900.0 && alone.apart > 900.0, "{} {}", both.apart, alone.apart);
        }
    });
}

#[test]
fn three_shards_on_four_ranks_are_split_within_the_shards() {
    alone(|| {
        let lens = [40, 7, 25];
        let loader = |rank, ranks| {
            let builder = Loader::source_builder(Generator::new(lens).unwrap()).batch_size(4);
            builder.shuffle_shards().seed(SEED).world(World::new(rank, ranks).unwrap())
        };
        let refused = loader(0, 4).build(&Device::new_host()).unwrap_err();
        let message = refused.message();
        assert!(
            ["3 shards", "4 ranks", "split_shards"].iter().all(|word| message.contains(word)),
            "{message}"
        );
        for (ranks, number) in [(2, 0), (4, 0), (4, 1), (30, 0)] {
            let mut all = Vec::new();
            let mut counts = Vec::new();
            for rank in 0..ranks {
                let steps = epoch(loader(rank, ranks).split_shards(), number);
                let read: Vec<_> = steps.iter().flat_map(rows).collect();
                counts.push(read.len());
                all.extend(read);
            }
            let (min, max) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
            assert!(min > 0 && max - min <= lens.len(), "{ranks} ranks: {counts:?}");
            all.sort_unstable();
            let wanted = (0..).zip(lens).flat_map(|(shard, len)| (0..len).map(move |number| (shard, number)));
            assert!(all.iter().copied().eq(wanted), "{ranks} ranks read every record once");
        }
    });
}

#[test]
fn a_cursor_of_another_order_of_records_is_refused() {
    alone(|| {
        let saved = epoch(generator().shuffle_buffer(BUFFER), 0)[1].cursor;
        for other in [generator(), generator().shuffle_buffer(BUFFER + 1), generator().split_shards()] {
            let mut loader = other.build(&Device::new_host()).unwrap();
            let error = loader.resume(saved).expect_err("an error");
            assert!(error.message().contains("shuffle buffer"), "{error}");
        }
    });
}
