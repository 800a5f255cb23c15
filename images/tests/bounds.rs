//! Pictures that lie about their size, and bombs, are answered in under 100 ms and 64 MiB.
//!
//! The test of bombs looks at the memory of the whole process: what runs beside it takes little.

use std::fs;
use std::path::Path;
use std::time::Duration;

use feedline_images::{Decoder, Limits};
use flate2::{Compression, Crc, write::ZlibEncoder};

/// The most memory that the process has had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The time that this thread has had a core: other work of the machine does not count.
fn cpu_time() -> Duration {
    let line = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(line.split_whitespace().next().unwrap().parse().unwrap())
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures").join(name)).unwrap()
}

fn zeros(bytes: usize) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(9));
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), bytes as u64), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

/// A gray PNG of this size; `chunks` stand before the pixels `data`.
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

/// A GIF with as many frames as asked, of one pixel each.
fn gif(frames: usize) -> Vec<u8> {
    let mut bytes = b"GIF89a\x01\0\x01\0\x80\0\0\x10\x20\x30\xFF\xFF\xFF".to_vec();
    for _ in 0..frames {
        bytes.extend(b"\x21\xF9\x04\0\x01\0\0\0\x2C\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0");
    }
    bytes.push(b';');
    bytes
}

/// `bytes` with these changed.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Where the frame of a JPEG has its height and width.
fn frame(jpeg: &[u8]) -> usize {
    let markers = [[0xFF, 0xC0], [0xFF, 0xC2]];
    jpeg.windows(2).position(|pair| markers.iter().any(|marker| pair == marker)).unwrap() + 5
}

#[test]
fn bombs_are_answered_in_under_100_ms_and_64_mib() {
    let jpeg = golden("420.jpg");
    let at = frame(&jpeg);
    let progressive = golden("420-progressive.jpg");
    let scan = progressive.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap();
    let end = progressive.len() - 2;
    let mut scans = progressive[..scan].to_vec();
    (0..300).for_each(|_| scans.extend(&progressive[scan..end]));
    // Two of three components have no scan, and the first one has many: no decoder calls that damaged.
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
    // What decoding takes at all is taken before.
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
            // What is beside the pixels does not matter.
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
