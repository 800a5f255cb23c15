//! The fixtures, and compositions of them. All have [`LEN`] samples, and random numbers if possible.

use std::path::Path;
use std::sync::Arc;

use feedline::{Dataset, InMemory, Loader, Mix, TransferMode, from_fn};
use feedline_testkit::fixtures::{self, Fine, Laid, Random, Uneven, Wide};

use crate::entry::{Entry, LEN};

fn random(len: u64) -> Random {
    Random::new(len, 3).unwrap()
}

/// Self-describing samples, the same in every epoch; without columns.
fn fixed() -> impl Dataset {
    fixtures::counting(laid()).0
}

fn laid() -> Laid {
    Laid::columns(&Fine::new(LEN, 50).unwrap(), 1).unwrap()
}

/// Samples of different lengths, the same in every epoch.
fn ragged() -> InMemory {
    let texts = (0..LEN).map(|id| vec![id as u8; (id * 5 % 17) as usize]);
    let set = InMemory::new().ragged("text", [], 16, texts).unwrap();
    set.field("number", [], Vec::from_iter(0..LEN as i64)).unwrap()
}

fn entry<D: Dataset>(name: &'static str, make: impl Fn() -> D + 'static) -> Entry {
    Entry::new(name, move || Loader::builder(make()))
}

/// The data sets of the test kit.
pub fn fixtures() -> Vec<Entry> {
    let zero_copy = |set: Laid| Loader::builder(set).transfer_mode(TransferMode::ZeroCopy);
    vec![
        entry("Fine", || Fine::new(LEN, 50).unwrap()),
        entry("Before", || fixtures::counting(Fine::new(LEN, 50).unwrap()).0),
        entry("Random", || random(LEN)),
        entry("Wide", || Wide::new(LEN).unwrap()),
        entry("Uneven", || Uneven::new(LEN, 20).unwrap()),
        // The device reads these itself, or holds them.
        Entry::new("Laid in columns", move || zero_copy(laid())),
        Entry::new("Laid in records", move || {
            zero_copy(Laid::records(&Fine::new(LEN, 50).unwrap(), 3, 1).unwrap())
        }),
        Entry::new("Laid on the device", || Loader::builder(laid()).transfer_mode(TransferMode::Resident)),
        Entry::new("Before on the device", || Loader::builder(fixed()).transfer_mode(TransferMode::Resident)),
        Entry::new("Before in part on the device", || {
            Loader::builder(fixed()).transfer_mode(TransferMode::Resident).resident_budget(1280)
        }),
        Entry {
            mixes_rows: true,
            ..Entry::new("Random with map_batch", || {
                Loader::builder(random(LEN)).map_batch(|batch, context| {
                    let draws = batch.field_mut::<f64>("draws")?;
                    let (first, second) = draws.split_at_mut(draws.len() / 2);
                    first.iter_mut().zip(second).for_each(|(a, b)| *a += context.random().uniform() * *b);
                    Ok(())
                })
            })
        },
    ]
}

/// Data sets made of others, with the method that makes them.
pub fn compositions(dir: &Path) -> Vec<Entry> {
    let (cache, ragged_cache) = (dir.join("cache"), dir.join("ragged cache"));
    let mapped = |set: Random| {
        let spec = set.spec().clone();
        set.map(spec, |sample, row, context| {
            row.field_mut::<i64>(0)?.copy_from_slice(sample.field(0)?);
            let below = sample.field::<f64>(1)?;
            for (to, from) in row.field_mut::<f64>(1)?.iter_mut().zip(below) {
                *to = from + context.random().uniform();
            }
            Ok(())
        })
        .unwrap()
    };
    let numbers = || InMemory::new().field("number", [], Vec::from_iter(0..LEN as i64)).unwrap();
    vec![
        entry("Map by map", move || mapped(random(LEN))),
        entry("Map of a Concat of a Map", move || {
            let all = mapped(random(10)).concat(random(14)).unwrap().skip(1);
            let spec = all.spec().clone();
            all.map(spec, |sample, row, context| {
                row.field_mut::<i64>(0)?.copy_from_slice(sample.field(0)?);
                row.field_mut::<f64>(1)?.fill(sample.field::<f64>(1)?[0] + context.random().uniform());
                Ok(())
            })
            .unwrap()
        }),
        entry("Subset by filter", || {
            let ids = |sample: &feedline::dataset::Sample<'_>| sample.field::<i64>(0).unwrap()[0] % 3 != 1;
            let all = Laid::columns(&Fine::new(LEN + 11, 50).unwrap(), 0).unwrap();
            all.filter(ids).unwrap()
        }),
        entry("Subset by subset", || {
            random(50).subset((0..LEN).map(|n| n * 7 % 50).collect::<Vec<_>>()).unwrap()
        }),
        entry("Subset by split", || {
            let [part, _] = random(2 * LEN).split([0.5, 0.5], 3).unwrap();
            part
        }),
        entry("Subset by folds", || {
            let labels = Vec::from_iter((0..2 * LEN as u32).map(|id| id % 3));
            let [[_, part], _] = random(2 * LEN).folds(2, Some(&labels), 3).unwrap().try_into().unwrap();
            part
        }),
        entry("Subset by folds_of_groups", || {
            let groups = Vec::from_iter((0..2 * LEN).map(|id| u32::from(id < LEN)));
            let [[_, part], _] = random(2 * LEN).folds_of_groups(2, &groups, 3).unwrap().try_into().unwrap();
            part
        }),
        entry("Negatives by negatives", move || numbers().negatives(&["number"], 3, 2 * LEN, 5).unwrap()),
        entry("Window by take", || random(50).take(LEN)),
        entry("Window by skip", || random(50).skip(50 - LEN)),
        Entry::new("Window by take, zero-copy", || {
            let laid = Laid::records(&Fine::new(LEN + 4, 50).unwrap(), 3, 1).unwrap();
            Loader::builder(laid.skip(3).take(LEN)).transfer_mode(TransferMode::ZeroCopy)
        }),
        entry("Concat by concat", || random(9).concat(random(LEN - 9)).unwrap()),
        entry("Zip by zip", move || random(LEN).zip(numbers()).unwrap()),
        entry("Repeat by repeat", || random(8).repeat(3).unwrap().take(LEN)),
        entry("Repeat by repeated", || random(8).repeated(3).unwrap().take(LEN)),
        entry("Zip of a Concat of ragged fields", move || {
            let uneven = Uneven::new(30, 20).unwrap();
            uneven.clone().take(10).concat(uneven.skip(17)).unwrap().zip(numbers()).unwrap()
        }),
        entry("Mix", || {
            let mix = Mix::builder(4).dataset(random(7), 2.0).dataset(random(40), 1.0);
            mix.samples(LEN).build().unwrap()
        }),
        entry("Cached by cached", || fixed().cached(10 * 58).unwrap()),
        entry("Cached by cached_in_file", move || fixed().cached_in_file(&cache, 1 << 20).unwrap()),
        entry("Cached by cached_in_file, of ragged fields", move || {
            ragged().cached_in_file(&ragged_cache, 2000).unwrap()
        }),
        entry("InMemory", numbers),
        Entry {
            mixes_rows: true,
            ..Entry::new("InMemory of ragged fields with map_batch", || {
                Loader::builder(ragged()).map_batch(|batch, context| {
                    let shift = context.random().below(7) as usize;
                    let mut texts = Vec::new();
                    for row in 0..batch.len() {
                        let text = batch.ragged_mut::<u8>("text", row)?;
                        texts.push(text.iter().skip(shift).copied().collect::<Vec<_>>());
                    }
                    texts.rotate_right(1);
                    Ok(batch.set_ragged("text", texts)?)
                })
            })
        },
        entry("FromFn", || {
            let spec = random(1).spec().clone();
            from_fn(LEN, spec, |id, row, context| {
                row.field_mut::<i64>(0)?[0] = id as i64;
                row.field_mut::<f64>(1)?.fill_with(|| context.random().uniform());
                Ok(())
            })
        }),
        entry("Arc", || Arc::new(random(LEN)) as Arc<dyn Dataset>),
        entry("Box", || Box::new(random(LEN)) as Box<dyn Dataset>),
        entry("Ref", || {
            static FIRST: std::sync::OnceLock<Random> = std::sync::OnceLock::new();
            FIRST.get_or_init(|| random(LEN))
        }),
    ]
}
