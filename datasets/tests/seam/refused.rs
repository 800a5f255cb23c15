//! What the sets refuse: fields that they cannot hold, samples that do not fit, compositions.

use std::path::Path;
use std::sync::Arc;

use feedline_core::compose::{Concat, Mix, Zip};
use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, InMemory, Pad, ReadError, Result,
    Row, Spec, from_fn, lengths,
};
use feedline_datasets::{Bounded, OpenOptions, PackOptions, open, open_with, pack};

use crate::facts::read;
use crate::golden::Found;
use crate::made::write;
use crate::wrappers::{fixed, grouped, ragged};

/// A reader of one file's name, whose samples are any bytes of any shape.
#[derive(Debug)]
struct Made {
    schema: Spec,
    sample: Result<Vec<(Vec<u8>, Vec<usize>)>>,
    len: u64,
}

impl Made {
    fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        Self { schema: Spec::of_fields(fields), sample: Ok(Vec::new()), len: 3 }
    }

    fn with(self, sample: &[(&[u8], &[usize])]) -> Self {
        let sample = sample.iter().map(|(bytes, shape)| (bytes.to_vec(), shape.to_vec()));
        Self { sample: Ok(sample.collect()), ..self }
    }

    fn boxed(self) -> Arc<dyn Dataset> {
        Arc::new(self)
    }
}

impl Dataset for Made {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let mut sample = self.sample.as_ref().map_err(Error::clone)?.iter().enumerate();
        Ok(sample.try_for_each(|(field, (bytes, shape))| row.put_shaped(field, bytes, Some(shape)))?)
    }

    fn about(&self) -> About<'_> {
        About { format: "made", ..About::default() }
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(Path::new("folder/made.x"))
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

const BYTE: ElementType = ElementType::Number(DType::U8);

/// A field of bytes of this shape.
fn bytes(name: &str, shape: &[Option<usize>]) -> Field {
    Field::open(name, BYTE, shape.to_vec())
}

fn packed(found: &Found, reader: &dyn Dataset) -> Result<()> {
    pack(reader, found.dir.join("refused.arrow"), PackOptions::default(), |_| ()).map(drop)
}

/// Fields that sets cannot hold.
fn fields(found: &mut Found) {
    let of = |element, shape: &[Option<usize>]| [Field::open("a", element, shape.to_vec())];
    let cases: Vec<(&str, Vec<Field>)> = vec![
        ("no fields", Vec::new()),
        ("17 fields", (0..17).map(|at| bytes(&format!("f{at}"), &[])).collect()),
        (
            "9 fields of two dimensions that vary",
            (0..9).map(|at| bytes(&format!("f{at}"), &[None, None])).collect(),
        ),
        ("u64", of(ElementType::U64, &[]).into()),
        ("a list of u64", of(ElementType::U64, &[None]).into()),
        ("complex", of(ElementType::Complex64, &[Some(2)]).into()),
        ("text of one size", of(ElementType::Text, &[Some(4)]).into()),
        ("text that varies", of(ElementType::Text, &[None]).into()),
        ("a second dimension that varies", of(BYTE, &[Some(2), None]).into()),
        ("two dimensions that vary", of(BYTE, &[None, None, Some(3)]).into()),
        ("a dimension of 0", of(BYTE, &[Some(0)]).into()),
        ("a dimension too large", of(BYTE, &[Some(1 << 31), Some(1 << 31), Some(4)]).into()),
        ("a name twice", vec![bytes("a", &[]), bytes("a", &[])]),
        ("no name", vec![bytes("", &[])]),
        ("the name of a shape twice", vec![bytes("a", &[None, None]), bytes("a.shape", &[])]),
    ];
    for (name, fields) in cases {
        let zeros = Vec::from_iter(fields.iter().map(|field| {
            let shape = Vec::from_iter(field.dims().iter().map(|dim| dim.unwrap_or(1)));
            let bytes = shape.iter().try_fold(field.element().size(), |bytes, dim| bytes.checked_mul(*dim));
            (vec![0; bytes.filter(|bytes| *bytes < 1 << 20).unwrap_or_default()], shape)
        }));
        let reader = || Arc::new(Made { sample: Ok(zeros.clone()), ..Made::new(fields.clone()) });
        if let Err(error) = Bounded::new(reader()) {
            found.refused(&format!("Fixed: {name}"), Err::<(), _>(error));
        }
        if let Err(error) = Bounded::limited(reader(), 10) {
            found.refused(&format!("Ragged: {name}"), Err::<(), _>(error));
        }
        if let Err(error) = packed(found, &*reader()) {
            found.refused(&format!("pack: {name}"), Err::<(), _>(error));
        }
    }
    let list = || Made::new([bytes("a", &[None]), bytes("b", &[])]);
    let empty = || Arc::new(Made { len: 0, ..list() });
    found.refused("Ragged: no samples", Bounded::limited(empty(), 10));
    found.refused(
        "Fixed: no samples",
        Bounded::new(Arc::new(Made { len: 0, ..Made::new([bytes("a", &[])]) })),
    );
    found.refused("Ragged: no items", Bounded::limited(list().boxed(), 0));
    found.refused("Ragged: too many items", Bounded::limited(list().boxed(), 1 << 31));
    let set = || Bounded::limited(list().boxed(), 10).unwrap();
    found.refused("Ragged: a limit of 0", set().limit("a", 0));
    found.refused("Ragged: a limit of one size", set().limit("b", 3));
    found.refused("Ragged: a limit of no field", set().limit("c", 3));
    found.refused("Ragged: lengths that are not measured", set().lengths("a"));
    found.refused("Ragged: lengths of one size", set().lengths("b"));
    found.refused("Ragged: items per batch of no field", set().max_per_batch("c", 2));
    found.refused("lengths of one size", lengths(&set(), "b"));
    found.refused("lengths of no field", lengths(&set(), "c"));
}

/// Samples that do not fit the schema or the limits.
fn samples(found: &mut Found) {
    let pair = || Made::new([bytes("a", &[Some(2)]), bytes("b", &[])]);
    let short = || pair().with(&[(&[1], &[1]), (&[2], &[])]).boxed();
    found.refused("Fixed: a short sample", read(&Bounded::new(short()).unwrap(), &[1]));
    found.refused("Fixed: a short sample in a batch", read(&Bounded::new(short()).unwrap(), &[2, 1]));
    found.refused("Ragged: a short sample", read(&Bounded::limited(short(), 3).unwrap(), &[1]));
    found.refused("Ragged: a short sample in a batch", read(&Bounded::limited(short(), 3).unwrap(), &[2, 1]));
    let lacks = || pair().with(&[(&[1, 2], &[2])]).boxed();
    found.refused("Fixed: a field lacks", read(&Bounded::new(lacks()).unwrap(), &[1]));
    let list = |bytes_of: &[u8]| Made::new([bytes("a", &[None, Some(2)])]).with(&[(bytes_of, &[2])]).boxed();
    found.refused("Ragged: beyond the limit", read(&Bounded::limited(list(&[1; 8]), 3).unwrap(), &[1]));
    found.refused(
        "Ragged: beyond the limit in a batch",
        read(&Bounded::limited(list(&[1; 8]), 3).unwrap(), &[2, 0]),
    );
    found.refused("Ragged: half an item", read(&Bounded::limited(list(&[1; 3]), 3).unwrap(), &[1]));
    found.refused(
        "Ragged: half an item, measured",
        Bounded::measured_at(list(&[1; 3]), found.dir.join("half")),
    );
    let shaped = |shape: &[usize]| Made::new([bytes("a", &[None, None])]).with(&[(&[1; 4], shape)]).boxed();
    found.refused(
        "Ragged: another number of dimensions",
        read(&Bounded::limited(shaped(&[4]), 9).unwrap(), &[1]),
    );
    found.refused(
        "Ragged: a shape beyond the limit",
        read(&Bounded::limited(shaped(&[2, 2]), 3).unwrap(), &[1]),
    );
    let failing = || {
        let sample = Err(Error::new(ErrorKind::Data, "the file cannot be read").at_offset(3));
        Made { sample, ..pair() }
    };
    found.refused(
        "Fixed: a sample that cannot be read",
        read(&Bounded::new(Arc::new(failing())).unwrap(), &[1]),
    );
    found.refused(
        "Ragged: a sample that cannot be read",
        read(&Bounded::limited(Arc::new(failing()), 3).unwrap(), &[1]),
    );
    let failing = || Bounded::new(Arc::new(failing())).unwrap();
    let below = |set: &dyn Dataset| read(set, &[1, 0]);
    found.refused("a sample that cannot be read, below take", below(&failing().skip(1)));
    found.refused("a sample that cannot be read, below subset", below(&failing().subset([2, 1]).unwrap()));
    found.refused("a sample that cannot be read, below concat", below(&failing().concat(failing()).unwrap()));
    found.refused("a sample that cannot be read, below repeat", below(&failing().repeat(2).unwrap()));
    found.refused("a sample that cannot be read, below a cache", below(&failing().cached(100).unwrap()));
    found.refused("a sample that cannot be read, below filter", failing().filter(|_| true));
    let spec = Spec::new().field("x", DType::U8, []).unwrap();
    let map = failing().map(spec, |_, _, _| Ok(())).unwrap();
    found.refused("a sample that cannot be read, below map", below(&map));
    let labels = InMemory::new().field("label", [], [1u8, 2, 3]).unwrap();
    found.refused("a sample that cannot be read, below zip", below(&failing().zip(labels).unwrap()));
    let mix = Mix::builder(7).dataset(failing(), 1.0).build().unwrap();
    found.refused("a sample that cannot be read, below mix", below(&mix));
    let items = failing().negatives(&["b"], 2, 9, 1).unwrap();
    found.refused("a sample that cannot be read, below negatives", below(&items));
    found.refused("a sample that cannot be read, below Arc", below(&Arc::new(failing())));
}

fn compositions(found: &mut Found) {
    let dir = found.dir.clone();
    let rows = || fixed(&dir);
    let lines = |most| ragged(&dir, most);
    let none: [Arc<dyn Dataset>; 0] = [];
    found.refused("concat of nothing", Concat::new(none.clone()));
    found.refused("concat of other fields", rows().concat(lines(200)));
    let other = |dtype, shape: &[usize]| {
        from_fn(20, Spec::new().field("array", dtype, shape).unwrap(), |_, _, _| Ok(()))
    };
    found.refused("concat of another shape", rows().concat(other(DType::U8, &[6])));
    found.refused("concat of another type", rows().concat(other(DType::I8, &[5])));
    found.refused(
        "concat of too many",
        rows().repeat(1 << 58).unwrap().concat(rows().repeat(1 << 58).unwrap()),
    );
    found.refused("zip of nothing", Zip::new(none));
    found.refused("zip of unequal lengths", rows().zip(rows().take(7)));
    found.refused("zip of one name", rows().zip(rows()));
    let wide = |first: usize| {
        (0..10).fold(InMemory::new(), |set, at| set.field(&format!("f{}", first + at), [], [1u8, 2]).unwrap())
    };
    found.refused("zip of 20 fields", wide(0).zip(wide(10)));
    found.refused("subset with an id outside", rows().subset([3, 20]));
    for (name, fractions) in
        [("beyond 1", [0.6, 0.6]), ("below 0", [1.5, -0.5]), ("that are NaN", [f64::NAN, 0.5])]
    {
        found.refused(&format!("split by fractions {name}"), rows().split(fractions, 1).map(drop));
    }
    found.refused("one fold", rows().folds(1, None, 1).map(drop));
    found.refused("more folds than samples", rows().folds(21, None, 1).map(drop));
    found.refused("folds with too few labels", rows().folds(2, Some(&[1, 2]), 1).map(drop));
    found.refused("repeat too often", rows().repeat(u64::MAX));
    found.refused("map without fields", rows().map(Spec::new(), |_, _, _| Ok(())));
    let empty = || from_fn(3, Spec::new(), |_, _, _| Ok(()));
    found.refused("cache without fields", empty().cached(10));
    found.refused("cache in a file without fields", empty().cached_in_file(dir.join("x.cache"), 10));
    found.refused("cache in a folder", rows().cached_in_file(dir.join("classes"), 1 << 20));
    found.refused("cache in another file", rows().cached_in_file(dir.join("a.csv"), 1 << 20));
    found.refused("cache in no folder", rows().cached_in_file(dir.join("none/x.cache"), 1 << 20));
    found.refused("cache of random samples", read(&random().cached(100).unwrap(), &[1]));
    found.refused("filter of random samples", random().filter(|_| true));
    compositions_by_items(found);
    nested(found);
    for (name, set) in [
        ("take", Box::new(rows().take(3)) as Box<dyn Dataset>),
        ("skip", Box::new(rows().skip(17))),
        ("subset", Box::new(rows().subset([5, 6, 7]).unwrap())),
        ("concat", Box::new(rows().take(1).concat(rows().take(2)).unwrap())),
        ("zip", Box::new(InMemory::new().field("a", [], [1u8, 2, 3]).unwrap().zip(rows().take(3)).unwrap())),
        ("repeat", Box::new(rows().take(1).repeat(3).unwrap())),
        ("cached", Box::new(rows().take(3).cached(100).unwrap())),
        ("mix", Box::new(Mix::builder(7).dataset(rows(), 1.0).samples(3).build().unwrap())),
        ("Arc", Box::new(Arc::new(rows().take(3)))),
        ("a table in groups", Box::new(grouped(&dir))),
    ] {
        found.refused(&format!("{name}: an id beyond the last"), read(&*set, &[3]));
        found.refused(&format!("{name}: a batch beyond the last"), read(&*set, &[0, 1 << 63]));
    }
}

/// A set of random numbers.
fn random() -> impl Dataset {
    let spec = Spec::new().field("x", DType::U8, []).unwrap();
    from_fn(3, spec, |_, row, context| {
        row.write(0, &[context.random().next_u64() as u8]);
        Ok(())
    })
}

fn compositions_by_items(found: &mut Found) {
    let rows = || fixed(&found.dir);
    let items = || InMemory::new().field("item", [], [0i64, 1, 9]).unwrap();
    let cases = [
        ("negatives of no field", items().negatives(&[], 2, 9, 1)),
        ("negatives of a field that is not there", items().negatives(&["none"], 2, 9, 1)),
        ("no negatives", items().negatives(&["item"], 0, 9, 1)),
        ("negatives of no items", items().negatives(&["item"], 2, 0, 1)),
        (
            "negatives of fractions",
            InMemory::new().field("x", [], [1f32]).unwrap().negatives(&["x"], 2, 9, 1),
        ),
    ];
    let all = read(&items().negatives(&["item"], 2, 1, 1).unwrap(), &[0]);
    let mixes = [
        ("mix of nothing", Mix::builder(7)),
        ("mix of other fields", Mix::builder(7).dataset(rows(), 1.0).dataset(items(), 1.0)),
        ("mix of an empty set", Mix::builder(7).dataset(rows().take(0), 1.0)),
        ("mix with weight 0", Mix::builder(7).dataset(rows(), 1.0).dataset(rows(), 0.0)),
        ("mix with a weight below 0", Mix::builder(7).dataset(rows(), -1.0)),
        ("mix with a share too small", Mix::builder(7).dataset(rows(), 1.0).dataset(rows(), 1e-9)),
        ("mix with too few weights", Mix::builder(7).dataset(rows(), 1.0).weights_from_epoch(1, &[])),
        ("mix with weights twice", Mix::builder(7).dataset(rows(), 1.0).weights_from_epoch(0, &[1.0])),
        ("mix of too many", Mix::builder(7).dataset(rows(), 1.0).samples(u64::MAX)),
    ];
    for (name, result) in cases {
        found.refused(name, result);
    }
    found.refused("negatives of all items", all);
    for (name, mix) in mixes {
        found.refused(name, mix.build());
    }
}

/// Sets that are nested to the limit.
fn nested(found: &mut Found) {
    let set = || {
        let set: Arc<dyn Dataset> = Arc::new(fixed(&found.dir));
        (0..256).fold(set, |set, _| Arc::new(set.subset([0, 1]).unwrap()))
    };
    let spec = Spec::new().field("x", DType::U8, []).unwrap();
    let refused = [
        ("subset", set().subset([0]).map(drop)),
        ("concat", set().concat(set()).map(drop)),
        ("zip", set().zip(set()).map(drop)),
        ("repeat", set().repeat(2).map(drop)),
        ("map", set().map(spec, |_, _, _| Ok(())).map(drop)),
        ("cached", set().cached(10).map(drop)),
        ("filter", set().filter(|_| true).map(drop)),
        ("split", set().split([1.0], 1).map(drop)),
        ("folds", set().folds(2, None, 1).map(drop)),
        ("negatives", set().negatives(&["array"], 1, 9, 1).map(drop)),
        ("mix", Mix::builder(7).dataset(set(), 1.0).build().map(drop)),
        ("take", feedline_core::lengths(&set().take(1), "array").map(drop)),
    ];
    for (name, result) in refused {
        found.refused(&format!("{name} of a set that is nested to the limit"), result);
    }
}

/// Several files that are not one set.
fn shards(found: &mut Found) {
    let dir = found.dir.join("unlike");
    found.refused("Shards of nothing", feedline_datasets::shards(Vec::new()));
    let of = |field: Field| Made::new([bytes("a", &[]), field]).boxed();
    let first = || of(bytes("b", &[None]));
    for (name, other) in [
        ("another name", of(bytes("c", &[None]))),
        ("another type", of(Field::open("b", ElementType::Text, [None]))),
        ("another shape", of(bytes("b", &[Some(2)]))),
        ("fewer fields", Made::new([bytes("a", &[])]).boxed()),
        ("more fields", Made::new([bytes("a", &[]), bytes("b", &[None]), bytes("d", &[])]).boxed()),
        ("another format", open(found.dir.join("a.npy")).unwrap()),
    ] {
        found.refused(&format!("Shards of {name}"), feedline_datasets::shards(vec![first(), other]));
    }
    write(&dir, "0.csv", b"a,b\n1,2\n");
    write(&dir, "1.csv", b"a,c\n1,2\n");
    found.refused("a folder of other columns", open(&dir));
    for set in ["train", "test"] {
        write(&dir, &format!("sets/{set}.csv"), b"a,b\n1,2\n");
    }
    found.refused("a folder of several sets", open(dir.join("sets")));
    found.refused("a pattern of nothing", open(dir.join("*.png")));
    let columns = OpenOptions { columns: Some(vec!["none".into()]), ..Default::default() };
    for file in ["a.csv", "a.jsonl", "page/flowers.arrow", "page/flowers.parquet"] {
        found.refused(
            &format!("{file}: a column that is not there"),
            open_with(found.dir.join(file), &columns),
        );
    }
    let padded = Spec::new().ragged("a", DType::U8, [], 3).unwrap();
    found.refused(
        "Spec: padding of another type",
        padded.clone().padded("a", Pad::longest().fill_value(1i64)),
    );
    found.refused("Spec: fewer items per batch than per sample", padded.max_per_batch("a", 2));
}

pub(crate) fn errors(found: &mut Found) {
    fields(found);
    samples(found);
    compositions(found);
    shards(found);
}
