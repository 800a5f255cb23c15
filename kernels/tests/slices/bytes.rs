//! Operators on bytes: casts and self-describing rows.

use feedline_kernels::host::{self, pattern};

#[test]
fn cast_converts_every_byte() {
    for n in [0, 1, 255, 256, 200_003] {
        let src: Vec<u8> = (0..n).map(|i| (i % 256) as u8).collect();
        let mut dst = vec![f32::NAN; n];
        host::cast(&src, 1.0 / 255.0, &mut dst);
        for (i, value) in dst.iter().enumerate() {
            assert_eq!(*value, (1.0 / 255.0) * (i % 256) as f32, "element {i}");
        }
    }
    let mut filled = [0.0; 3];
    host::fill(&mut filled, 2.5);
    assert_eq!(filled, [2.5; 3]);
}

#[test]
fn cast_with_transpose_writes_both_layouts() {
    for (rows, columns) in [(0, 3), (1, 1), (1, 5), (5, 1), (3, 784), (129, 65)] {
        let src: Vec<u8> = (0..rows * columns).map(|i| (i % 251) as u8).collect();
        let (mut dst, mut transposed) = (vec![f32::NAN; src.len()], vec![f32::NAN; src.len()]);
        host::cast_with_transpose(&src, 0.5, columns, &mut dst, &mut transposed);
        for (i, byte) in src.iter().enumerate() {
            let at = i % columns * rows + i / columns;
            assert_eq!((dst[i], transposed[at]), (0.5 * f32::from(*byte), dst[i]), "element {i}");
        }
    }
}

#[test]
fn the_pattern_matches_its_documentation() {
    // Computed independently from the documented formula: key 42, id 7.
    let golden: [u8; 12] = [15, 110, 88, 249, 75, 209, 227, 4, 92, 121, 175, 108];
    let got: Vec<u8> = (0..12).map(|k| pattern::byte(42, 7, k)).collect();
    assert_eq!(got, golden);
}

#[test]
fn check_counts_every_wrong_byte() {
    for row_bytes in [1, 8, 13, 784] {
        let rows = 9;
        let key = pattern::batch_key(1, 2, 3);
        let mut data = vec![0; rows * row_bytes];
        let id = |r| 100 - r;
        pattern::fill(&mut data, row_bytes, key, id);
        for (i, byte) in data.iter().enumerate() {
            let (r, k) = ((i / row_bytes) as u64, (i % row_bytes) as u64);
            assert_eq!(*byte, pattern::byte(key, id(r), k));
        }
        let clean = pattern::check(&data, row_bytes, key, id);
        assert_eq!((clean.wrong, clean.first, clean.seen), (0, None, data.len() as u64));
        for at in 0..data.len() {
            data[at] ^= 0x10;
            let found = pattern::check(&data, row_bytes, key, id);
            assert_eq!((found.wrong, found.first), (1, Some(at as u64)));
            data[at] ^= 0x10;
        }
    }
}

#[test]
fn another_epoch_batch_or_row_has_other_bytes() {
    let mut row = [0; 4096];
    pattern::fill(&mut row, 4096, pattern::batch_key(1, 2, 3), |_| 5);
    for (key, id) in [
        (pattern::batch_key(0, 2, 3), 5),
        (pattern::batch_key(1, 1, 3), 5),
        (pattern::batch_key(1, 2, 4), 5),
        (pattern::batch_key(1, 2, 3), 4),
    ] {
        let wrong = pattern::check(&row, 4096, key, |_| id).wrong;
        // One byte in 256 matches by chance: about 16 of 4096.
        assert!(wrong > 4096 - 50, "{wrong} wrong bytes");
    }
}
