//! Arrays of every type, order and byte order, as readers and as data sets.

use crate::made;

use crate::made::{npy, npy_header, read, safetensors, write, zip};
use feedline_core::{CheckOptions, Context, DType, Dataset, Layout, check_dataset};
use feedline_datasets::{Bounded, OpenOptions, npy, open, open_with};
use tempfile::tempdir;

/// Numbers 1 to 24 of `size` bytes, by `order`.
fn numbers(size: usize, big_endian: bool) -> Vec<u8> {
    let number = |number: u8| {
        let mut bytes = vec![0; size];
        bytes[if big_endian { size - 1 } else { 0 }] = number;
        bytes
    };
    (1..=24).flat_map(number).collect()
}

#[test]
fn every_numeric_type_is_read_in_both_byte_orders() {
    let dir = tempdir().unwrap();
    let types = [
        ("b1", "bool"),
        ("u1", "u8"),
        ("i1", "i8"),
        ("u2", "u16"),
        ("i2", "i16"),
        ("f2", "f16"),
        ("u4", "u32"),
        ("i4", "i32"),
        ("f4", "f32"),
        ("u8", "u64"),
        ("i8", "i64"),
        ("f8", "f64"),
    ];
    for (code, name) in types {
        let size = code[1..].parse().unwrap();
        for (order, big_endian) in [("<", false), (">", true), ("|", false), ("=", false)] {
            let bytes = npy(&format!("{order}{code}"), false, "(2, 3, 4)", &numbers(size, big_endian));
            let path = write(dir.path(), "array", &bytes);
            for limit in [u64::MAX, 0] {
                let reader = open_with(&path, &OpenOptions::with_memory_limit(limit)).unwrap();
                assert_eq!(reader.spec().to_string(), format!("array {name} [3, 4]"));
                assert_eq!(read(&*reader, 1), [&numbers(size, false)[12 * size..]], "{order}{code}");
            }
        }
    }
}

#[test]
fn complex_numbers_are_swapped_part_by_part() {
    let dir = tempdir().unwrap();
    // 1 + 2i of two big-endian doubles.
    let parts = [1f64, 2.0];
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_be_bytes()).collect();
    let path = write(dir.path(), "array", &npy(">c16", false, "(1,)", &bytes));
    let expected: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    let reader = open(path).unwrap();
    assert_eq!(read(&*reader, 0), [expected]);
    assert_eq!(Bounded::new(reader).unwrap().spec().fields()[0].shape(), [2]);
}

#[test]
fn fortran_order_is_read_in_c_order() {
    let dir = tempdir().unwrap();
    // Element (i, j, k) of shape (2, 3, 4) is 100 i + 10 j + k.
    let mut data = Vec::new();
    for k in 0..4u16 {
        for j in 0..3 {
            for i in 0..2 {
                data.extend((100 * i + 10 * j + k).to_be_bytes());
            }
        }
    }
    let path = write(dir.path(), "array", &npy(">u2", true, "(2, 3, 4)", &data));
    let expected: Vec<u8> =
        (0..3u16).flat_map(|j| (0..4).flat_map(move |k| (100 + 10 * j + k).to_le_bytes())).collect();
    for limit in [u64::MAX, 0] {
        assert_eq!(
            read(&*open_with(&path, &OpenOptions::with_memory_limit(limit)).unwrap(), 1),
            [expected.as_slice()]
        );
    }
}

#[test]
fn header_versions_and_spellings_are_read() {
    let dir = tempdir().unwrap();
    let text = "{\"shape\": (2L,), 'fortran_order': False, \"descr\": '?'}";
    for version in [2, 3] {
        let len = (text.len() as u32).to_le_bytes();
        let bytes = [b"\x93NUMPY", &[version, 0][..], &len, text.as_bytes(), &[1, 0]].concat();
        let reader = npy::open(write(dir.path(), "array", &bytes)).unwrap();
        assert_eq!((reader.len(), read(&reader, 0)), (2, vec![vec![1]]));
    }
}

#[test]
fn arrays_of_one_length_are_samples_and_others_are_one_sample() {
    let dir = tempdir().unwrap();
    let x = npy("|u1", false, "(2, 2)", &[1, 2, 3, 4]);
    let y = npy("<i2", false, "(2,)", &[7, 0, 8, 0]);
    let path = write(dir.path(), "a", &zip(&[("x.npy", &x), ("y.npy", &y)], None));
    let reader = open(path).unwrap();
    assert_eq!((reader.about().format, reader.len()), ("npz", 2));
    assert_eq!(read(&*reader, 1), [vec![3, 4], vec![8, 0]]);

    let header = r#"{"w":{"dtype":"F16","shape":[2,1],"data_offsets":[1,5]},
                     "b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#;
    // An archive of one sample, whose array is in Fortran order.
    let f = npy("|u1", true, "(2, 2)", &[1, 3, 2, 4]);
    let path =
        write(dir.path(), "c", &zip(&[("f.npy", &f), ("y.npy", &npy("|u1", false, "()", &[5]))], None));
    assert_eq!(read(&*open(path).unwrap(), 0), [vec![1, 2, 3, 4], vec![5]]);

    let reader = open(write(dir.path(), "b", &safetensors(header, &[9, 1, 2, 3, 4]))).unwrap();
    assert_eq!((reader.about().format, reader.len()), ("safetensors", 1));
    assert_eq!(reader.spec().to_string(), "b u8 [], w f16 [2, 1]");
    assert_eq!(read(&*reader, 0), [vec![9], vec![1, 2, 3, 4]]);
}

#[test]
fn readers_of_one_size_are_data_sets_with_and_without_columns_in_memory() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "plain", &npy("<i4", false, "(6, 4)", &numbers(4, false)));
    let data = Bounded::new(open(&path).unwrap()).unwrap();
    assert_eq!(data.storage().column(0).unwrap().row(5), Some(&numbers(4, false)[80..]));
    assert!(check_dataset(&data, &CheckOptions::default()).unwrap().is_clean());
    let swapped = write(dir.path(), "swapped", &npy(">i4", false, "(6, 4)", &numbers(4, true)));
    let on_disk = Bounded::new(open_with(&path, &OpenOptions::with_memory_limit(0)).unwrap()).unwrap();
    let swapped = Bounded::new(open(swapped).unwrap()).unwrap();
    for data in [on_disk, swapped] {
        assert!(data.storage().column(0).is_none());
        assert!(check_dataset(&data, &CheckOptions::default()).unwrap().is_clean());
    }
    let empty = open(write(dir.path(), "empty", &npy("<i4", false, "(0, 4)", &[]))).unwrap();
    assert_eq!(empty.len(), 0);
    assert!(Bounded::new(empty).unwrap_err().to_string().contains("no samples"));
    let wide = open(write(dir.path(), "wide", &npy("<u8", false, "(3,)", &[0; 24]))).unwrap();
    assert!(Bounded::new(wide).unwrap_err().to_string().contains("field \"array\" is u64"));
}

#[test]
fn what_is_no_array_of_numbers_is_refused_with_the_byte() {
    let dir = tempdir().unwrap();
    let good = npy("<f4", false, "(2,)", &[0; 8]);
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("cut", good[..good.len() - 1].to_vec(), &["cut short", "8 bytes of data, found 7"]),
        ("longer", [&good[..], &[0]].concat(), &["longer than its header says", "found 9"]),
        ("no-header", good[..9].to_vec(), &["ends within its header", "byte 9"]),
        ("version", [b"\x93NUMPY\x07\x00", &good[8..]].concat(), &["version 7", "byte 6"]),
        ("objects", npy("|O", false, "(2,)", &[0; 8]), &["Python objects"]),
        ("times", npy("<M8[ns]", false, "(1,)", &[0; 8]), &["\"<M8[ns]\"", "plain numbers"]),
        ("negative", npy("<f4", false, "(-2,)", &[0; 8]), &["a value that is not negative"]),
        ("huge", npy("<f4", false, "(1000000000000000000,)", &[0; 8]), &["cut short"]),
        ("overflow", npy("<f8", false, "(9999999999, 9999999999)", &[0; 8]), &["address space"]),
        ("endless", npy("|u1", false, "(1000000000000000000, 0)", &[]), &["samples without elements"]),
        (
            "twice",
            npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (1,)}", &[0; 8]),
            &["has \"shape\" twice"],
        ),
        ("no-tuple", npy("<f4", false, "2", &[0; 8]), &["not a tuple of sizes"]),
        (
            "number",
            npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", &[0; 8]),
            &["\"shape\" is not a tuple"],
        ),
        ("no-shape", npy_header("{'descr': '<f4', 'fortran_order': False}", &[]), &["lacks \"shape\""]),
        (
            "columns",
            npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", &[0; 8]),
            &["structured type"],
        ),
        ("surrogate", npy("<U1", false, "(1,)", &[0, 0xD8, 0, 0]), &[]),
    ];
    for (name, bytes, parts) in cases {
        let path = write(dir.path(), name, bytes);
        let error = match open(&path) {
            Err(error) => error,
            // A fault that only a sample shows is found when the sample is read.
            Ok(reader) => feedline_core::Values::new().read(&*reader, 0).unwrap_err(),
        };
        let line = error.to_string();
        assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{name}: {line}");
        assert_eq!(error.path(), Some(path.as_path()), "{name}");
    }
}

#[test]
fn damaged_archives_and_tensors_are_refused_with_their_name() {
    let dir = tempdir().unwrap();
    let x = npy("|u1", false, "(2,)", &[1, 2]);
    let good = zip(&[("x.npy", &x)], None);
    let mut flipped = good.clone();
    let last = 30 + "x.npy".len() + x.len() - 1;
    flipped[last] ^= 1;
    // Method 12, in the member's header and in the directory.
    let mut bzip2 = good.clone();
    bzip2[8] = 12;
    let directory = good.len() - 22 - 51;
    bzip2[directory + 10] = 12;
    // Two entries of the directory for one member.
    let two = zip(&[("x.npy", &x), ("y.npy", &x)], None);
    let (entries, first) = (two.len() - 22 - 2 * 51, good.len() - 22 - 51);
    let mut overlap = two.clone();
    overlap[entries + 51 + 42..entries + 51 + 46].fill(0);
    assert_eq!(first, 30 + 5 + x.len());
    let longer = [&1000u64.to_le_bytes()[..], b"{\"a\":"].concat();
    let header = |text: &str| safetensors(text, &[0; 4]);
    let longest = [&u64::MAX.to_le_bytes()[..], b"{\"a\":"].concat();
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("cut.npz", good[..good.len() - 30].to_vec(), &["archive is damaged or cut short"]),
        ("checksum.npz", flipped, &["\"x.npy\"", "cannot be inflated"]),
        ("text.npz", zip(&[("x.txt", b"hello")], None), &["\"x.txt\"", "not a .npy file"]),
        ("cut-inside.npz", zip(&[("x.npy", &x[..x.len() - 1])], None), &["\"x.npy\"", "cut short"]),
        ("overlap.npz", overlap, &["lie one over another"]),
        ("claims.npz", zip(&[("x.npy", &x)], Some(x.len() as u32 + 1)), &["refused"]),
        ("twice.npz", zip(&[("a.npy", &x), ("b.npy", &x), ("a.npy", &x)], None), &["two members \"a.npy\""]),
        ("method.npz", bzip2, &["\"x.npy\"", "compressed by Bzip2, which is not read"]),
        (
            "twice.safetensors",
            header(concat!(
                r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"#,
                r#""a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}"#
            )),
            &["two tensors \"a\"", "byte 8"],
        ),
        ("longest.safetensors", longest, &["claims 18446744073709551615 bytes", "byte 0"]),
        ("longer.safetensors", longer, &["claims 1000 bytes, max 5", "byte 0"]),
        ("json.safetensors", header("{\"a\":\n}"), &["header is damaged", "byte 8"]),
        (
            "overlap.safetensors",
            header(concat!(
                r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"#,
                r#""b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#
            )),
            &["header is damaged"],
        ),
        (
            "outside.safetensors",
            header(r#"{"a":{"dtype":"U8","shape":[1000000],"data_offsets":[0,1000000]}}"#),
            &["claims 1000000 bytes of tensors, found 4"],
        ),
        (
            "f8.safetensors",
            header(r#"{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#),
            &["\"a\"", "F8_E4M3"],
        ),
    ];
    for (name, bytes, parts) in cases {
        let path = write(dir.path(), name, bytes);
        let error = open(&path).unwrap_err();
        let line = error.to_string();
        let parts = if *parts == ["refused"] { &[] } else { *parts };
        assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{name}: {line}");
        assert_eq!(error.path(), Some(path.as_path()), "{name}");
    }
}

#[test]
fn rows_of_several_shards_are_copied_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    for (part, first) in [("shards/0.npy", 0), ("shards/1.npy", 6)] {
        made::write(dir.path(), part, &made::npy("|u1", false, "(3, 2)", &Vec::from_iter(first..first + 6)));
    }
    let data = feedline_datasets::Bounded::new(open(dir.path().join("shards")).unwrap()).unwrap();
    assert!(data.storage().column(0).is_none() && data.inner().storage().slice(4, 0).is_some());
    let layout = feedline_core::Layout::new(data.spec(), 6).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 6);
    data.read_many(&[5, 0, 3, 3, 1, 2], &mut rows, &mut feedline_core::Context::new(0, 0)).unwrap();
    drop(rows);
    assert_eq!(slab[..12], [10, 11, 0, 1, 6, 7, 6, 7, 2, 3, 4, 5]);
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 2);
    let (row, _) = data.read_many(&[0, 6], &mut rows, &mut feedline_core::Context::new(0, 0)).unwrap_err();
    assert_eq!(row, 1, "there are six samples");
}

#[test]
fn bool_stays_bool_and_other_bytes_are_refused() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "mask.npy", &npy("|b1", false, "(3, 2)", &[0, 1, 1, 0, 1, 2]));
    let data = Bounded::new(open(path).unwrap()).unwrap();
    assert_eq!(data.spec().fields()[0].dtype(), DType::Bool);
    let layout = Layout::new(data.spec(), 3).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
    data.read_many(&[0, 1, 2], &mut rows, &mut Context::new(0, 0)).map_err(|(_, error)| error).unwrap();
    assert_eq!(rows.row(0).field_mut::<u8>(0).unwrap(), [0, 1]);
    assert_eq!(rows.check_written().unwrap_err().0, 2);
}
