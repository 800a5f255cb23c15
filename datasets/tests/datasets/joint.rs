//! Pictures with masks, boxes and points: one draw moves all parts of a sample.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{
    CheckOptions, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, Layout, ReadError, Result,
    Row, Spec, check_dataset,
};
use feedline_datasets::{Paired, Parts, Pictures, open};
use feedline_images::{BoxFormat, Transforms};
use tempfile::tempdir;

use crate::made::{png, write};

/// A picture whose pixels hold their row and column, and a mask of both.
const SIDE: usize = 24;

fn places() -> impl Iterator<Item = [u8; 2]> {
    (0..SIDE as u8).flat_map(|y| (0..SIDE as u8).map(move |x| [y, x]))
}

fn picture() -> Vec<u8> {
    png(SIDE, 8, 2, &places().flat_map(|[y, x]| [y, x, 9]).collect::<Vec<_>>())
}

/// 16 bits per pixel: the row, then the column.
fn depth() -> Vec<u8> {
    png(SIDE, 16, 0, &places().flatten().collect::<Vec<_>>())
}

/// The rows as a mask of 8 bits.
fn mask() -> Vec<u8> {
    png(SIDE, 8, 0, &places().map(|[y, _]| y).collect::<Vec<_>>())
}

/// One sample in memory, as often as wanted.
#[derive(Debug)]
struct Memory {
    schema: Spec,
    values: Vec<(Vec<u8>, Vec<usize>)>,
    samples: u64,
}

impl Memory {
    fn new(samples: u64) -> Self {
        Self { schema: Spec::default(), values: Vec::new(), samples }
    }

    fn with(mut self, field: Field, bytes: Vec<u8>, shape: &[usize]) -> Self {
        self.schema = Spec::of_fields(self.schema.fields().iter().cloned().chain([field]));
        self.values.push((bytes, shape.to_vec()));
        self
    }

    fn encoded(self, name: &str, bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        self.with(Field::variable(name, ElementType::Bytes), bytes, &[len])
    }

    /// A list of numbers, with these dimensions of an item.
    fn list(self, name: &str, item: &[usize], numbers: &[f64]) -> Self {
        let shape = [None].into_iter().chain(item.iter().copied().map(Some));
        let element = ElementType::Number(DType::F64);
        let items = numbers.len() / item.iter().product::<usize>();
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.with(Field::open(name, element, shape), bytes, &[&[items], item].concat())
    }

    fn classes(self, name: &str, classes: &[i64]) -> Self {
        let bytes = classes.iter().flat_map(|class| class.to_le_bytes()).collect();
        self.with(Field::variable(name, ElementType::Number(DType::I64)), bytes, &[classes.len()])
    }

    fn joint(self, parts: Parts, transforms: Transforms) -> Result<Pictures> {
        Pictures::new(Arc::new(self), parts.with(transforms))
    }
}

impl Dataset for Memory {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.samples
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let mut values = self.values.iter().enumerate();
        Ok(values.try_for_each(|(field, (bytes, shape))| row.put_shaped(field, bytes, Some(shape)))?)
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

/// A sample of `set`: the bytes of each field.
fn read(set: &dyn Dataset, id: u64) -> std::result::Result<Vec<Vec<u8>>, Error> {
    let layout = Layout::new(set.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let mut context = Context::new(7, 0);
    context.begin(0, id);
    set.read(id, &mut rows.row(0), &mut context).map_err(|error| *error.downcast::<Error>().unwrap())?;
    drop(rows);
    let bytes = |(index, field): (usize, &feedline_core::Field)| match field.as_ragged() {
        Some(_) => layout.row_values(&slab, index, 0).to_vec(),
        None => slab[layout.offset(index)..][..field.row_bytes()].to_vec(),
    };
    Ok(set.spec().fields().iter().enumerate().map(bytes).collect())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

fn moving() -> Transforms {
    Transforms::new().random_crop(16).flip(0.5).flip_vertically(0.5).quarter_turn()
}

#[test]
fn a_mask_depth_boxes_and_points_move_as_their_picture() {
    let numbers: Vec<f64> = places().flat_map(|[y, x]| [x, y, x + 1, y + 1].map(f64::from)).collect();
    let points: Vec<f64> = places().flat_map(|[y, x]| [x, y].map(f64::from)).collect();
    let classes: Vec<i64> = (0..(SIDE * SIDE) as i64).collect();
    let set = Memory::new(40)
        .encoded("image", picture())
        .encoded("mask", mask())
        .encoded("depth", depth())
        .list("bbox", &[4], &numbers)
        .list("points", &[2], &points)
        .classes("category", &classes)
        .joint(
            Parts::new()
                .mask("mask")
                .depth("depth")
                .boxes("bbox", BoxFormat::xyxy())
                .points("points")
                .beside(["category"]),
            moving(),
        )
        .unwrap();
    let names: Vec<_> = set.spec().fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["image", "mask", "depth", "bbox", "points", "category"]);
    let mut seen = std::collections::HashSet::new();
    for id in 0..40 {
        let fields = read(&set, id).unwrap();
        let pixels = fields[0].as_chunks::<3>().0;
        seen.insert(pixels[0]);
        assert!(pixels.iter().map(|pixel| pixel[0]).eq(fields[1].iter().copied()), "{id}");
        let depth = fields[2].as_chunks::<2>().0.iter().map(|bytes| u16::from_ne_bytes(*bytes));
        assert!(pixels.iter().map(|[y, x, _]| u16::from_be_bytes([*y, *x])).eq(depth), "{id}");
        // One box and one point of each pixel that is left.
        let (boxes, points) = (floats(&fields[3]), floats(&fields[4]));
        let classes: Vec<i64> =
            fields[5].as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
        assert_eq!((boxes.len(), points.len(), classes.len()), (16 * 16 * 4, 16 * 16 * 2, 16 * 16));
        for ((corners, point), class) in boxes.chunks(4).zip(points.chunks(2)).zip(classes) {
            let (left, top) = (corners[0], corners[1]);
            assert_eq!(corners, [left, top, left + 1.0, top + 1.0]);
            assert_eq!(point, [left, top]);
            let [y, x, _] = pixels[top as usize * 16 + left as usize];
            assert_eq!(class, i64::from(y) * SIDE as i64 + i64::from(x), "{id}");
        }
    }
    assert!(seen.len() > 20, "the draws differ: {seen:?}");
}

#[test]
fn photographs_and_masks_of_two_folders_are_paired_by_name() {
    let dir = tempdir().unwrap();
    for number in 0..40 {
        write(dir.path(), &format!("photographs/{number}.png"), &picture());
        // The names differ only in their extensions, so masks sort in another order than pictures.
        let extension = if number % 2 == 0 { "png" } else { "PNG" };
        write(dir.path(), &format!("masks/{number}.{extension}"), &mask());
    }
    let (photographs, masks) = (dir.path().join("photographs"), dir.path().join("masks"));
    let pairs = Paired::open(&photographs, &masks).unwrap();
    let set = Pictures::new(Arc::new(pairs), Parts::new().mask("mask").with(moving())).unwrap();
    assert!(check_dataset(&set, &CheckOptions::default()).unwrap().is_clean());
    let aligned = (0..40).filter(|id| {
        let fields = read(&set, *id).unwrap();
        fields[0].as_chunks::<3>().0.iter().map(|pixel| pixel[0]).eq(fields[1].iter().copied())
    });
    assert_eq!(aligned.count(), 40);

    let refused = |wanted: &Path, part: &str| {
        let error = Paired::open(&photographs, &masks).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(wanted)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let double = write(dir.path(), "masks/7.jpg", b"");
    refused(&masks.join("7.jpg").max(masks.join("7.PNG")), "have one name");
    fs::remove_file(double).unwrap();
    let extra = write(dir.path(), "masks/77.png", &mask());
    refused(&extra, "no picture in");
    fs::remove_file(extra).unwrap();
    fs::remove_file(masks.join("8.png")).unwrap();
    refused(&photographs.join("8.png"), "no mask in");
}

#[test]
fn zip_refuses_a_picture_and_a_mask_that_are_each_moved_and_names_what_moves_both() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a/0.png", &picture());
    let part = || feedline_datasets::Pictures::new(open(dir.path().join("a")).unwrap(), moving()).unwrap();
    let renamed = part().map(Spec::new().field("mask", DType::U8, [16, 16, 3]).unwrap(), |sample, row, _| {
        row.write(0, sample.bytes(0));
        Ok(())
    });
    let Err(error) = part().zip(renamed.unwrap()) else { panic!("two draws were zipped") };
    assert!(error.to_string().contains("read pictures and masks by Pictures"), "{error}");
}

fn one(list: &[f64], parts: Parts) -> std::result::Result<Vec<Vec<u8>>, Error> {
    let classes: Vec<i64> = (0..list.len() as i64 / 4).collect();
    let set =
        Memory::new(3).encoded("image", picture()).list("bbox", &[4], list).classes("category", &classes);
    read(&set.joint(parts.beside(["category"]), Transforms::new().center_crop(12)).unwrap(), 2)
}

#[test]
fn boxes_of_every_format_are_cut_and_left_out_with_what_is_beside_them() {
    // The crop has the pixels 6 to 18. One box is whole, one cut, one gone, one too thin.
    let corners =
        [[7.0, 8.0, 9.0, 11.0], [0.0, 0.0, 8.0, 9.0], [0.0, 0.0, 5.0, 5.0], [10.0, 10.0, 10.5, 14.0]];
    for (format, numbers) in [
        (BoxFormat::xyxy(), corners),
        (BoxFormat::xywh(), corners.map(|[a, b, c, d]: [f64; 4]| [a, b, c - a, d - b])),
        (
            BoxFormat::cxcywh().normalised(),
            corners
                .map(|[a, b, c, d]| [(a + c) / 2.0, (b + d) / 2.0, c - a, d - b].map(|place| place / 24.0)),
        ),
    ] {
        let fields = one(&numbers.concat(), Parts::new().boxes("bbox", format)).unwrap();
        let wanted = [1.0, 2.0, 3.0, 5.0, 0.0, 0.0, 2.0, 3.0];
        let boxes = floats(&fields[1]);
        assert!(boxes.len() == 8 && boxes.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{boxes:?}");
        assert_eq!(fields[2], [0_i64, 1].map(i64::to_ne_bytes).concat());
        let parts = Parts::new().boxes("bbox", format).box_format(BoxFormat::xywh().normalised());
        let boxes = floats(&one(&numbers.concat(), parts.min_size(3.5)).unwrap()[1]);
        assert!(boxes.is_empty(), "{boxes:?}");
        let parts = Parts::new().boxes("bbox", format).box_format(BoxFormat::xywh().normalised());
        let boxes = floats(&one(&numbers.concat(), parts).unwrap()[1]);
        let wanted = [1.0, 2.0, 2.0, 3.0, 0.0, 0.0, 2.0, 3.0].map(|place| place / 12.0);
        assert!(boxes.len() == 8 && boxes.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{boxes:?}");
    }
}

#[test]
fn boxes_and_points_of_a_table_that_states_another_width_and_height_are_refused() {
    let one = |sides: [i64; 2], numbers: &[f64], parts: Parts| {
        let side = |reader: Memory, name: &str, side: i64| {
            let field = Field::fixed(name, ElementType::Number(DType::I64), &[]);
            reader.with(field, side.to_le_bytes().to_vec(), &[])
        };
        let item = if numbers.len() == 4 { 4 } else { 2 };
        let reader = Memory::new(1).encoded("image", picture()).list("list", &[item], numbers);
        let reader = side(side(reader, "width", sides[0]), "height", sides[1]);
        let set = reader.joint(parts, Transforms::new().center_crop(SIDE)).unwrap();
        let names = set.spec().fields().iter().filter(|field| ["width", "height"].contains(&field.name()));
        let is_kept = names.count() == 2;
        read(&set, 0).map(|_| is_kept)
    };
    let (boxes, points) = (&[1.0, 2.0, 9.0, 8.0][..], &[3.0, 4.0][..]);
    let pixels = || Parts::new().boxes("list", BoxFormat::xyxy());
    let relative = || Parts::new().boxes("list", BoxFormat::xyxy().normalised());
    let fractions = &[0.1, 0.2, 0.9, 0.8][..];
    let side = SIDE as i64;
    for sides in [[side, side], [0, 0]] {
        // The fields stay in the batch, unless they are named as the size.
        assert!(one(sides, boxes, pixels()).unwrap());
        assert!(!one(sides, boxes, pixels().stated_size("width", "height")).unwrap());
        assert!(one(sides, points, Parts::new().points("list")).unwrap());
        assert!(one(sides, fractions, relative()).unwrap());
    }
    // Fractions fit every size of this shape.
    assert!(one([2 * side, 2 * side], fractions, relative()).is_ok());
    for (sides, numbers, parts) in [
        ([2 * side, 2 * side], boxes, pixels()),
        ([side + 1, side], boxes, pixels()),
        ([side, side + 1], points, Parts::new().points("list")),
        ([2 * side, side], fractions, relative()),
        ([side, 2 * side], boxes, pixels().stated_size("width", "height")),
    ] {
        let error = one(sides, numbers, parts).unwrap_err();
        let why = format!("of a picture of {} x {}, and it is {SIDE} x {SIDE} decoded", sides[0], sides[1]);
        assert!(error.kind() == ErrorKind::Sample && error.to_string().contains(&why), "{error}");
    }
}

#[test]
fn points_may_be_lists_of_lists_and_a_caption_stays_whole() {
    let lengths =
        |lengths: &[i64]| lengths.iter().flat_map(|length| length.to_le_bytes()).collect::<Vec<_>>();
    let flat = |numbers: &[f64], inner: &[i64]| {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let field = Field::variable("at", ElementType::Number(DType::F64));
        let of = Field::variable("at.lengths", ElementType::Number(DType::I64));
        let reader = Memory::new(1).encoded("image", picture()).encoded("caption", b"two dots".to_vec());
        reader.with(field, bytes, &[numbers.len()]).with(of, lengths(inner), &[inner.len()])
    };
    let nested = |numbers: &[f64], shape: [usize; 2]| {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let field = Field::open("at", ElementType::Number(DType::F64), [None, None]);
        Memory::new(1)
            .encoded("image", picture())
            .encoded("caption", b"two dots".to_vec())
            .with(field, bytes, &shape)
    };
    let crop = || Transforms::new().center_crop(20);
    let parts = || Parts::new().image("image").points("at");
    // The crop begins at 2, 2. The second point leaves the picture.
    let pairs = [3.0, 4.0, 23.5, 4.0, 7.0, 9.0];
    for reader in [flat(&pairs, &[2, 2, 2]), nested(&pairs, [3, 2])] {
        let set = reader.joint(parts(), crop()).unwrap();
        assert_eq!(set.spec().fields()[1].shape(), [2]);
        assert_eq!(floats(&read(&set, 0).unwrap()[1]), [1.0, 2.0, 5.0, 7.0]);
    }
    let threes = [3.0, 4.0, 2.0, 23.5, 4.0, 1.0];
    for reader in [flat(&threes, &[3, 3]), nested(&threes, [2, 3])] {
        let set = reader.joint(parts(), crop()).unwrap();
        assert_eq!(floats(&read(&set, 0).unwrap()[1]), [1.0, 2.0, 2.0, 0.0, 0.0, 0.0]);
    }
    let empty = flat(&[], &[]).joint(parts(), crop()).unwrap();
    assert!(read(&empty, 0).unwrap()[1].is_empty());
    let uneven = flat(&pairs, &[2, 4]).joint(parts(), crop()).unwrap();
    let error = read(&uneven, 0).unwrap_err();
    assert!(error.to_string().contains("points of other than 2 numbers"), "{error}");
    let error = flat(&pairs, &[6]).joint(parts(), crop()).unwrap_err();
    assert!(error.to_string().contains("has lists of 6 numbers, and points have two or three"), "{error}");
    // Without boxes and points, a field that varies in length is read as it is.
    let set = flat(&pairs, &[2, 2, 2])
        .joint(Parts::new().image("image").beside(["caption", "at"]), crop())
        .unwrap();
    let fields = read(&set, 0).unwrap();
    let limits = set.spec().fields()[1..].iter().map(|field| field.as_ragged().unwrap().max_per_sample());
    assert_eq!(
        (&fields[1][..], fields[2].len(), limits.collect::<Vec<_>>()),
        (&b"two dots"[..], 48, vec![8, 6])
    );
}

#[test]
fn bad_boxes_points_and_masks_are_errors_of_their_sample() {
    let xyxy = || Parts::new().boxes("bbox", BoxFormat::xyxy());
    let refused = |result: std::result::Result<Vec<Vec<u8>>, Error>, part: &str| {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(2)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(
        one(&[0.0, 0.0, 4.0, 4.0, 1.0, 1.0, f64::NAN, 2.0], xyxy()),
        "field \"bbox\": box 1, from x 1, y 1",
    );
    refused(one(&[0.0, 0.0, 26.0, 4.0], xyxy()), "is outside of its picture of 24 x 24");
    refused(one(&[5.0, 0.0, 4.0, 4.0], xyxy()), "ends before it begins");
    one(&[-9.0, 0.0, 99.0, 24.0], xyxy().clip()).unwrap();
    let set = |memory: Memory, parts| read(&memory.joint(parts, moving()).unwrap(), 2);
    let with_image = || Memory::new(3).encoded("image", picture());
    let small = png(8, 8, 0, &[3; 64]);
    refused(
        set(with_image().encoded("mask", small), Parts::new().mask("mask")),
        "field \"mask\": the mask is 8 x 8, and its picture is 24 x 24",
    );
    let points = with_image().list("points", &[2], &[1.0, f64::INFINITY]);
    refused(set(points, Parts::new().points("points")), "field \"points\": has a point that is not finite");
    let uneven = with_image().list("bbox", &[4], &[0.0, 0.0, 4.0, 4.0]).classes("category", &[1, 2]);
    refused(set(uneven, xyxy().beside(["category"])), "has 2 items, and \"bbox\", beside which it is, has 1");
    let flat = with_image().with(
        Field::open("bbox", ElementType::Number(DType::U8), [None, None]),
        vec![0, 0, 4, 4, 1, 2],
        &[2, 3],
    );
    refused(set(flat, xyxy()), "has boxes of other than four numbers");
    let colours = with_image().encoded("mask", picture());
    let error = set(colours, Parts::new().mask("mask")).unwrap_err();
    assert!(error.to_string().contains("has colours, not numbers"), "{error}");
    let wide = with_image().encoded("mask", depth());
    let error = set(wide, Parts::new().mask("mask")).unwrap_err();
    assert!(error.to_string().contains("read it as depth"), "{error}");
}

#[test]
fn a_bad_mask_is_named_by_its_own_file() {
    let dir = tempdir().unwrap();
    write(dir.path(), "photographs/0.png", &picture());
    let mask: PathBuf = write(dir.path(), "masks/0.png", &png(8, 8, 0, &[3; 64]));
    let pairs = Paired::open(dir.path().join("photographs"), dir.path().join("masks")).unwrap();
    let set = Pictures::new(Arc::new(pairs), Parts::new().mask("mask").with(moving())).unwrap();
    let error = read(&set, 0).unwrap_err();
    assert_eq!((error.path(), error.sample()), (Some(&*mask), Some(0)), "{error}");
}

#[test]
fn visible_points_follow_coco_and_groups_stay_with_their_boxes() {
    // Two people of two points each; the crop has the pixels 6 to 18.
    let people = [[7.0, 8.0, 2.0], [0.0, 0.0, 0.0], [9.0, 9.0, 1.0], [2.0, 9.0, 2.0]].concat();
    let boxes = [7.0, 8.0, 12.0, 12.0, 0.0, 0.0, 5.0, 5.0];
    let crop = || Transforms::new().center_crop(12);
    let set = |parts| {
        let memory = Memory::new(3).encoded("image", picture()).list("bbox", &[4], &boxes);
        let fields =
            read(&memory.list("keypoints", &[2, 3], &people).joint(parts, crop()).unwrap(), 0).unwrap();
        floats(&fields[2])
    };
    let parts = || Parts::new().boxes("bbox", BoxFormat::xyxy()).points("keypoints");
    let first = [1.0, 2.0, 2.0, 0.0, 0.0, 0.0];
    assert_eq!(set(parts()), [&first[..], &[3.0, 3.0, 1.0, 0.0, 0.0, 0.0]].concat());
    assert_eq!(set(parts().beside(["keypoints"])), first);
    // Without a third number, a group is removed with any of its points, as in torchvision.
    let groups = [7.0, 8.0, 9.0, 9.0, 7.0, 8.0, 2.0, 9.0];
    let memory = Memory::new(3).encoded("image", picture()).list("groups", &[2, 2], &groups);
    let set = memory.classes("who", &[4, 5]).joint(Parts::new().points("groups").beside(["who"]), crop());
    let fields = read(&set.unwrap(), 0).unwrap();
    assert_eq!((floats(&fields[1]), &fields[2][..]), (vec![1.0, 2.0, 3.0, 3.0], &4_i64.to_ne_bytes()[..]));
}

#[test]
fn the_moves_of_a_draw_are_reported() {
    let memory = Memory::new(9).encoded("image", picture()).encoded("mask", mask());
    let set = memory.joint(Parts::new().mask("mask").report_moves(), moving().resize(8)).unwrap();
    for id in 0..9 {
        let fields = read(&set, id).unwrap();
        let words: Vec<i32> =
            fields[2].as_chunks::<4>().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect();
        let moves: Vec<&[i32]> = words.chunks(5).collect();
        assert!(matches!(moves[0], [0, 0..=8, 0..=8, 16, 16]), "{moves:?}");
        assert_eq!(moves.last().unwrap()[..3], [2, 8, 8], "{moves:?}");
    }
}

#[test]
fn parts_that_a_reader_lacks_are_refused_with_what_it_has() {
    let refused = |parts: Parts, transforms: Transforms, part: &str| {
        let memory = Memory::new(1).encoded("image", picture()).list("bbox", &[3], &[1.0, 2.0, 3.0]);
        let error = memory.joint(parts, transforms).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{error}");
    };
    refused(Parts::new().mask("masks"), moving(), "no field \"masks\" for a mask");
    refused(Parts::new().mask("bbox"), moving(), "the field bbox f64 [?, 3] cannot be a mask");
    refused(Parts::new().boxes("bbox", BoxFormat::xyxy()), moving(), "cannot be boxes");
    refused(
        Parts::new().beside(["image.x"]),
        moving(),
        "no field \"image.x\" for a field that varies in length",
    );
    refused(Parts::new(), moving().rand_augment(2, 9), "RandAugment");
    refused(Parts::new(), Transforms::new(), "sizes of their own");
}
