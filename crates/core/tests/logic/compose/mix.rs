use std::collections::BTreeMap;

use feedline_core::Dataset;
use feedline_core::compose::{Mix, MixBuilder};

use super::*;

fn mix(sets: &[(i64, u64, f64)], samples: Option<u64>) -> Mix {
    let builder = samples.map_or(Mix::builder(3), |samples| Mix::builder(3).samples(samples));
    let add = |builder: MixBuilder, &(first, len, weight): &(i64, u64, f64)| {
        builder.dataset(Numbered::new(first, len), weight)
    };
    sets.iter().fold(builder, add).build().expect("a mix")
}

#[test]
fn a_mix_keeps_the_contract_and_draws_for_each_sample() {
    let mix = mix(&[(0, 30, 2.0), (1000, 7, 1.0)], Some(60));
    assert_keeps_the_contract(&mix);
    let ids: Vec<u64> = (0..60).collect();
    assert_draws_differ(&[read(&mix, &ids, 0), read(&mix, &ids, 1)].concat());
}

#[test]
fn every_prefix_has_its_shares_to_within_the_number_of_sets() {
    for weights in [vec![1.0], vec![1.0, 1.0], vec![0.7, 0.2, 0.1], vec![1.0, 100.0, 3.0, 3.0, 0.01]] {
        let sets: Vec<_> = weights.iter().map(|&weight| (0, 1000, weight)).collect();
        let (mix, total) = (mix(&sets, Some(200_000)), weights.iter().sum::<f64>());
        let mut drawn = vec![0_u64; weights.len()];
        for id in 0..200_000 {
            let (part, _) = mix.place(0, id).expect("a sample");
            drawn[part] += 1;
            for (&drawn, weight) in drawn.iter().zip(&weights) {
                let share = weight / total * (id + 1) as f64;
                // A share is rounded to one of 65,536.
                let rounding = (id + 1) as f64 / 65_536.0;
                let off = (drawn as f64 - share).abs();
                assert!(off <= weights.len() as f64 + rounding, "{weights:?}, {id}: {drawn}, not {share}");
            }
        }
        assert!((0..drawn.len()).all(|part| mix.draws(0, part) == drawn[part]), "{weights:?}");
    }
}

/// By definition, the draws of a set, in the order of epochs and positions, are the set's own epochs one
/// after the other.
#[test]
fn each_set_gives_every_sample_once_per_epoch_of_its_own() {
    for samples in [1, 10, 37, 100, 70_000] {
        let sets = [(0, 30, 2.0), (0, 7, 1.0), (0, 5000, 1.0)];
        let mix = mix(&sets, Some(samples));
        let mut draws = BTreeMap::<usize, Vec<u64>>::new();
        for epoch in 0..(40_000 / samples).max(2) {
            for id in 0..samples {
                let (part, sample) = mix.place(epoch, id).expect("a sample");
                draws.entry(part).or_default().push(sample);
            }
        }
        for (part, draws) in draws {
            let len = sets[part].1 as usize;
            let mut orders = Vec::new();
            for own_epoch in draws.chunks(len) {
                let mut sorted = own_epoch.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(
                    sorted.len(),
                    own_epoch.len(),
                    "{samples} per epoch: a sample of part {part} twice"
                );
                orders.push(own_epoch.to_vec());
            }
            assert!(orders.len() < 2 || orders[0] != orders[1], "each epoch of a set has its own order");
        }
    }
}

#[test]
fn the_default_length_is_that_of_all_sets_and_later_epochs_do_not_overflow() {
    let mix = mix(&[(0, 30, 2.0), (1000, 7, 1.0)], None);
    assert_eq!((mix.len(), mix.place(0, 37)), (37, None));
    assert_eq!((0..2).map(|part| mix.draws(0, part)).sum::<u64>(), 37);
    let (part, sample) = mix.place(u64::MAX, 36).expect("a sample");
    assert!(sample < [30, 7][part]);
    assert_eq!(read(&mix, &[36], u64::MAX).len(), 1);
}

#[test]
fn an_error_names_the_set_its_sample_and_its_file() {
    let failing =
        Mix::builder(3).dataset(Numbered::new(0, 4), 1.0).dataset(Numbered::new(200, 2).failing(1), 1.0);
    let mix = failing.build().expect("a mix");
    let bad = (0..6).find(|&id| mix.place(0, id) == Some((1, 1))).expect("the sample is drawn");
    let (_, why) = read_until(&mix, &[bad]);
    assert_eq!(why, "in part 1 of the mix: planned failure of 1 (file high, sample 1)");
}

#[test]
fn sets_and_weights_that_cannot_be_mixed_are_refused() {
    let one = || Numbered::new(0, 4);
    for (weight, why) in
        [(0.0, "0 in every epoch"), (-1.0, "0 or more"), (f64::NAN, "0 or more"), (f64::INFINITY, "finite")]
    {
        let said = refused(Mix::builder(0).dataset(one(), 1.0).dataset(one(), weight).build());
        assert!(said.contains(why), "{said}");
    }
    assert!(
        refused(Mix::builder(0).dataset(one(), 1.0).dataset(one(), 1e-9).build())
            .contains("raise its weight")
    );
    assert!(
        refused(Mix::builder(0).dataset(one(), f64::MAX).dataset(one(), f64::MAX).build())
            .contains("too large")
    );
    assert!(
        refused(Mix::builder(0).dataset(one(), 1.0).dataset(Numbered::new(0, 0), 1.0).build())
            .contains("empty")
    );
    assert!(refused(Mix::builder(0).build()).contains("no data sets"));
    assert!(refused(Mix::builder(0).dataset(one(), 1.0).samples(u64::MAX).build()).contains("2^63"));
    let of = |seed, weight, samples| {
        let builder = Mix::builder(seed).dataset(one(), 1.0).dataset(Numbered::new(9, 9), weight);
        builder.samples(samples).build().expect("a mix")
    };
    assert_fingerprints_differ([&of(0, 1.0, 9), &of(1, 1.0, 9), &of(0, 2.0, 9), &of(0, 1.0, 10)]);
}

/// Sets by weights that change.
fn changing(changes: &[(Option<u64>, u64, [f64; 3])], samples: u64) -> Mix {
    let lens = [30, 7, 500];
    let builder = Mix::builder(3).samples(samples);
    let builder = (0..3).fold(builder, |builder, part| builder.dataset(Numbered::new(0, lens[part]), 1.0));
    let add = |builder: MixBuilder, &(epoch, at, weights): &(Option<u64>, u64, [f64; 3])| match epoch {
        Some(epoch) => builder.weights_from_epoch(epoch, &weights),
        None => builder.weights_from(at, &weights),
    };
    changes.iter().fold(builder, add).build().expect("a mix")
}

#[test]
fn weights_that_change_are_a_function_of_the_epoch_and_the_position() {
    let changes = [(None, 150, [8.0, 1.0, 1.0]), (Some(4), 0, [0.0, 1.0, 3.0]), (None, 950, [1.0, 0.0, 0.0])];
    let mix = changing(&changes, 100);
    let mut of_set = BTreeMap::<usize, Vec<u64>>::new();
    let mut drawn = Vec::new();
    for at in 0..1200 {
        let (part, sample) = mix.place(at / 100, at % 100).expect("a sample");
        of_set.entry(part).or_default().push(sample);
        drawn.push(part);
    }
    // Compares the shares of each phase.
    for (range, shares) in [
        (0..150, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
        (150..400, [0.8, 0.1, 0.1]),
        (400..950, [0.0, 0.25, 0.75]),
        (950..1200, [1.0, 0.0, 0.0]),
    ] {
        let epochs = 2 + (range.end - range.start) / 100;
        for (part, share) in shares.into_iter().enumerate() {
            let found = drawn[range.clone()].iter().filter(|&&of| of == part).count() as f64;
            let off = (found - share * (range.end - range.start) as f64).abs();
            assert!(off <= 3.0 * epochs as f64 && (share > 0.0 || found == 0.0), "{range:?} {part}: {found}");
        }
    }
    // Across the changes, each set still gives every sample once per pass over it.
    for (part, samples) in of_set {
        for own_epoch in samples.chunks_exact([30, 7, 500][part]) {
            let mut sorted = own_epoch.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), own_epoch.len(), "a sample of part {part} twice");
        }
    }
    let in_epochs = |part| (0..12).map(|epoch| mix.draws(epoch, part)).sum::<u64>();
    assert_eq!((0..3).map(in_epochs).sum::<u64>(), 1200);
    assert_eq!((mix.draws(11, 0), mix.draws(11, 1), mix.draws(4, 0)), (100, 0, 0));
    assert_keeps_the_contract(&mix);
}

#[test]
fn a_change_to_the_same_weights_changes_no_sample_of_whole_epochs_and_another_one_the_fingerprint() {
    let plain = changing(&[], 100);
    let same = changing(&[(Some(2), 0, [1.0; 3])], 100);
    for at in 0..500 {
        assert_eq!(plain.place(at / 100, at % 100), same.place(at / 100, at % 100), "{at}");
    }
    let other = changing(&[(Some(2), 0, [1.0, 2.0, 1.0])], 100);
    assert_ne!(plain.fingerprint(), other.fingerprint());
    assert!((0..200).all(|at| plain.place(at / 100, at % 100) == other.place(at / 100, at % 100)));
    assert!((200..300).any(|at| plain.place(at / 100, at % 100) != other.place(at / 100, at % 100)));
}

#[test]
fn a_set_of_weight_0_begins_in_the_epoch_that_gives_it_weight_with_its_own_epoch_0() {
    let (first, second) = (Numbered::new(0, 10), Numbered::new(100, 10));
    let mix = Mix::builder(3).dataset(first, 0.0).dataset(second, 1.0).samples(10);
    let mix = mix.weights_from_epoch(2, &[1.0, 0.0]).weights_from_epoch(3, &[1.0, 1.0]).build().unwrap();
    let of = |epoch| (0..10).map(|id| mix.place(epoch, id).unwrap()).collect::<Vec<_>>();
    assert_eq!((0..4).map(|epoch| mix.draws(epoch, 0)).collect::<Vec<_>>(), [0, 0, 10, 5]);
    assert!([0, 1].iter().all(|&epoch| of(epoch).iter().all(|&(part, _)| part == 1)));
    // Its first epoch has each of its samples once, in the order of a set that begins with the run.
    let alone = Mix::builder(3).dataset(Numbered::new(0, 10), 1.0).build().unwrap();
    assert_eq!(of(2), (0..10).map(|id| alone.place(0, id).unwrap()).collect::<Vec<_>>());
    assert_keeps_the_contract(&mix);
}

#[test]
fn weights_that_change_wrongly_are_refused() {
    let builder = || Mix::builder(3).dataset(Numbered::new(0, 3), 1.0).dataset(Numbered::new(0, 3), 1.0);
    for (builder, why) in [
        (builder().weights_from(9, &[1.0]), "1 are given for 2 sets"),
        (builder().weights_from(9, &[0.0, 0.0]), "change to none"),
        (builder().weights_from(9, &[-1.0, 1.0]), "has weight -1: give a finite number, 0 or more"),
        (builder().weights_from(9, &[1e-9, 1.0]), "raise its weight"),
        (builder().weights_from(0, &[1.0, 1.0]), "are given twice for epoch 0, sample 0"),
        (
            builder().weights_from(12, &[1.0, 1.0]).weights_from_epoch(2, &[1.0, 2.0]),
            "given twice for epoch 2",
        ),
        (Mix::builder(3).dataset(Numbered::new(0, 3), 0.0), "part 0 of the mix has weight 0 in every epoch"),
        (
            Mix::builder(3).dataset(Numbered::new(0, 3), 0.0).weights_from_epoch(1, &[1.0]),
            "are all 0 at first",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The parts that the rows of `ids` tell, up to the first that cannot be read, in a mix of two sets of which
/// the second begins at 1000.
fn told(mix: &Mix, ids: &[u64], epoch: u64) -> Vec<i32> {
    let layout = Layout::new(mix.spec(), ids.len()).expect("a layout");
    let mut slab = vec![0_u64; layout.bytes().div_ceil(8)];
    let bytes = bytemuck::cast_slice_mut(&mut slab);
    let read = mix.read_many(ids, &mut Rows::new(&layout, bytes, ids.len()), &mut Context::new(SEED, epoch));
    let at = |row: usize, field: usize, size: usize| &bytes[layout.offset(field) + row * size..][..size];
    let row = |row| {
        let number = i64::from_ne_bytes(at(row, 0, 8).try_into().expect("8 bytes"));
        let part = i32::from_ne_bytes(at(row, 2, 4).try_into().expect("4 bytes"));
        assert_eq!(part, i32::from(number >= 1000), "sample {number}");
        part
    };
    (0..read.map_or_else(|(failed, _)| failed, |()| ids.len())).map(row).collect()
}

#[test]
fn a_mix_tells_the_set_of_each_row_and_changes_no_other_field() {
    let of = |tells: bool| {
        let sets = Mix::builder(3).dataset(Numbered::new(0, 30), 2.0).dataset(Numbered::new(1000, 7), 1.0);
        let sets = sets.samples(60).weights_from_epoch(2, &[0.0, 1.0]);
        if tells { sets.part_field("source").build() } else { sets.build() }.expect("a mix")
    };
    let (silent, telling) = (of(false), of(true));
    assert_keeps_the_contract(&telling);
    let ids: Vec<u64> = (0..60).rev().chain(0..60).collect();
    for epoch in 0..4 {
        let places = ids.iter().map(|&id| telling.place(epoch, id).expect("a sample").0 as i32);
        assert_eq!(told(&telling, &ids, epoch), places.collect::<Vec<_>>());
        assert_eq!(read(&telling, &ids, epoch), read(&silent, &ids, epoch), "with the same random numbers");
    }
    assert_ne!(telling.fingerprint(), silent.fingerprint());
    let failing = Mix::builder(3).dataset(Numbered::new(0, 30), 2.0);
    let failing = failing.dataset(Numbered::new(1000, 7).failing(3), 1.0).part_field("source");
    let complete = told(&failing.build().expect("a mix"), &(0..30).collect::<Vec<_>>(), 0);
    assert!((2..30).contains(&complete.len()) && complete.contains(&1), "{complete:?}");
    let twice = Mix::builder(3).dataset(Numbered::new(0, 30), 1.0).part_field("draw").build();
    assert!(twice.unwrap_err().to_string().contains("draw"));
}
