//! Whether a picture can be decoded depends on its bytes alone: neither on the crop nor on the decoder.

use std::fs;
use std::path::Path;

use feedline_core::Random;
use feedline_images::{Decoder, RandomCrop, Scratch, Size, Transforms};

/// Damaged copies of a file: cut, cut with an end marker appended, and with changed bytes.
fn damaged(bytes: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = vec![bytes.to_vec()];
    let first = bytes.len().saturating_sub(12);
    let cuts = (0..24).map(|_| random.below(bytes.len() as u64) as usize).chain(first..bytes.len());
    for cut in cuts.collect::<Vec<_>>() {
        all.push(bytes[..cut].to_vec());
        let ends: [&[u8]; 4] = [b"\xFF\xD9", b"\xFF", b"\xFF\xD3", b"\xFF\x01"];
        all.extend(ends.map(|end| [&bytes[..cut], end].concat()));
    }
    for _ in 0..40 {
        let mut changed = bytes.to_vec();
        for _ in 0..1 + random.below(3) {
            changed[random.below(bytes.len() as u64) as usize] = random.below(256) as u8;
        }
        if random.below(3) == 0 {
            changed.truncate(1 + random.below(bytes.len() as u64) as usize);
        }
        all.push(changed);
    }
    all
}

#[test]
fn the_verdict_on_a_damaged_picture_is_that_of_decoding_it_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures");
    let mut random = Random::from_key(7);
    let (mut scratch, mut decoder) = (Scratch::default(), Decoder::new());
    let (mut good, mut bad, mut wrong) = (0, 0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        for (number, bytes) in damaged(&fs::read(&path).unwrap(), &mut random).iter().enumerate() {
            let whole = decoder.decode(bytes).map(|picture| picture.size);
            let checked = Decoder::new().check(bytes);
            let mut verdicts = vec![("check", checked.is_ok())];
            let side = whole.as_ref().map_or(1, |size| (size.height.min(size.width) / 3).max(1));
            let crop = Transforms::new().then(RandomCrop::new(Size::new(side, side)));
            let mut image = vec![0; 3 * side * side];
            for _ in 0..3 {
                let read = crop.read(bytes, &mut random, &mut scratch, &mut image);
                verdicts.push(("a crop", read.is_ok()));
            }
            // Reduced by the decoder, where it is a JPEG.
            let scaled = Transforms::new().random_resized_crop(2).scaled_decode();
            for _ in 0..2 {
                let read = scaled.read(bytes, &mut random, &mut scratch, &mut [0; 12]);
                verdicts.push(("a reduced crop", read.is_ok()));
            }
            if whole.is_ok() {
                good += 1
            } else {
                bad += 1
            }
            if let Ok(size) = &checked {
                assert_eq!(whole.as_ref().ok(), Some(size), "{}, {number}", path.display());
            }
            let other = verdicts.iter().find(|(_, verdict)| *verdict != whole.is_ok());
            wrong.extend(other.map(|(who, _)| format!("{}, {number}: {who}, {whole:?}", path.display())));
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), good + bad, wrong.join("\n"));
}
