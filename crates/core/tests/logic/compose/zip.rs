use feedline_core::compose::{Map, Zip};
use feedline_core::{About, DType, Dataset, Spec};

use super::*;

/// The draws of [`Numbered`] under another name, with a field of their own.
fn draws(set: Numbered) -> Map {
    let spec = Spec::new().field("draw", DType::I64, [2]).expect("a spec");
    set.map(spec, |sample, row, _| {
        row.field_mut::<i64>(0)?.copy_from_slice(sample.field(1)?);
        Ok(())
    })
    .expect("a map")
}

fn number(set: Numbered) -> Map {
    let spec = Spec::new().field("number", DType::I64, []).expect("a spec");
    set.map(spec, |sample, row, _| {
        row.field_mut::<i64>(0)?.copy_from_slice(sample.field(0)?);
        Ok(())
    })
    .expect("a map")
}

#[test]
fn a_zip_keeps_the_contract_and_reads_in_bulk() {
    let (left, right) = (Numbered::new(0, 20), Numbered::new(500, 20));
    let zip = number(left.clone()).zip(draws(right.clone())).expect("a zip");
    assert_eq!(zip.spec(), left.spec());
    assert_keeps_the_contract(&zip);
    left.groups();
    right.groups();
    assert_eq!(numbers(&read(&zip, &[3, 0, 19], 0)), [3, 0, 19]);
    assert_eq!((left.groups(), right.groups()), (vec![vec![3, 0, 19]], vec![vec![3, 0, 19]]));
    assert_eq!(zip.path(1), Some(Path::new("low")));
}

#[test]
fn each_part_has_a_random_stream_of_its_own() {
    let spec = |name| Spec::new().field(name, DType::I64, []).expect("a spec");
    let part = |name| {
        feedline_core::from_fn(9, spec(name), |_, row, context| {
            row.field_mut::<i64>(0)?[0] = context.random().next_u64() as i64;
            Ok(())
        })
    };
    let zip = part("a").zip(part("b")).expect("a zip");
    let layout = feedline_core::Layout::new(zip.spec(), 9).expect("a layout");
    let mut slab = vec![0_u64; layout.bytes() / 8];
    let ids: Vec<u64> = (0..9).collect();
    let mut rows = feedline_core::Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 9);
    zip.read_many(&ids, &mut rows, &mut Context::new(SEED, 0)).expect("samples");
    let mut all = [rows.column_mut(0).to_vec(), rows.column_mut(1).to_vec()].concat();
    let (all, _) = all.as_chunks_mut::<8>();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "18 different numbers");
}

#[test]
fn samples_before_the_first_failure_of_any_part_are_whole() {
    let of = |left, right| {
        let left = number(Numbered::plain(0, 20).failing(left));
        let zip = left.zip(draws(Numbered::plain(500, 20).failing(right))).expect("a zip");
        let (seen, why) = read_until(&zip, &(0..20).collect::<Vec<_>>());
        assert!(numbers(&seen).into_iter().eq(0..seen.len() as i64));
        (seen.len(), why)
    };
    assert_eq!(of(7, 4), (4, "in part 1 of the zip: planned failure of 4".to_owned()));
    assert_eq!(of(4, 7), (4, "in part 0 of the zip: planned failure of 4".to_owned()));
    assert_eq!(of(4, 4).0, 4);
}

#[test]
fn columns_are_those_of_the_parts() {
    let labels = feedline_core::InMemory::new().field("label", [], vec![9_u8; 5]).expect("labels");
    let zip = laid(100, 5).zip(labels).expect("a zip");
    assert_eq!(column(&zip), Some(vec![100, 101, 102, 103, 104]));
    assert_eq!(zip.storage().column(2).and_then(|labels| labels.row(4).map(<[u8]>::to_vec)), Some(vec![9]));
    assert!(zip.storage().column(3).is_none());
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let set = |len| number(Numbered::new(0, len));
    assert!(refused(set(4).zip(draws(Numbered::new(0, 5)))).contains("has 5 samples, part 0 has 4"));
    let why = refused(set(4).zip(set(4)));
    assert!(why.contains("part 1 of the zip, field \"number\": the name is taken"), "{why}");
    assert!(refused(Zip::new([])).contains("no data sets"));
    let empty = set(0).zip(draws(Numbered::new(0, 0))).expect("two empty sets");
    assert_eq!(empty.len(), 0);
    assert_fingerprints_differ([
        &set(4),
        &set(4).zip(draws(Numbered::new(0, 4))).expect("a zip"),
        &set(4).zip(draws(Numbered::new(1, 4))).expect("a zip"),
    ]);
}

/// A set of pictures that are cropped at random.
struct Cropped(Spec);

impl Cropped {
    fn new(name: &str) -> Self {
        Self(Spec::new().field(name, DType::U8, [4]).expect("a spec"))
    }
}

impl Dataset for Cropped {
    fn len(&self) -> u64 {
        6
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn about(&self) -> About<'_> {
        About { has_random_geometry: true, ..About::default() }
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        row.bytes_mut(0).fill(context.random().next_u64() as u8);
        Ok(())
    }
}

#[test]
fn two_parts_that_crop_at_random_are_refused_by_their_fields_through_any_composition() {
    let spec = || Spec::new().field("mask", DType::U8, [4]).expect("a spec");
    let mask = || Cropped::new("mask");
    let shared = |set: Cropped| Arc::new(set) as Arc<dyn Dataset>;
    let copied = mask().map(spec(), |sample, row, _| {
        row.write(0, sample.bytes(0));
        Ok(())
    });
    let two = || mask().subset(vec![0, 1]).expect("a subset");
    let labels = feedline_core::InMemory::new().field("label", [], vec![9_u8; 6]).expect("labels");
    let sets: Vec<(&str, Arc<dyn Dataset>)> = vec![
        ("plain", shared(mask())),
        ("map", Arc::new(copied.expect("a map"))),
        ("subset", Arc::new(mask().subset(vec![5, 4, 3, 2, 1, 0]).expect("a subset"))),
        ("take", Arc::new(mask().take(6))),
        ("skip", Arc::new(mask().skip(0))),
        ("concat", Arc::new(two().concat(mask().take(4)).expect("a concat"))),
        ("repeat", Arc::new(two().repeat(3).expect("a repeat"))),
        ("mix", Arc::new(feedline_core::Mix::builder(1).dataset(mask(), 1.0).build().expect("a mix"))),
        ("cached", Arc::new(mask().cached(0).expect("a cache"))),
        ("split", {
            let [all, _] =
                mask().concat(mask().take(1)).expect("seven").split([0.9, 0.1], 1).expect("a split");
            Arc::new(all)
        }),
        ("zip", Arc::new(labels.zip(mask()).expect("a zip"))),
        ("box", Arc::new(Box::new(shared(mask())) as Box<dyn Dataset>)),
    ];
    for (name, set) in sets {
        assert_eq!(set.len(), 6, "{name}");
        let fields: Vec<_> =
            set.spec().fields().iter().map(|field| format!("\"{}\"", field.name())).collect();
        let why = refused(Cropped::new("image").zip(set.clone()));
        let wanted = format!(
            "parts 0 (\"image\") and 1 ({}) of the zip crop, flip or turn pictures at random, each in its \
             own way",
            fields.join(", ")
        );
        assert!(why.starts_with(&wanted) && why.contains("Zip::independent"), "{name}: {why}");
        // `independent` allows it.
        let parts = [shared(Cropped::new("image")), set];
        assert_eq!(Zip::independent(parts).expect("two views").len(), 6);
    }
    // Other random numbers do not matter.
    let noise = number(Numbered::new(0, 6)).zip(draws(Numbered::new(7, 6))).expect("two sets of noise");
    assert!(noise.zip(mask()).is_ok());
}
