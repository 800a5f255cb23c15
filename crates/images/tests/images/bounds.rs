//! Limits: bombs, and pictures with false sizes, are refused within 100 ms and 64 MiB.

use std::fs;
use std::path::Path;
use std::time::Duration;

use feedline_core::{ErrorKind, Random};
use feedline_images::{Decoder, Filter, Limits, Pad, Resize, Scratch, Size, Transforms};
use feedline_testkit::{cpu_time, own_process};
use flate2::{Compression, Crc, write::ZlibEncoder};

/// Peak memory of the process, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures").join(name)).unwrap()
}

fn zeros(bytes: usize) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(9));
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), bytes as u64), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

/// A gray PNG of this size, with `chunks` before the compressed pixels `data`.
fn png(width: u32, height: u32, chunks: &[(&[u8; 4], Vec<u8>)], data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1A\n".to_vec();
    let mut chunk = |name: &[u8; 4], content: &[u8]| {
        bytes.extend((content.len() as u32).to_be_bytes());
        bytes.extend(name);
        bytes.extend(content);
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(content);
        bytes.extend(crc.sum().to_be_bytes());
    };
    chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat());
    chunks.iter().for_each(|(name, content)| chunk(name, content));
    chunk(b"IDAT", data);
    chunk(b"IEND", &[]);
    bytes
}

/// A GIF with `frames` frames of one pixel.
fn gif(frames: usize) -> Vec<u8> {
    let mut bytes = b"GIF89a\x01\0\x01\0\x80\0\0\x10\x20\x30\xFF\xFF\xFF".to_vec();
    for _ in 0..frames {
        bytes.extend(b"\x21\xF9\x04\0\x01\0\0\0\x2C\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0");
    }
    bytes.push(b';');
    bytes
}

/// `bytes` with `new` at position `at`.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Position of the height in the frame header of a JPEG; the width follows it.
fn frame(jpeg: &[u8]) -> usize {
    let markers = [[0xFF, 0xC0], [0xFF, 0xC2]];
    jpeg.windows(2).position(|pair| markers.iter().any(|marker| pair == marker)).unwrap() + 5
}

#[test]
fn bombs_are_answered_in_under_100_ms_and_64_mib() {
    if !own_process("bounds::bombs_are_answered_in_under_100_ms_and_64_mib", |_| ()) {
        return;
    }
    let jpeg = golden("420.jpg");
    let at = frame(&jpeg);
    let progressive = golden("420-progressive.jpg");
    let scan = progressive.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap();
    let end = progressive.len() - 2;
    let mut scans = progressive[..scan].to_vec();
    (0..300).for_each(|_| scans.extend(&progressive[scan..end]));
    // Two of three components have no scan, and the first has many: decoders do not treat that as damage.
    let gray = golden("gray.jpg");
    let (gray_frame, scan) = (frame(&gray), gray.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap());
    let mut repeated = gray[..scan].to_vec();
    repeated.splice(gray_frame + 4..gray_frame + 8, [3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    repeated[gray_frame - 2] = 17;
    (0..300).for_each(|_| repeated.extend(&gray[scan..gray.len() - 2]));
    let mut profile = golden("RGB.bmp");
    profile.splice(18..54, with(golden("RGB.bmp"), 0, &[])[18..54].iter().copied().chain([0; 84]));
    let profile = with(with(with(profile, 10, &[138]), 14, &[124]), 14 + 116, &[0xFF; 4]);
    let size = [&11_000_u32.to_le_bytes()[..], &11_000_u32.to_le_bytes()].concat();
    let run_length = with(with(golden("P.bmp"), 18, &size), 30, &[1]);
    let refused = [
        ("png, 60,000 x 60,000", png(60_000, 60_000, &[], &zeros(40 << 20)), "60000 x 60000"),
        ("png, 2^31", png(1 << 31, 1 << 31, &[], &zeros(100)), "2147483648"),
        ("png, few bytes", png(11_000, 11_000, &[], &zeros(100)), "too few"),
        (
            "png, a profile",
            png(2, 2, &[(b"iCCP", [b"x\0\0", &zeros(128 << 20)[..]].concat())], &zeros(6)),
            "",
        ),
        ("png, a text", png(2, 2, &[(b"zTXt", [b"x\0\0", &zeros(128 << 20)[..]].concat())], &zeros(6)), ""),
        ("jpeg, 65,500 x 65,500", with(jpeg.clone(), at, &[0xFF, 0xDC, 0xFF, 0xDC]), "65500 x 65500"),
        ("jpeg, few bytes", with(jpeg.clone(), at, &[40, 0, 40, 0]), "too few"),
        ("jpeg, many scans", scans, "scans"),
        ("jpeg, the same scan again and again", [&repeated[..], &[0xFF, 0xD9]].concat(), "200 scans"),
        ("bmp, 60,000 x 60,000", with(golden("RGB.bmp"), 18, &[0x60, 0xEA, 0, 0, 0x60, 0xEA, 0, 0]), "60000"),
        ("bmp, run-length encoded, few bytes", run_length, "too few"),
        ("gif, 65,535 x 65,535", with(gif(1), 6, &[0xFF; 4]), "65535 x 65535"),
        ("gif, a large frame", with(gif(1), 32, &[0xFF; 4]), "GIF"),
    ];
    let many = gif(100_000);
    let mut decoder = Decoder::new();
    // Grows the buffers that any picture needs.
    decoder.decode(&jpeg).unwrap();
    let before = peak();
    let mut answer = |name: &str, bytes: &[u8]| {
        let start = cpu_time();
        let answer =
            decoder.decode(bytes).map(|picture| picture.pixels.to_vec()).map_err(|error| error.to_string());
        let (took, grown) = (cpu_time() - start, peak() - before);
        assert!(took < Duration::from_millis(100), "{name}: {took:?}");
        assert!(grown < 64 << 20, "{name}: {} MiB", grown >> 20);
        answer
    };
    for (name, bytes, part) in &refused {
        let answer = answer(name, bytes);
        if part.is_empty() {
            // Other chunks are ignored.
            assert_eq!(answer, Ok(vec![0; 12]), "{name}");
        } else {
            let line = answer.expect_err(name);
            assert!(line.contains(part) && !line.contains('\n'), "{name}: {line}");
        }
    }
    assert!(answer("bmp, a profile of 4 GiB", &profile).is_ok());
    assert_eq!(answer("gif of 100,000 frames", &many), Ok(vec![0x10, 0x20, 0x30]));
}

#[test]
fn the_limit_counts_pixels_and_is_checked_for_every_format() {
    for name in ["420.jpg", "RGB.png", "lossy.webp", "RGB.bmp", "plain.gif"] {
        let encoded = golden(name);
        let limits = |pixels| Limits { pixels };
        assert!(Decoder::with_limits(limits(43 * 61)).decode(&encoded).is_ok(), "{name}");
        let error = Decoder::with_limits(limits(43 * 61 - 1)).decode(&encoded).unwrap_err().to_string();
        assert!(error.contains("61 x 43, more than the limit of 2622 pixels"), "{error}");
    }
}

/// The kind and text of the error of `transforms` for the picture.
fn refused(transforms: &Transforms, encoded: &[u8]) -> (ErrorKind, String) {
    let mut image = vec![0; transforms.field("image").unwrap().fields()[0].row_bytes()];
    let mut scratch = Scratch::default();
    let answer = transforms.read(encoded, &mut Random::from_key(1), &mut scratch, &mut image);
    let error = answer.expect_err("a picture beyond the limits is refused");
    (error.kind(), error.to_string())
}

#[test]
fn a_picture_that_grows_between_two_transforms_is_refused() {
    if !own_process("bounds::a_picture_that_grows_between_two_transforms_is_refused", |_| ()) {
        return;
    }
    let wide = png(65_500, 1, &[], &zeros(65_501));
    assert!(wide.len() < 300, "{} bytes", wide.len());
    let before = peak();
    let list = Transforms::new().resize_shorter_side(256).center_crop(224);
    let (kind, why) = refused(&list, &wide);
    assert_eq!(kind, ErrorKind::Sample, "{why}");
    assert!(why.contains("16768000 x 256, more than the limit of 134217728 pixels"), "{why}");
    // The first pass gives 65,500 rows of 3,000 pixels, though the result has 3,000 pixels.
    let high = png(1, 65_500, &[], &zeros(2 * 65_500));
    let list = Transforms::new().then(Resize::exact(Size::new(1, 3000), Filter::Bicubic));
    assert!(refused(&list, &high).1.contains("3000 x 65500, more than"));
    let list = Transforms::new().pad(1200).center_crop(224);
    assert!(refused(&list, &wide).1.contains("67900 x 2401, more than"));
    let list = Transforms::new().then(Pad::new([usize::MAX; 4], [0; 3])).center_crop(224);
    assert!(refused(&list, &wide).1.contains("more than"));
    let list = Transforms::new().resize_shorter_side(usize::MAX).center_crop(224);
    assert!(refused(&list, &wide).1.contains("more than"));
    // The tables of a resize grow with the sides, not with the pixels.
    let longer = png(3_000_000, 1, &[], &zeros(3_000_001));
    assert!(refused(&Transforms::new().resize(224), &longer).1.contains("a side of more than"));
    let grown = peak() - before;
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);
}

#[test]
fn the_limit_of_pixels_holds_after_each_transform_but_for_sizes_that_it_states() {
    let encoded = golden("RGB.png");
    let limited = |list: Transforms| list.limits(Limits { pixels: 43 * 61 });
    let list = limited(Transforms::new().resize_shorter_side(44).center_crop(20));
    assert!(refused(&list, &encoded).1.contains("62 x 44, more than the limit of 2623 pixels"));
    let list = limited(Transforms::new().pad(1).random_crop(20));
    assert!(refused(&list, &encoded).1.contains("63 x 45, more than the limit of 2623 pixels"));
    let lists = [
        Transforms::new().resize_shorter_side(43).pad(0).center_crop(60),
        Transforms::new().resize(100).flip(0.5),
        Transforms::new().center_crop(90).random_crop(100),
        Transforms::new().random_resized_crop(200),
    ];
    for list in lists.map(limited) {
        let mut image = vec![0; list.field("image").unwrap().fields()[0].row_bytes()];
        list.read(&encoded, &mut Random::from_key(1), &mut Scratch::default(), &mut image).unwrap();
    }
}

#[test]
fn a_device_refuses_places_that_its_records_cannot_hold_for_the_sample_alone() {
    let draw = |list: Transforms, size: Size| {
        let part = list.device_part().unwrap();
        part.draw(size, &mut Random::from_key(1), &mut [0; 144])
            .map_err(|error| (error.kind(), error.to_string()))
    };
    let crop = || Transforms::new().on_device().center_crop(224);
    let resize = || Transforms::new().on_device().resize_shorter_side(256).center_crop(224);
    assert_eq!(draw(crop(), Size::new(1, 1 << 24)), Ok(()));
    assert_eq!(draw(resize(), Size::new(300, 400)), Ok(()));
    for (list, size, part) in [
        (crop(), Size::new(1, (1 << 24) + 1), "16777217 x 1"),
        (crop(), Size::new(1 << 31, 1), "1 x 2147483648"),
        (resize(), Size::new(1, 65_500), "16384"),
        (Transforms::new().on_device().pad(1 << 22).center_crop(8), Size::new(3, 1 << 24), "16777216"),
    ] {
        let (kind, why) = draw(list, size).expect_err(part);
        assert_eq!(kind, ErrorKind::Sample, "{why}");
        assert!(why.contains(part), "{why}");
    }
    // Lists that refuse every picture.
    for list in [resize().pad(1 << 40).center_crop(8), Transforms::new().on_device().resize(20_000)] {
        assert_eq!(list.device_part().unwrap_err().kind(), ErrorKind::Config);
    }
}
