//! Sets over sets: those of the core crate, over sets of this crate.

use std::path::Path;
use std::sync::Arc;

use feedline_core::compose::Mix;
use feedline_core::{DType, Dataset, InMemory, Spec, StableDataset, from_fn};
use feedline_datasets::{Bounded, OpenOptions, Table, open, open_with};

use crate::files::SAMPLES;
use crate::golden::Found;
use crate::large;

/// The rows of `a.npy`.
pub(crate) fn fixed(dir: &Path) -> Bounded {
    Bounded::new(open(dir.join("a.npy")).unwrap()).unwrap()
}

/// The lines of `a.txt`, of up to `most` bytes.
pub(crate) fn ragged(dir: &Path, most: usize) -> Bounded {
    Bounded::limited(open(dir.join("a.txt")).unwrap(), most).unwrap()
}

/// A table that is decoded in groups, which its cache does not hold.
pub(crate) fn grouped(dir: &Path) -> Bounded {
    let options = OpenOptions { cache_bytes: 0, ..Default::default() };
    Bounded::new(open_with(dir.join("page/flowers.parquet"), &options).unwrap()).unwrap()
}

/// Makes a set of the files in a folder.
type Makes = fn(&Path) -> Box<dyn Dataset>;

pub(crate) fn values(found: &mut Found) {
    let dir = found.dir.clone();
    limits(found);
    let sets: [(&str, Makes); 5] = [
        ("rows", |dir| Box::new(fixed(dir))),
        ("lines", |dir| Box::new(ragged(dir, 200))),
        ("groups", |dir| Box::new(grouped(dir))),
        ("large numbers", |_| Box::new(large::numbers())),
        ("large texts", |_| Box::new(large::texts())),
    ];
    for (name, set) in sets {
        over(found, name, &|| set(&dir));
    }
    // Of a budget that is too small nothing is kept, which is no error.
    let small = fixed(&dir).cached(3).unwrap();
    found.set("rows, cached in too few bytes", &small);
    found.fact("rows, cached in too few bytes", "stats", format!("{:?}", small.stats()));
    of_several(found);
    of_pointers(found);
    of_the_core(found);
}

/// The limits of a ragged set.
fn limits(found: &mut Found) {
    let dir = found.dir.clone();
    let lines = |most| ragged(&dir, most);
    found.set("lines, another limit", &lines(500).limit("text", 300).unwrap());
    let measured = Bounded::measured(open(dir.join("a.txt")).unwrap()).unwrap();
    found.set("lines, measured", &measured);
    found.fact("lines, measured", "items of a batch of 4", measured.max_per_batch("text", 4).unwrap());
    found.set("lines, measured, another limit", &measured.limit("text", 250).unwrap());
    let kept = || Bounded::measured_at(open(dir.join("a.txt")).unwrap(), dir.join("lines.lengths")).unwrap();
    found.set("lines, lengths in a file", &kept());
    found.set("lines, lengths of a file", &kept());
}

/// Each composition of one set.
fn over(found: &mut Found, name: &str, set: &dyn Fn() -> Box<dyn Dataset>) {
    let spec = Spec::new().field("bytes", DType::I64, []).unwrap();
    let map = || {
        let set = set().map(spec.clone(), |sample, row, context| {
            let bytes = (0..sample.spec().fields().len()).map(|field| sample.bytes(field).len() as i64);
            row.field_mut::<i64>(0)?[0] = bytes.sum::<i64>() + (context.random().next_u64() % 7) as i64;
            Ok(())
        });
        set.unwrap()
    };
    found.set(&format!("{name}, map"), &map());
    found.set(&format!("{name}, map of version 3"), &map().version(3));
    let last = set().len() - 1;
    found.set(&format!("{name}, subset"), &set().subset([last, 0, last]).unwrap());
    found.set(&format!("{name}, take"), &set().take(2));
    found.set(&format!("{name}, skip"), &set().skip(1));
    let [train, test] = set().split([0.6, 0.4], 7).unwrap();
    found.set(&format!("{name}, split"), &train);
    found.fact(&format!("{name}, split"), "ids of the other part", list(test.ids()));
    let folds = set().folds(3, None, 7).unwrap();
    found.set(&format!("{name}, fold"), &folds[1][0]);
    let ids = folds.iter().map(|[_, test]| list(test.ids())).collect::<Vec<_>>();
    found.fact(&format!("{name}, fold"), "ids of the validation sets", ids);
    found.set(&format!("{name}, concat"), &set().concat(set()).unwrap());
    found.set(&format!("{name}, repeat"), &set().repeat(3).unwrap());
    found.set(&format!("{name}, cached"), &set().cached(150).unwrap());
    let file = found.dir.join(format!("{name}.cache"));
    for what in ["cached in a file", "cached in the file"] {
        found.set(&format!("{name}, {what}"), &set().cached_in_file(&file, 4000).unwrap());
    }
    let kept =
        set().filter(|sample| sample.bytes(0).iter().fold(0, |sum, byte| sum ^ byte) % 3 == 1).unwrap();
    found.fact(&format!("{name}, filter"), "ids", list(kept.ids()));
    found.set(&format!("{name}, filter"), &kept);
}

/// The ids, or the first of them.
fn list(ids: &[u64]) -> String {
    format!("{} of {}", format_args!("{:?}", &ids[..ids.len().min(12)]), ids.len())
}

fn of_several(found: &mut Found) {
    let dir = found.dir.clone();
    let labels = || InMemory::new().field("label", [], Vec::from_iter(0..SAMPLES as u8)).unwrap();
    found.set("zip", &fixed(&dir).zip(labels()).unwrap());
    found.set("zip with lines", &ragged(&dir, 200).zip(labels()).unwrap());
    found.set("concat of two limits", &ragged(&dir, 200).concat(ragged(&dir, 300)).unwrap());
    let folds = labels().folds(2, Some(&Vec::from_iter((0..SAMPLES as u32).map(|id| id / 10))), 5).unwrap();
    found.fact("folds of labels", "ids", folds[0][1].ids());
    let mix = || {
        let mix = Mix::builder(7).dataset(ragged(&dir, 200), 3.0).dataset(ragged(&dir, 300), 1.0);
        mix.samples(12).weights_from_epoch(2, &[1.0, 1.0]).build().unwrap()
    };
    found.set("mix", &mix());
    found.set_with("mix, epoch 3", &mix(), 3, &[0, 11, 5]);
    let items = Table::open(dir.join("page/flowers.parquet")).select(["kind"]).build().unwrap();
    found.set("negatives", &items.negatives(&["kind"], 4, 30, 9).unwrap());
    let lists = || {
        Table::open(dir.join("tables/snappy.parquet"))
            .select(["words"])
            .missing("words", feedline_datasets::Missing::Mask)
            .category("words")
            .last("words", 1)
            .build()
            .unwrap()
    };
    found.set("cut lists", &lists());
    found.set("negatives of cut lists", &lists().negatives(&["words"], 3, 30, 9).unwrap());
    let deep = grouped(&dir).take(3).skip(1).concat(grouped(&dir).repeat(2).unwrap()).unwrap();
    found.set("a set of many", &deep.cached(64).unwrap());
}

fn of_pointers(found: &mut Found) {
    let dir = found.dir.clone();
    found.set("Arc", &Arc::new(grouped(&dir)));
    found.set("Box", &Box::new(grouped(&dir)));
    found.set("Arc of a trait object", &(Arc::new(ragged(&dir, 200)) as Arc<dyn Dataset>));
    let leaked: &'static Bounded = Box::leak(Box::new(fixed(&dir)));
    found.set("a reference", &leaked);
    found.set("StableDataset", &StableDataset::new(Arc::new(grouped(&dir))));
    let shared: Arc<dyn feedline_core::Dataset> = open(dir.join("a.txt")).unwrap();
    found.set("Arc of a reader", &Bounded::limited(Arc::new(shared), 200).unwrap());
}

fn of_the_core(found: &mut Found) {
    let spec = Spec::new().field("square", DType::I64, []).unwrap();
    let squares = || {
        from_fn(10, spec.clone(), |id, row, _| {
            row.field_mut::<i64>(0)?[0] = (id * id) as i64;
            Ok(())
        })
    };
    found.set("from_fn", &squares());
    found.set("from_fn of version 2", &squares().version(2));
    let rows = [&[1u16, 2][..], &[], &[3]];
    let memory = InMemory::new().field("x", [2], [1u8, 2, 3, 4, 5, 6]).unwrap();
    found.set("InMemory", &memory.ragged("list", [], 5, rows).unwrap());
}
