//! With `scaled_decode`, pictures are decoded reduced only if the first transform resizes.

use std::fs;
use std::path::Path;

use feedline_core::Random;
use feedline_images::{
    Canvas, Decoder, Filter, RandomResizedCrop, Reduction, Region, Resize, Scratch, Size, Transform,
    Transforms,
};

fn picture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures").join(name)).unwrap()
}

fn read(list: &Transforms, encoded: &[u8], key: u64) -> Vec<u8> {
    let mut image = vec![0; list.field("image").unwrap().fields()[0].row_bytes()];
    list.read(encoded, &mut Random::from_key(key), &mut Scratch::default(), &mut image).unwrap();
    image
}

/// The reduced picture, cropped to the pixels that cover `region`, and resized.
fn wanted(encoded: &[u8], reduction: Reduction, region: Region, to: Size) -> Vec<u8> {
    let mut decoder = Decoder::new();
    let reduced = decoder.decode_reduced(encoded, reduction).unwrap();
    let mut canvas = Canvas::new();
    canvas.set(reduced.size, reduced.pixels);
    let divisor = reduction.divisor();
    let Region { top, left, size } = region;
    let (bottom, right) = ((top + size.height).div_ceil(divisor), (left + size.width).div_ceil(divisor));
    let (top, left) = (top / divisor, left / divisor);
    canvas.crop(Region { top, left, size: Size::new(bottom - top, right - left) });
    canvas.resize(to, Filter::Bilinear);
    canvas.pixels().to_vec()
}

#[test]
fn a_crop_is_decoded_in_the_reduction_that_leaves_enough_pixels() {
    let mut seen = Vec::new();
    for name in ["420.jpg", "422-progressive.jpg", "440.jpg", "cmyk.jpg", "orientation-6.jpg", "RGB.png"] {
        let encoded = picture(name);
        let size = Decoder::new().size(&encoded).unwrap();
        for to in [3, 6, 12].map(|side| Size::new(side, side)) {
            let crop = RandomResizedCrop::new(to).scale(0.2, 1.0);
            let list = Transforms::new().then(crop).scaled_decode();
            for key in 0..12 {
                let region = crop.region(size, &mut Random::from_key(key));
                let fits = |reduction: &Reduction| {
                    let divisor = reduction.divisor();
                    region.size.height >= divisor * to.height && region.size.width >= divisor * to.width
                };
                let all = [Reduction::Eighth, Reduction::Quarter, Reduction::Half, Reduction::None];
                let is_jpeg = !name.ends_with("png");
                let reduction = all.into_iter().filter(|_| is_jpeg).find(fits).unwrap_or_default();
                seen.push(reduction);
                let found = read(&list, &encoded, key);
                assert!(
                    found == wanted(&encoded, reduction, region, to),
                    "{name} to {to}, {key}, {reduction:?}"
                );
            }
        }
    }
    for reduction in [Reduction::None, Reduction::Half, Reduction::Quarter, Reduction::Eighth] {
        assert!(seen.contains(&reduction), "{reduction:?}");
    }
}

#[test]
fn what_does_not_scale_or_was_not_asked_for_is_decoded_whole() {
    let encoded = picture("420.jpg");
    for list in [
        Transforms::new().center_crop(5),
        Transforms::new().flip(0.5).resize(5),
        Transforms::new().then(Resize::shorter_side(5, Filter::Bilinear)).center_crop(5),
    ] {
        assert_eq!(read(&list.clone().scaled_decode(), &encoded, 3), read(&list, &encoded, 3));
    }
    let list = Transforms::new().resize(5);
    assert_ne!(read(&list.clone().scaled_decode(), &encoded, 3), read(&list, &encoded, 3));
}
