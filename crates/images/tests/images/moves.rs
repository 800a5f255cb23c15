//! Masks, boxes and points that move with a picture: compared with torchvision v2's results for the same
//! moves (written by `golden/parts.py`), and with each other.

use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::{ErrorKind, Random};
use feedline_images::{
    BoxFormat, BoxRules, Canvas, Decoder, Effect, Filter, Mode, Move, Moves, Plane, RandAugment, Region,
    Sampling, Scratch, Size, Transform, Transforms, Turn,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The moves in a line of the golden file.
fn moves(text: &str) -> Vec<Move> {
    let mirror = Turn { is_mirrored: true, quarters: 0 };
    let step = |step: &str| {
        let mut words = step.split(' ');
        let kind = words.next().unwrap();
        let numbers: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
        match (kind, &numbers[..]) {
            ("crop", &[top, left, height, width]) => {
                Move::Crop(Region { top, left, size: Size::new(height, width) })
            }
            ("pad", &[top, right, bottom, left]) => Move::Pad([top, right, bottom, left]),
            ("resize", &[height, width]) => Move::Resize(Size::new(height, width), Filter::Bilinear),
            ("mirror", []) => Move::Turn(mirror),
            ("upend", []) => Move::Turn(Turn { quarters: 2, ..mirror }),
            other => panic!("no move {other:?}"),
        }
    };
    text.split(';').map(step).collect()
}

/// The lines of the golden file of this kind, without it.
fn lines(kind: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(golden("parts.tsv")).unwrap();
    let lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line[0] == kind).map(|line| line[1..].to_vec()).collect()
}

/// Rows of `N` numbers.
fn rows<const N: usize>(text: &str) -> Vec<[f32; N]> {
    let row = |row: &str| {
        let numbers: Vec<f32> = row.split(' ').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    };
    text.split(';').map(row).collect()
}

fn size(line: &[String]) -> Size {
    Size::new(line[1].parse().unwrap(), line[0].parse().unwrap())
}

#[track_caller]
fn mask(name: &str) -> Plane<u8> {
    let mut plane = Plane::new();
    Decoder::new().decode_plane(&fs::read(golden("parts").join(name)).unwrap(), &mut plane).unwrap();
    plane
}

#[test]
fn masks_move_as_torchvisions_to_the_pixel() {
    let lines = lines("mask");
    assert_eq!(lines.len(), 8);
    for line in lines {
        let mut found = mask(&line[1]);
        found.apply(&Moves::new(found.size(), moves(&line[0])), Sampling::Nearest);
        let wanted = mask(&line[2]);
        assert_eq!(found.size(), wanted.size(), "{line:?}");
        assert_eq!(found.pixels(), wanted.pixels(), "{line:?}");
    }
}

#[test]
fn boxes_move_and_are_left_out_as_torchvisions() {
    let (rules, mut kept) = (BoxRules::default(), 0);
    for line in lines("boxes") {
        let moves = Moves::new(size(&line), moves(&line[2]));
        let boxes = rows::<4>(&line[3]).into_iter().zip(rows::<4>(&line[4]));
        for ((corners, wanted), is_kept) in boxes.zip(line[5].bytes()) {
            let found = moves.of_box(corners);
            let far = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs());
            assert!(far.fold(0.0, f32::max) <= 1e-4, "{found:?} {wanted:?}: {line:?}");
            assert_eq!(rules.keeps(found), is_kept == b'1', "{found:?}: {line:?}");
            kept += usize::from(is_kept == b'1');
        }
    }
    assert!((100..600).contains(&kept), "some boxes are kept and others are not: {kept} of 720");
}

#[test]
fn points_move_and_are_left_out_as_torchvisions() {
    let mut kept = 0;
    for line in lines("points") {
        let moves = Moves::new(size(&line), moves(&line[2]));
        let points = rows::<2>(&line[3]).into_iter().zip(rows::<2>(&line[4]));
        for ((point, wanted), is_kept) in points.zip(line[5].bytes()) {
            let found = moves.of_point(point);
            assert_eq!(found.is_some(), is_kept == b'1', "{point:?} {wanted:?}: {line:?}");
            let Some([x, y]) = found else { continue };
            assert!((x - wanted[0]).abs() <= 1e-4 && (y - wanted[1]).abs() <= 1e-4, "{x} {y} {wanted:?}");
            kept += 1;
        }
    }
    assert!((100..600).contains(&kept), "some points are kept and others are not: {kept} of 720");
}

/// A list of transforms that moves a picture in every way.
fn every_move() -> Transforms {
    Transforms::new()
        .pad(3)
        .random_crop(30)
        .flip(0.5)
        .flip_vertically(0.5)
        .quarter_turn()
        .color_jitter(0.1, 0.0, 0.0, 0.0)
        .erase(0.0)
}

#[test]
fn a_mask_and_points_follow_their_picture_through_every_move() {
    let size = Size::new(40, 50);
    let places: Vec<[u8; 2]> = (0..40).flat_map(|y| (0..50).map(move |x| [y + 1, x + 1])).collect();
    let pixels: Vec<u8> = places.iter().flat_map(|[y, x]| [*y, *x, 7]).collect();
    let list = Transforms::new().pad(3).random_crop(30).flip(0.5).flip_vertically(0.5).quarter_turn();
    let (mut scratch, mut image) = (Scratch::default(), vec![0; 30 * 30 * 3]);
    for key in 0..64 {
        list.apply(size, &pixels, &mut Random::from_key(key), &mut scratch, &mut image).unwrap();
        let moves = scratch.moves();
        assert!(moves.lead_to(Size::new(30, 30)));
        let mut plane = Plane::<u16>::new();
        plane.resized(size).extend(places.iter().map(|place| u16::from_le_bytes(*place)));
        plane.apply(moves, Sampling::Nearest);
        let found = image.as_chunks::<3>().0.iter().map(|[y, x, _]| u16::from_le_bytes([*y, *x]));
        assert!(found.eq(plane.pixels().iter().copied()), "key {key}: {moves:?}");
        for (at, [y, x]) in places.iter().enumerate() {
            let was = [(at % 50) as f32, (at / 50) as f32];
            let Some(now) = moves.of_point(was) else { continue };
            let pixel = &image[3 * (now[1] as usize * 30 + now[0] as usize)..][..2];
            assert_eq!(pixel, [*y, *x], "key {key}: {moves:?}");
            let [left, top, ..] = moves.of_box([was[0], was[1], was[0] + 1.0, was[1] + 1.0]);
            assert_eq!([left, top], now);
        }
    }
}

#[test]
fn moves_of_a_list_lead_from_the_picture_to_its_result() {
    let encoded = fs::read(golden("pictures/RGB.png")).unwrap();
    let list = every_move().resize_shorter_side(20).center_crop(24);
    let spec = list.field("image").unwrap();
    let mut image = vec![0; spec.fields()[0].row_bytes()];
    let (mut scratch, decoded) = (Scratch::default(), Decoder::new().size(&encoded).unwrap());
    for key in 0..16 {
        list.read(&encoded, &mut Random::from_key(key), &mut scratch, &mut image).unwrap();
        assert_eq!(scratch.moves().source(), decoded);
        assert!(scratch.moves().lead_to(Size::new(24, 24)), "{:?}", scratch.moves());
    }
}

/// Mirrors in its own way.
#[derive(Debug)]
struct Own(Effect);

impl Transform for Own {
    fn effect(&self) -> Effect {
        self.0
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        canvas.replace(Size::new(2, 2), |_, _, pixels| pixels.fill(0));
    }
}

#[test]
fn a_list_whose_moves_are_unknown_is_refused() {
    let refused = |list: Transforms, part: &str| {
        let error = list.check_moves().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(Transforms::new().then(RandAugment::new(2, 9)).resize(8), "RandAugment");
    refused(Transforms::new().trivial_augment().resize(8), "TrivialAugment");
    refused(Transforms::new().then(Own(Effect::Unknown)), "follow the transform Own:");
    refused(Transforms::new().random_resized_crop(8).scaled_decode(), "scaled_decode");
    refused(Transforms::new().resize(8).on_device().flip(0.5), "on_device");
    refused(Transforms::new().on_device().resize(8).cutmix(1.0), "cutmix");
    Transforms::new().on_device().resize(8).check_moves().unwrap();
    every_move().check_moves().unwrap();
    // A transform that breaks its stated effect is found by the size.
    let list = Transforms::new().then(Own(Effect::Moves));
    let (mut scratch, mut image) = (Scratch::default(), [0; 12]);
    list.apply(Size::new(4, 4), &[0; 48], &mut Random::from_key(0), &mut scratch, &mut image).unwrap();
    let moves = scratch.moves();
    assert!(!moves.lead_to(Size::new(2, 2)) && !moves.lead_to(Size::new(4, 4)));
}

#[test]
fn formats_of_boxes_lead_there_and_back() {
    let (size, corners) = (Size::new(40, 80), [8.0, 10.0, 40.0, 30.0]);
    for (format, wanted) in [
        (BoxFormat::xyxy(), [8.0, 10.0, 40.0, 30.0]),
        (BoxFormat::xywh(), [8.0, 10.0, 32.0, 20.0]),
        (BoxFormat::cxcywh(), [24.0, 20.0, 32.0, 20.0]),
        (BoxFormat::xyxy().normalised(), [0.1, 0.25, 0.5, 0.75]),
        (BoxFormat::xywh().normalised(), [0.1, 0.25, 0.4, 0.5]),
        (BoxFormat::cxcywh().normalised(), [0.3, 0.5, 0.4, 0.5]),
    ] {
        assert_eq!(format.numbers(corners, size), wanted, "{format:?}");
        let back = format.corners(wanted, size);
        assert!(back.iter().zip(corners).all(|(back, wanted)| (back - wanted).abs() < 1e-4), "{back:?}");
    }
}

#[test]
fn bad_boxes_are_refused_by_number() {
    let (rules, size) = (BoxRules::default(), Size::new(40, 80));
    for (corners, part) in [
        ([f32::NAN, 0.0, 1.0, 1.0], "box 3, from x NaN, y 0 to x 1, y 1, has a number that is not finite"),
        ([0.0, 0.0, f32::INFINITY, 1.0], "not finite"),
        ([5.0, 0.0, 4.0, 1.0], "ends before it begins"),
        ([5.0, 2.0, 6.0, 1.0], "ends before it begins"),
        ([0.0, 0.0, 82.0, 1.0], "is outside of its picture of 80 x 40"),
        ([0.0, -2.0, 1.0, 1.0], "is outside"),
        ([0.0, 0.0, 1.0, 41.5], "is outside"),
    ] {
        let error = rules.check(3, corners, size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sample);
        assert!(error.to_string().contains(part), "{error}");
    }
    // A pixel is how tools round.
    assert_eq!(rules.check(0, [-1.0, 0.0, 81.0, 40.5], size).unwrap(), [0.0, 0.0, 80.0, 40.0]);
    let clip = BoxRules { clip: true, ..rules };
    assert_eq!(clip.check(0, [-9.0, 5.0, 99.0, 99.0], size).unwrap(), [0.0, 5.0, 80.0, 40.0]);
    assert!(clip.check(0, [f32::NAN; 4], size).is_err());
}

#[test]
fn a_mode_has_the_numbers_of_its_picture() {
    let read = |list: &Transforms, name: &str| {
        let encoded = fs::read(golden(name)).unwrap();
        let mut image = vec![0; list.field("image").unwrap().fields()[0].row_bytes()];
        list.read(&encoded, &mut Random::from_key(3), &mut Scratch::default(), &mut image).map(|()| image)
    };
    // A palette stays indices; RGB has none.
    let before = mask("1.png");
    let Size { height, width } = before.size();
    let list = Transforms::new().then(feedline_images::CenterCrop::new(before.size())).mode(Mode::Index);
    let spec = list.field("mask").unwrap();
    assert_eq!(spec.fields()[0].shape(), [height, width]);
    assert_eq!(read(&list, "parts/1.png").unwrap(), before.pixels());
    let error = read(&Transforms::new().center_crop(8).mode(Mode::Index), "pictures/RGB.png").unwrap_err();
    assert!(error.to_string().contains("has colours, not numbers: the pixel at x "), "{error}");
    // Gray is the luma of each pixel of RGB.
    let (rgb, gray) = (Transforms::new().random_crop(8), Transforms::new().random_crop(8).mode(Mode::Gray));
    let luma = |[r, g, b]: [u8; 3]| {
        ((u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000) >> 16) as u8
    };
    let wanted: Vec<u8> =
        read(&rgb, "pictures/RGB.png").unwrap().as_chunks::<3>().0.iter().map(|pixel| luma(*pixel)).collect();
    assert_eq!(read(&gray, "pictures/RGB.png").unwrap(), wanted);
    // A picture of numbers has no colours to change.
    for (list, part) in [
        (Transforms::new().resize(8).grayscale(0.5).mode(Mode::U16), "Grayscale"),
        (Transforms::new().resize(8).normalise([0.5; 3], [0.5; 3]).mode(Mode::Index), "leave out normalise"),
        (Transforms::new().rand_augment(2, 9).resize(8).mode(Mode::RgbAlpha), "RandAugment"),
        (Transforms::new().resize(8).scaled_decode().mode(Mode::Gray), "decoded whole"),
        (Transforms::new().on_device().resize(8).mode(Mode::U16), "on the host"),
    ] {
        let error = list.field("image").unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{error}");
    }
}
