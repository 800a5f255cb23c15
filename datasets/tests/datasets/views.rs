//! Several random views of one decoded picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{
    CheckOptions, Context, DType, Dataset, ElementType, ErrorKind, Field, Layout, ReadError, Result, Row,
    Spec, check_dataset,
};
use feedline_datasets::{Form, Parts, Pictures, Views};
use feedline_images::{Mode, Transforms};

use crate::made::png;

/// Pictures in memory, which count how often they are read.
#[derive(Debug)]
struct Counted {
    schema: Spec,
    reads: Arc<AtomicU64>,
}

impl Counted {
    fn counted() -> (Arc<dyn Dataset>, Arc<AtomicU64>) {
        let label = Field::fixed("label", ElementType::Number(DType::I64), &[]);
        let schema = Spec::of_fields([Field::variable("image", ElementType::Bytes), label]);
        let reads = Arc::new(AtomicU64::new(0));
        (Arc::new(Self { schema, reads: reads.clone() }), reads)
    }
}

impl Dataset for Counted {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        20
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let pixels: Vec<u8> = (0..24 * 24 * 3).map(|at: u64| (at * 7 + sample * 31) as u8).collect();
        row.put(0, &png(24, 8, 2, &pixels))?;
        Ok(row.put(1, &(sample as i64).to_le_bytes())?)
    }

    fn fingerprint(&self) -> u64 {
        3
    }
}

/// The fields of sample `id` in `epoch`.
fn read(set: &dyn Dataset, id: u64, epoch: u64) -> Vec<Vec<u8>> {
    let layout = Layout::new(set.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let mut context = Context::new(7, epoch);
    context.begin(0, id);
    set.read(id, &mut rows.row(0), &mut context).unwrap();
    (0..set.spec().fields().len()).map(|field| rows.column_mut(field).to_vec()).collect()
}

fn list(size: usize) -> Transforms {
    Transforms::new().random_resized_crop(size).flip(0.5).color_jitter(0.3, 0.0, 0.0, 0.0)
}

#[test]
fn views_of_one_read_are_those_of_the_list_and_differ() {
    let (reader, reads) = Counted::counted();
    let set = Pictures::new(reader, Views::new().add(2, list(16)).add(3, list(8))).unwrap();
    let fields: Vec<_> = set.spec().fields().iter().map(|field| (field.name(), field.shape())).collect();
    let (large, small) = (&[16, 16, 3][..], &[8, 8, 3][..]);
    let wanted = [("view0", large), ("view1", large), ("view2", small), ("view3", small), ("view4", small)];
    assert_eq!(fields, [&wanted[..], &[("label", &[][..])]].concat());
    assert!(check_dataset(&set, &CheckOptions::default()).unwrap().is_clean());
    let alone = Pictures::new(Counted::counted().0, list(16)).unwrap();
    for id in 0..20 {
        let before = reads.load(Ordering::Relaxed);
        let views = read(&set, id, 0);
        assert_eq!(reads.load(Ordering::Relaxed), before + 1);
        // The first view draws what a set of one view draws.
        assert_eq!(views[0], read(&alone, id, 0)[0]);
        assert!(views[0] != views[1] && views[2] != views[3] && views[3] != views[4], "{id}");
        assert_eq!(views[5], (id as i64).to_le_bytes());
        assert_eq!(views, read(&set, id, 0));
        assert_ne!(views[..5], read(&set, id, 1)[..5]);
    }
}

/// The pictures of [`Counted`], each turned to its negative in half of the draws.
fn negated() -> Arc<dyn Dataset> {
    let spec = Counted::counted().0.spec().clone();
    Arc::new(feedline_core::from_fn(20, spec, |id, row, context| {
        let negative = context.random().below(2) as u8 * 255;
        let pixels: Vec<u8> = (0..24 * 24 * 3).map(|at: u64| (at * 7 + id * 31) as u8 ^ negative).collect();
        row.put(0, &png(24, 8, 2, &pixels))?;
        Ok(row.put(1, &(id as i64).to_le_bytes())?)
    }))
}

#[test]
fn pictures_that_their_set_draws_are_drawn_beside_the_transforms() {
    let forms: [fn() -> Form; 3] = [
        || Transforms::new().random_crop(8).into(),
        || Views::new().add(2, Transforms::new().random_crop(8)).into(),
        || Parts::new().with(Transforms::new().random_crop(8)),
    ];
    for form in forms {
        let (plain, drawn) = (Counted::counted().0, negated());
        let [plain, drawn] = [plain, drawn].map(|inner| Pictures::new(inner, form()).unwrap());
        let (mut negatives, mut like_the_crops) = (0, 0);
        for epoch in 0..40 {
            let (plain, drawn) = (read(&plain, 3, epoch), read(&drawn, 3, epoch));
            let negative = plain[0].iter().map(|pixel| !pixel).collect::<Vec<_>>();
            // The crop is the same, since the set below draws from numbers of its own.
            assert!(drawn[0] == plain[0] || drawn[0] == negative, "epoch {epoch}");
            negatives += u32::from(drawn[0] == negative);
            let mut context = Context::new(7, epoch);
            context.begin(0, 3);
            let first = context.random().below(2) == 1;
            like_the_crops += u32::from(first == (drawn[0] == negative));
        }
        assert!((8..32).contains(&negatives), "{negatives} of 40");
        assert!((8..32).contains(&like_the_crops), "{like_the_crops} of 40 draw what the crop draws first");
        assert!(check_dataset(&drawn, &CheckOptions::default()).unwrap().is_clean());
    }
}

#[test]
fn lists_that_lanes_cannot_run_are_refused_before_all_pictures_are_read() {
    let on_host = || Transforms::new().resize(16).on_device().flip(0.5);
    let forms: [Form; 3] =
        [on_host().into(), Views::new().add(2, on_host()).into(), Parts::new().with(on_host())];
    for form in forms {
        let (reader, reads) = Counted::counted();
        let error = Pictures::encoded(reader, form).unwrap_err();
        assert!(error.message().contains("put on_device() first"), "{error}");
        assert_eq!(reads.load(Ordering::Relaxed), 0, "{error}");
    }
}

#[test]
fn lists_that_cannot_share_a_picture_are_refused() {
    for (views, part) in [
        (Views::new(), "there are no views"),
        (Views::new().add(1, list(8)).add(1, list(8).scaled_decode()), "the decode is scaled"),
        (Views::new().add(2, list(8).mode(Mode::RgbAlpha)), "use rgb or gray"),
        (Views::new().add(2, Transforms::new().on_device().random_resized_crop(8)), "on the device"),
        (Views::new().add(2, Transforms::new().flip(0.5)), "sizes of their own"),
        (Views::new().add(16, list(8)), "at most 16 fields"),
    ] {
        let error = Pictures::new(Counted::counted().0, views).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{part}: {error}");
    }
    let gray = Pictures::new(Counted::counted().0, Views::new().add(2, list(8).mode(Mode::Gray))).unwrap();
    assert_eq!(gray.spec().fields()[1].shape(), [8, 8, 1]);
}
