//! Sets whose fields have no limit, such as the texts of a file. Sets over them pass such fields on, or
//! refuse them before anything is read.

use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::compose::{Concat, InMemory};
use feedline_core::{ElementType, Field, Mix, Sink, Value, Values};

use super::*;

/// A word, whose reads are counted, and its length.
struct Words {
    spec: Spec,
    words: &'static [&'static str],
    read: Arc<AtomicUsize>,
}

impl Words {
    fn new(words: &'static [&'static str]) -> Self {
        let word = Field::variable("word", ElementType::Text);
        let length = Field::fixed("length", ElementType::U64, &[]);
        Self { spec: Spec::of_fields([word, length]), words, read: Arc::default() }
    }
}

impl Dataset for Words {
    fn len(&self) -> u64 {
        self.words.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let word = self.words.get(id as usize).ok_or("no such word")?;
        if row.wants(0) {
            self.read.fetch_add(1, Ordering::Relaxed);
            row.put(0, word.as_bytes())?;
        }
        Ok(row.put(1, &(word.len() as u64).to_le_bytes())?)
    }
}

fn to_be() -> Words {
    Words::new(&["to", "be", "or", "not"])
}

/// The words of `set`, whose first field they are.
fn words(set: &dyn Dataset) -> Vec<String> {
    let mut values = Values::new();
    let word = |id| {
        values.read(set, id).expect("a sample");
        let [word, length, ..] = values.fields() else { panic!("two fields") };
        assert_eq!((word.bytes.len() as u64).to_le_bytes(), length.bytes[..]);
        assert_eq!((&word.shape[..], &length.shape[..]), (&[word.bytes.len()][..], &[][..]));
        String::from_utf8(word.bytes.clone()).expect("a text")
    };
    (0..set.len()).map(word).collect()
}

#[test]
fn sets_that_choose_samples_pass_open_fields_on() {
    assert_eq!(words(&to_be()), ["to", "be", "or", "not"]);
    assert_eq!(words(&to_be().subset([3, 0, 3]).unwrap()), ["not", "to", "not"]);
    assert_eq!(words(&to_be().take(2)), ["to", "be"]);
    assert_eq!(words(&to_be().skip(3)), ["not"]);
    assert_eq!(words(&to_be().take(1).repeat(2).unwrap()), ["to", "to"]);
    assert_eq!(words(&to_be().concat(Words::new(&["be"])).unwrap()), ["to", "be", "or", "not", "be"]);
    let mix = Mix::builder(3)
        .dataset(to_be().take(1), 1.0)
        .dataset(to_be().skip(3), 1.0)
        .samples(8)
        .build()
        .unwrap();
    let mut mixed = words(&mix);
    mixed.dedup();
    assert!(mixed.iter().all(|word| word == "to" || word == "not") && mixed.len() > 1, "{mixed:?}");
    let [one, other] = to_be().split([0.5, 0.5], 7).unwrap();
    assert_eq!(words(&one).len() + words(&other).len(), 4);
}

#[test]
fn a_zip_has_open_fields_beside_those_with_a_limit() {
    let numbers = InMemory::new().field("n", [2], [[1_u16, 2], [3, 4]].concat()).unwrap();
    let numbers = Arc::new(numbers.ragged("r", [], 4, [&[7_u8, 8][..], &[]]).unwrap());
    for numbers_first in [false, true] {
        let zip = match numbers_first {
            false => to_be().take(2).zip(numbers.clone()),
            true => numbers.clone().zip(to_be().take(2)),
        };
        let zip = zip.unwrap();
        let mut values = Values::new();
        values.read(&zip, 0).unwrap();
        let field = |name: &str| {
            let index = zip.spec().index_of(name).unwrap();
            values.fields()[index].bytes.clone()
        };
        assert_eq!((field("word"), field("n"), field("r")), (b"to".to_vec(), vec![1, 0, 2, 0], vec![7, 8]));
    }
}

#[test]
fn a_field_that_is_not_wanted_is_not_read_below_any_set() {
    let inner = to_be();
    let read = inner.read.clone();
    let numbers = InMemory::new().field("n", [], (0..4_u8).collect::<Vec<_>>()).unwrap();
    let parts = [Arc::new(numbers) as Arc<dyn Dataset>, Arc::new(inner.subset([3, 2, 1, 0]).unwrap())];
    let zip: Arc<dyn Dataset> = Arc::new(compose_zip(parts));
    let mut found = Vec::new();
    for id in 0..4 {
        let mut add = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
            found.push((field, bytes[0]));
            Ok(())
        };
        let mut context = Context::new(SEED, 0);
        zip.visit(id, &mut Sink::some(&|field| field != 1, &mut add), &mut context).unwrap();
    }
    assert_eq!(found, [(0, 0), (2, 3), (0, 1), (2, 2), (0, 2), (2, 2), (0, 3), (2, 2)]);
    assert_eq!(read.load(Ordering::Relaxed), 0);
}

fn compose_zip(parts: [Arc<dyn Dataset>; 2]) -> impl Dataset {
    feedline_core::compose::Zip::new(parts).unwrap()
}

#[test]
fn sets_that_need_a_limit_refuse_open_fields() {
    let spec = Spec::new().field("n", DType::U8, []).unwrap();
    let refused = [
        to_be().map(spec, |_, _, _| Ok(())).map(drop),
        to_be().filter(|_| true).map(drop),
        to_be().cached(1 << 20).map(drop),
        to_be().cached_in_file(std::env::temp_dir().join("feedline-open-fields"), 1 << 20).map(drop),
        check_dataset(&to_be(), &CheckOptions::default()).map(drop),
        to_be().negatives(&["length"], 1, 9, 7).map(drop),
        feedline_core::Packed::builder(to_be(), &[2, 2, 2, 3], 8).field("word").build().map(drop),
        feedline_core::Unpadded::builder(to_be()).field("word").build().map(drop),
        feedline_core::lengths(&to_be(), "word").map(drop),
        Layout::new(to_be().spec(), 1).map(drop),
    ];
    for (which, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("a field without a limit");
        assert_eq!(error.kind(), ErrorKind::Config, "{which}: {error}");
        assert!(error.to_string().contains("\"word\""), "{which}: {error}");
    }
    let other = Spec::of_fields([Field::variable("word", ElementType::Bytes)]);
    let bytes = Words { spec: other, ..to_be() };
    let error = Concat::new([Arc::new(to_be().take(1)) as Arc<dyn Dataset>, Arc::new(bytes)]).unwrap_err();
    assert!(error.to_string().contains("length"), "{error}");
}

#[test]
fn a_set_that_gives_too_few_fields_is_an_error_for_everyone() {
    let few = feedline_core::from_fn(1, to_be().spec, |_, row, _| Ok(row.put(0, b"x")?));
    let error = Values::new().read(&few, 0).unwrap_err();
    assert!(error.to_string().contains("1 of the 2 fields") && error.sample() == Some(0), "{error}");
}

#[test]
fn a_field_of_an_open_spec_is_written_by_put_alone() {
    for way in 0..4 {
        let set = feedline_core::from_fn(1, to_be().spec, move |_, row, _| {
            match way {
                0 => drop(row.field_mut::<u8>(0)?),
                1 => row.write_ragged(0, b"x")?,
                2 => drop(row.ragged_mut::<u8>(0)?),
                _ => drop(row.split().take::<u8>(0)?),
            }
            Ok(())
        });
        let error = Values::new().read(&set, 0).unwrap_err();
        assert!(error.to_string().contains("put"), "{way}: {error}");
    }
}

#[test]
fn put_writes_what_the_other_ways_write() {
    let spec = Spec::new().field("n", DType::U16, [2]).unwrap().ragged("r", DType::U8, [2], 3).unwrap();
    let by_put = feedline_core::from_fn(4, spec.clone(), |id, row, _| {
        assert!(row.wants(0) && row.wants(1));
        row.put(1, &vec![id as u8; 2 * id as usize])?;
        Ok(row.put_shaped(0, bytemuck::cast_slice(&[id as u16, 7]), Some(&[2]))?)
    });
    let by_field = feedline_core::from_fn(4, spec, |id, row, _| {
        row.field_mut::<u16>(0)?.copy_from_slice(&[id as u16, 7]);
        Ok(row.write_ragged(1, &vec![id as u8; 2 * id as usize])?)
    });
    let all = |set: &dyn Dataset| -> Vec<Vec<Value>> {
        let mut values = Values::new();
        let one = |id| {
            values.read(set, id).expect("a sample");
            values.fields().to_vec()
        };
        (0..set.len()).map(one).collect()
    };
    assert_eq!(all(&by_put), all(&by_field));
    assert_eq!(all(&by_put)[3][1], Value { bytes: vec![3; 6], shape: vec![3, 2] });
    assert!(check_dataset(&by_put, &CheckOptions::default()).unwrap().is_clean());
    for (field, bytes, why) in
        [(0, &[1_u8, 2, 3][..], "3 bytes instead of 4"), (1, &[1], "whole items"), (2, &[], "no field 2")]
    {
        let spec = by_put.spec().clone();
        let bad = feedline_core::from_fn(1, spec, move |_, row, _| Ok(row.put(field, bytes)?));
        let error = Values::new().read(&bad, 0).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn the_classes_of_a_set_are_those_of_sets_over_it() {
    struct Classes(Numbered, &'static [String]);
    impl Dataset for Classes {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn spec(&self) -> &Spec {
            self.0.spec()
        }
        fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
            self.0.read(id, row, context)
        }
        fn about(&self) -> feedline_core::About<'_> {
            feedline_core::About { classes: Some(self.1), format: "made", ..Default::default() }
        }
    }
    let of = |names: &[&str]| {
        let names = Box::leak(names.iter().map(|&name| name.to_owned()).collect::<Box<[_]>>());
        Arc::new(Classes(Numbered::plain(0, 4), names))
    };
    let (one, other) = (of(&["ant", "bee"]), of(&["ant", "wasp"]));
    let label = || InMemory::new().field("label", [], [0_u8, 1, 1, 0]).unwrap();
    let spec = one.spec().clone();
    let over: [(&str, Box<dyn Dataset>); 6] = [
        ("subset", Box::new(one.clone().subset([1, 0]).unwrap())),
        ("take", Box::new(one.clone().take(2).repeat(2).unwrap())),
        ("map", Box::new(one.clone().map(spec, |_, _, _| Ok(())).unwrap())),
        ("cached", Box::new(one.clone().cached(1 << 20).unwrap())),
        ("zip", Box::new(label().zip(one.clone()).unwrap())),
        ("concat", Box::new(one.clone().concat(one.clone().skip(1)).unwrap())),
    ];
    for (what, set) in &over {
        assert_eq!(set.about().classes, Some(&["ant".to_owned(), "bee".to_owned()][..]), "{what}");
    }
    assert_eq!(over[0].1.about().format, "made");
    assert_eq!(one.concat(other).unwrap().about().classes, None, "a label has two names");
}
