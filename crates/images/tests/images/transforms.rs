//! Transforms against Pillow's results for the same picture, which `golden/make.py` writes.

use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::Random;
use feedline_images::{
    Canvas, CenterCrop, ColorJitter, Decoder, Filter, FlipLeftRight, FlipTopBottom, Grayscale, Operation,
    Pad, QuarterTurn, RandAugment, RandomCrop, RandomResizedCrop, Region, Resize, Size, Transform,
    TrivialAugment,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn read(name: &str) -> Canvas {
    let mut decoder = Decoder::new();
    let encoded = fs::read(golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let picture = decoder.decode(&encoded).unwrap();
    let mut canvas = Canvas::new();
    canvas.set(picture.size, picture.pixels);
    canvas
}

/// A picture whose pixels are their row, their column, and 7.
fn numbered(height: usize, width: usize) -> Canvas {
    let pixels: Vec<u8> =
        (0..height).flat_map(|y| (0..width).flat_map(move |x| [y as u8, x as u8, 7])).collect();
    let mut canvas = Canvas::new();
    canvas.set(Size::new(height, width), &pixels);
    canvas
}

/// The row and column that each pixel of `canvas` had in [`numbered`].
fn places(canvas: &Canvas) -> Vec<(u8, u8)> {
    canvas.pixels().chunks(3).map(|pixel| (pixel[0], pixel[1])).collect()
}

/// Asserts that `found` is the golden picture `name`, within `max` levels.
#[track_caller]
fn assert_near(found: &Canvas, name: &str, max: u8) {
    let wanted = read(&format!("transformed/{name}.png"));
    assert_eq!(found.size(), wanted.size(), "{name}");
    let pairs = found.pixels().iter().zip(wanted.pixels());
    let far = pairs.map(|(found, wanted)| found.abs_diff(*wanted)).max().unwrap();
    assert!(far <= max, "{name}: {far} levels");
}

#[test]
fn resize_is_pillows_within_a_level() {
    for (filter, name) in [
        (Filter::Nearest, "nearest"),
        (Filter::Bilinear, "bilinear"),
        (Filter::Bicubic, "bicubic"),
        (Filter::Lanczos, "lanczos"),
    ] {
        let max = u8::from(filter != Filter::Nearest);
        for (width, height) in [(20, 14), (100, 70), (61, 15), (7, 80)] {
            // Weights have 16 bits: enlarging with six of them adds a level of error.
            let grows = filter == Filter::Lanczos && height > 43;
            let max = max + u8::from(grows);
            let mut canvas = read("pictures/RGB.png");
            Resize::exact(Size::new(height, width), filter).apply(&mut canvas, &mut Random::from_key(0));
            assert_near(&canvas, &format!("resize-{name}-{width}x{height}"), max);
        }
        let mut canvas = read("pictures/RGB.png");
        canvas.crop(Region { top: 4, left: 11, size: Size::new(33, 39) });
        canvas.resize(Size::new(24, 24), filter);
        assert_near(&canvas, &format!("crop-{name}"), max);
    }
}

#[test]
fn the_shorter_side_gets_the_length_and_the_other_one_follows() {
    let resize = Resize::shorter_side(20, Filter::Bilinear);
    for ((height, width), wanted) in [((43, 61), (20, 28)), ((61, 43), (28, 20)), ((50, 50), (20, 20))] {
        let wanted = Size::new(wanted.0, wanted.1);
        assert_eq!(resize.size(Some(Size::new(height, width))), Some(wanted));
        let mut canvas = numbered(height, width);
        resize.apply(&mut canvas, &mut Random::from_key(0));
        assert_eq!(canvas.size(), wanted);
    }
}

#[test]
fn operations_are_pillows() {
    use Operation::*;
    for operation in [Brightness, Color, Contrast, Sharpness] {
        for magnitude in [-0.75, 0.75] {
            let mut canvas = read("pictures/RGB.png");
            operation.apply(&mut canvas, magnitude);
            assert_near(&canvas, &format!("{operation:?}{magnitude}"), 1);
        }
    }
    for (operation, magnitude) in [
        (Posterize, 3.0),
        (Solarize, 100.0),
        (Equalize, 0.0),
        (ShearX, 0.3),
        (ShearY, -0.2),
        (TranslateX, -7.9),
        (TranslateY, 5.0),
    ] {
        let mut canvas = read("pictures/RGB.png");
        operation.apply(&mut canvas, magnitude);
        assert_near(&canvas, &format!("{operation:?}{magnitude}"), 0);
    }
    // Pillow computes positions with 16 fractional bits: a few pixels at borders differ.
    for degrees in [30.0, -101.0] {
        let mut canvas = read("pictures/RGB.png");
        Rotate.apply(&mut canvas, degrees);
        let wanted = read(&format!("transformed/Rotate{degrees}.png"));
        let pairs = canvas.pixels().chunks(3).zip(wanted.pixels().chunks(3));
        let other = pairs.filter(|(found, wanted)| found != wanted).count();
        assert!(other < 26, "{degrees} degrees: {other} of 2623 pixels are others");
    }
    let mut canvas = read("transformed/dull.png");
    AutoContrast.apply(&mut canvas, 0.0);
    assert_near(&canvas, "AutoContrast0", 0);
}

#[test]
fn gray_is_pillows() {
    let mut canvas = read("pictures/RGB.png");
    Grayscale { probability: 0.0 }.apply(&mut canvas, &mut Random::from_key(0));
    assert_eq!(canvas.pixels(), read("pictures/RGB.png").pixels());
    Grayscale { probability: 1.0 }.apply(&mut canvas, &mut Random::from_key(0));
    assert_near(&canvas, "gray", 0);
}

#[test]
fn crops_and_borders_hold_the_pixels_they_should() {
    let mut random = Random::from_key(5);
    let mut apply = |transform: &dyn Transform, mut canvas: Canvas| {
        let region = transform.region(canvas.size(), &mut random);
        canvas.crop(region);
        transform.apply(&mut canvas, &mut random);
        canvas
    };
    let middle = apply(&CenterCrop::new(Size::new(2, 3)), numbered(5, 6));
    // Half of 3 is rounded to the even number 2.
    assert_eq!(places(&middle), [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4)]);
    let larger = apply(&CenterCrop::new(Size::new(3, 5)), numbered(2, 4));
    assert_eq!(larger.size(), Size::new(3, 5));
    assert_eq!(larger.pixels()[..15], [0, 0, 7, 0, 1, 7, 0, 2, 7, 0, 3, 7, 0, 0, 0]);
    assert_eq!(larger.pixels()[30..], [0; 15]);
    let padded = apply(&Pad::new([1, 2, 0, 1], [9, 8, 6]), numbered(1, 1));
    assert_eq!(padded.size(), Size::new(2, 4));
    let border = [9, 8, 6];
    assert_eq!(padded.pixels(), [border, border, border, border, border, [0, 0, 7], border, border].concat());

    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..400 {
        let part = apply(&RandomCrop::new(Size::new(3, 2)), numbered(5, 3));
        let first = places(&part)[0];
        let wanted: Vec<_> = (0..3).flat_map(|y| (0..2).map(move |x| (first.0 + y, first.1 + x))).collect();
        assert_eq!(places(&part), wanted);
        seen.insert(first);
    }
    assert_eq!(seen.len(), 3 * 2, "every place is drawn");
}

#[test]
fn flips_and_turns_move_every_pixel_and_happen_as_often_as_asked() {
    let corners = |canvas: &Canvas| {
        let all = places(canvas);
        [all[0], all[canvas.size().width - 1], all[all.len() - 1]]
    };
    let mut random = Random::from_key(11);
    for (transform, probability, wanted) in [
        (&FlipLeftRight { probability: 0.3 } as &dyn Transform, 0.3, [(0, 2), (0, 0), (1, 0)]),
        (&FlipTopBottom { probability: 0.7 }, 0.7, [(1, 0), (1, 2), (0, 2)]),
    ] {
        let mut flipped = 0;
        for _ in 0..2000 {
            let mut canvas = numbered(2, 3);
            transform.apply(&mut canvas, &mut random);
            match corners(&canvas) {
                corners if corners == wanted => flipped += 1,
                corners => assert_eq!(corners, [(0, 0), (0, 2), (1, 2)]),
            }
        }
        let share = f64::from(flipped) / 2000.0;
        assert!((share - probability).abs() < 0.05, "{transform:?}: {share}");
    }
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..800 {
        let mut canvas = numbered(2, 3);
        QuarterTurn.apply(&mut canvas, &mut random);
        *counts.entry(corners(&canvas)).or_insert(0) += 1;
    }
    let turns = [
        [(0, 0), (0, 2), (1, 2)],
        [(1, 0), (0, 0), (0, 2)],
        [(1, 2), (1, 0), (0, 0)],
        [(0, 2), (1, 2), (1, 0)],
    ];
    assert_eq!(counts.len(), 4);
    for turn in turns {
        assert!((150..250).contains(&counts[&turn]), "{turn:?}: {counts:?}");
    }
}

#[test]
fn random_resized_crop_draws_area_and_ratio_as_torchvision_defines_them() {
    let (size, mut random) = (Size::new(300, 400), Random::from_key(3));
    let crop = RandomResizedCrop::new(Size::new(32, 32));
    let (mut area, mut log_ratio, mut places) = (0.0, 0.0, [0.0; 2]);
    for _ in 0..4000 {
        let Region { top, left, size: part } = crop.region(size, &mut random);
        assert!(top + part.height <= 300 && left + part.width <= 400);
        let share = part.pixels() as f64 / size.pixels() as f64;
        let ratio = part.width as f64 / part.height as f64;
        assert!((0.075..=1.0).contains(&share) && (0.73..=1.36).contains(&ratio), "{part}");
        area += share;
        log_ratio += ratio.ln();
        places[0] += (top as f64 + part.height as f64 / 2.0) / 300.0;
        places[1] += (left as f64 + part.width as f64 / 2.0) / 400.0;
    }
    // Large areas do not fit with every ratio. The means come from 60,000 draws by the definition, in Python.
    let of = |sum: f64| sum / 4000.0;
    assert!((of(area) - 0.4325).abs() < 0.015, "{}", of(area));
    assert!((of(log_ratio) - 0.0317).abs() < 0.012, "{}", of(log_ratio));
    assert!(places.iter().all(|&sum| (of(sum) - 0.5).abs() < 0.02), "{places:?}");
    // No rectangle fits: it takes the largest one in the centre with an allowed ratio.
    let long = crop.region(Size::new(10, 1000), &mut random);
    assert_eq!(long, Region { top: 0, left: 493, size: Size::new(10, 13) });
    let high = crop.region(Size::new(1000, 9), &mut random);
    assert_eq!(high, Region { top: 494, left: 0, size: Size::new(12, 9) });
}

#[test]
fn color_jitter_stays_in_its_range_and_uses_all_orders() {
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..300 {
        let mut canvas = Canvas::new();
        canvas.set(Size::new(1, 2), &[100, 100, 100, 60, 60, 60]);
        let jitter = ColorJitter { brightness: 0.2, ..ColorJitter::default() };
        jitter.apply(&mut canvas, &mut Random::from_key(key));
        assert!((80..=120).contains(&canvas.pixels()[0]), "{:?}", canvas.pixels());
        seen.insert(canvas.pixels()[0]);
    }
    assert!(seen.len() > 35, "{}", seen.len());
    // Gray pictures have no hue and no saturation.
    let mut canvas = numbered(1, 1);
    canvas.pixels_mut().fill(90);
    let jitter = ColorJitter { saturation: 0.9, hue: 0.5, ..ColorJitter::default() };
    jitter.apply(&mut canvas, &mut Random::from_key(1));
    assert_eq!(canvas.pixels(), [90; 3]);
}

#[test]
fn augmentations_use_every_operation_and_keep_the_size() {
    for transform in [&RandAugment::new(2, 9) as &dyn Transform, &TrivialAugment] {
        let mut results = std::collections::BTreeSet::new();
        for key in 0..300 {
            let mut canvas = read("pictures/RGB.png");
            transform.apply(&mut canvas, &mut Random::from_key(key));
            assert_eq!(canvas.size(), Size::new(43, 61));
            results.insert(canvas.pixels().to_vec());
            let mut again = read("pictures/RGB.png");
            transform.apply(&mut again, &mut Random::from_key(key));
            assert_eq!(again.pixels(), canvas.pixels(), "{transform:?}, key {key}");
        }
        assert!(results.len() > 100, "{transform:?}: {}", results.len());
    }
    // With a magnitude of 0, only operations without a magnitude change the picture.
    let mut changed = 0;
    for key in 0..200 {
        let mut canvas = read("pictures/RGB.png");
        RandAugment::new(1, 0).apply(&mut canvas, &mut Random::from_key(key));
        changed += i32::from(canvas.pixels() != read("pictures/RGB.png").pixels());
    }
    assert!((5..60).contains(&changed), "{changed}");
}
