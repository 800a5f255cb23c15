//! Zarr stores, good and damaged. Those below `golden/zarr` were written by the Python package.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{CheckOptions, Context, Dataset, Prefetched, Values, check_dataset};
use feedline_datasets::{Bounded, Zarr, open};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::made::{gz, read, write};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/zarr").join(name)
}

/// The bytes of `count` numbers that follow each other, those of sample `sample`.
fn numbers<const N: usize>(sample: u64, count: u64, bytes: impl Fn(u64) -> [u8; N]) -> Vec<u8> {
    (sample * count..(sample + 1) * count).flat_map(bytes).collect()
}

/// A sample of the golden groups, without `wide`.
fn expected(sample: u64) -> Vec<Vec<u8>> {
    let half = |number: u64| half::f16::from_f64(number as f64).to_le_bytes();
    let is_written = !(3..6).contains(&sample);
    vec![
        numbers(sample, 60, |number| [number as u8]),
        numbers(sample, 1, |number| (number as i16).to_le_bytes()),
        numbers(sample, 2, |number| [number as u8 % 2]),
        [(sample as f64).to_le_bytes(), [0; 8]].concat(),
        numbers(sample, 3, |number| if is_written { half(number) } else { half::f16::NAN.to_le_bytes() }),
    ]
}

const FIELDS: &str = "image u8 [5, 4, 3], label i16 [], on bool [2], pair complex128 [], sparse f16 [3]";

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn groups_of_both_versions_are_read_with_and_without_consolidated_metadata() {
    let dir = tempdir().unwrap();
    for name in ["two.zarr", "three.zarr"] {
        let whole = open(golden(name)).unwrap();
        let listed = dir.path().join(name);
        copy(&golden(name), &listed);
        if name == "two.zarr" {
            fs::remove_file(listed.join(".zmetadata")).unwrap();
        } else {
            write(&listed, "zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
        }
        let listed = open(&listed).unwrap();
        for reader in [&whole, &listed] {
            assert_eq!((reader.about().format, reader.len()), ("zarr", 7));
            let wide = if name == "three.zarr" { ", wide u64 [2]" } else { "" };
            assert_eq!(reader.spec().to_string(), format!("{FIELDS}{wide}"));
            for sample in [6, 0, 3, 1, 5, 2, 4] {
                let mut found = read(&**reader, sample);
                if name == "three.zarr" {
                    assert_eq!(found.pop().unwrap(), numbers(sample, 2, u64::to_le_bytes));
                }
                assert_eq!(found, expected(sample), "{name}: {sample}");
            }
            assert!(Values::new().read(&**reader, 7).unwrap_err().to_string().contains("no sample 7"));
        }
        assert_eq!(whole.fingerprint(), listed.fingerprint());
    }
}

#[test]
fn an_array_is_one_field() {
    let reader = Zarr::open(golden("one.zarr")).unwrap();
    assert_eq!((reader.spec().to_string().as_str(), reader.len()), ("array f32 [2]", 7));
    let of = |sample| numbers(sample, 2, |number| (number as f32).to_le_bytes());
    (0..7).for_each(|sample| assert_eq!(read(&reader, sample), [of(sample)]));
    let member = open(golden("two.zarr/label")).unwrap();
    assert_eq!((member.spec().to_string().as_str(), read(&*member, 5)), ("array i16 []", vec![vec![5, 0]]));
}

#[test]
fn a_chunk_with_as_many_values_as_a_sample_but_of_another_shape_is_cut() {
    let dir = tempdir().unwrap();
    // Both have 12 values; a chunk has the first two rows, and two columns beyond the array.
    write(dir.path(), ".zarray", two("[2, 3, 4]", "[1, 2, 6]", "\"|u1\"", "", "0").as_bytes());
    for sample in 0..2u8 {
        for part in 0..2u8 {
            let value = |at: u8| 100 * sample + 10 * (2 * part + at / 6) + at % 6;
            write(dir.path(), &format!("{sample}.{part}.0"), &Vec::from_iter((0..12).map(value)));
        }
    }
    let reader = open(dir.path()).unwrap();
    let of = |sample: u8| Vec::from_iter((0..12).map(|at: u8| 100 * sample + 10 * (at / 4) + at % 4));
    assert_eq!((read(&*reader, 1), read(&*reader, 0)), (vec![of(1)], vec![of(0)]));
}

#[test]
fn a_set_of_a_store_is_clean() {
    for name in ["two.zarr", "one.zarr"] {
        let set = Bounded::new(open(golden(name)).unwrap()).unwrap();
        let report = check_dataset(&set, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{name}: {report}");
    }
}

#[test]
fn the_samples_of_a_chunk_are_decoded_together_and_kept() {
    let dir = tempdir().unwrap();
    copy(&golden("two.zarr"), dir.path());
    let reader = Zarr::open(dir.path()).unwrap();
    let groups = reader.about().groups.unwrap();
    // The chunks of `image`, whose samples are the largest: 60 + 2 + 2 + 16 + 6 bytes.
    assert_eq!((groups.largest, groups.bytes), (3, 7 * 86));
    let storage = reader.storage();
    assert_eq!([0, 2, 3, 6, 7].map(|sample| storage.group(sample)), [0..3, 0..3, 3..6, 6..7, 7..7]);
    let decoded = storage.decoded(4).unwrap().unwrap();
    assert_eq!(decoded.samples(), 3..6);
    assert_eq!(decoded.slice(5, 1), Some(&[5, 0][..]));
    assert_eq!(decoded.run(4, 1), Some((&[4, 0, 5, 0][..], 2)));
    assert_eq!(storage.prefetch(&[0, 1, 6], &mut Context::new(0, 0)), Prefetched::Prepared);
    // They are in memory: the files are not needed.
    fs::remove_dir_all(dir.path().join("image")).unwrap();
    assert_eq!(read(&reader, 1), expected(1));
    assert_eq!(read(&reader, 4), expected(4));
    // A chunk without a file has the fill value.
    storage.forget(4);
    assert_eq!(read(&reader, 4)[0], [0; 60]);
}

/// The metadata of an array of version 2.
fn two(shape: &str, chunks: &str, dtype: &str, compressor: &str, fill: &str) -> String {
    let compressor =
        if compressor.is_empty() { "null".into() } else { format!(r#"{{"id": "{compressor}"}}"#) };
    format!(
        r#"{{"zarr_format": 2, "shape": {shape}, "chunks": {chunks}, "dtype": {dtype}, "order": "C",
        "compressor": {compressor}, "filters": null, "fill_value": {fill}}}"#
    )
}

/// The metadata of an array of version 3 of three `u1`, in chunks of two.
fn three(kind: &str, codecs: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "{kind}", "fill_value": 9,
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}},
        "chunk_key_encoding": {{"name": "default"}}, "codecs": [{codecs}]}}"#
    )
}

#[test]
fn metadata_that_is_not_read_is_refused_with_what_is_wrong() {
    let u1 = "\"|u1\"";
    let blosc = r#"{"name": "bytes"}, {"name": "blosc"}"#;
    let sharded = r#"{"name": "sharding_indexed", "configuration": {"chunk_shape": [1]}}"#;
    let twice = r#"{"name": "bytes"}, {"name": "zstd"}, {"name": "gzip"}"#;
    for (index, text, why) in [
        (".zarray", "{".into(), "this is no JSON"),
        (".zarray", "[]".into(), "only regular arrays of Zarr 2 and 3"),
        (".zarray", two("[3]", "[2]", u1, "", "0").replace("\"C\"", "\"F\""), "in order C are read"),
        (
            ".zarray",
            two("[3]", "[2]", u1, "blosc", "0"),
            "codec \"blosc\" is not read: write it with zstd or",
        ),
        (".zarray", two("[3]", "[2]", "\"|O\"", "", "0"), "type \"|O\" is not read: write bools or numbers"),
        (".zarray", two("[3]", "[2]", "\"|S4\"", "", "0"), "type \"|S4\" is not read"),
        (".zarray", two("[3]", "[2]", "[[\"a\", \"<i4\"]]", "", "0"), "type [[\"a\",\"<i4\"]] is not read"),
        (".zarray", two("[3]", "[2]", u1, "", "256"), "fill value 256 is not read as u8"),
        (".zarray", two("[3]", "[2]", "\"|i1\"", "", "-129"), "fill value -129 is not read as i8"),
        (".zarray", two("[3]", "[2]", "\"<f4\"", "", "\"x\""), "fill value \"x\" is not read as f32"),
        (".zarray", two("[3]", "[2]", "\"<c8\"", "", "[0]"), "fill value [0] is not read as complex64"),
        (".zarray", two("[]", "[]", u1, "", "0"), "its shape is [], and that of its chunks []"),
        (".zarray", two("[3]", "[0]", u1, "", "0"), "that of its chunks [0]: write samples"),
        (".zarray", two("[3, 0]", "[3, 1]", u1, "", "0"), "its shape is [3, 0]"),
        (".zarray", two("[3, 2]", "[3]", u1, "", "0"), "that of its chunks [3]"),
        (".zarray", two("[3]", "[-1]", u1, "", "0"), "that of its chunks []"),
        (".zarray", two("[3, 2147483648]", "[1, 1]", u1, "", "0"), "1 to 1073741824 bytes"),
        (".zarray", two("[3]", "[1073741825]", u1, "", "0"), "1 to 1073741824 bytes"),
        (
            ".zarray",
            two("[9223372036854775807]", "[1]", u1, "", "0"),
            "more than 1073741824 bytes or 1048576 chunks",
        ),
        (
            ".zarray",
            two("[3, 8388608]", "[1, 1]", u1, "", "0"),
            "more than 1073741824 bytes or 1048576 chunks",
        ),
        (".zarray", two("[3]", "[2]", u1, "", "0, \"dimension_separator\": \"/../\""), "names of its chunks"),
        ("zarr.json", three("int8", "").replace("default", "other"), "names of its chunks"),
        ("zarr.json", three("int8", blosc), "codec \"blosc\" is not read"),
        ("zarr.json", three("int8", sharded), "codec \"sharding_indexed\" is not read"),
        ("zarr.json", three("int8", twice), "codec \"gzip\" is not read"),
        ("zarr.json", three("string", ""), "type \"string\" is not read"),
        ("zarr.json", three("text", ""), "type \"text\" is not read"),
        ("zarr.json", three("int8", "").replace("regular", "rectilinear"), "only regular arrays"),
    ] {
        let dir = tempdir().unwrap();
        let path = write(dir.path(), index, text.as_bytes());
        let error = open(dir.path()).unwrap_err();
        let line = error.to_string();
        assert!(line.contains(why) && !line.contains('\n'), "{why}: {line}");
        assert!([dir.path(), path.as_path()].contains(&error.path().unwrap()), "{line}");
        // In a group, the array is named.
        write(dir.path(), &format!("group/bad/{index}"), text.as_bytes());
        let (group, about) = match index {
            "zarr.json" => ("group/zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#),
            _ => ("group/.zgroup", r#"{"zarr_format": 2}"#),
        };
        write(dir.path(), group, about.as_bytes());
        let line = open(dir.path().join("group")).unwrap_err().to_string();
        assert!(line.contains(why) && !line.contains('\n'), "{why}: {line}");
        assert!(line.contains("bad") || line.contains("decoded together"), "{line}");
    }
}

#[test]
fn groups_without_equally_long_arrays_are_refused() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write(dir.path(), "none/.zgroup", b"{\"zarr_format\": 2}");
    write(dir.path(), "none/inner/.zgroup", b"{\"zarr_format\": 2}");
    let error = open(path("none")).unwrap_err();
    assert!(error.message().contains("there is no array in the group"), "{error}");
    write(dir.path(), "two/.zgroup", b"{\"zarr_format\": 2}");
    write(dir.path(), "two/a/.zarray", two("[3]", "[2]", "\"|u1\"", "", "0").as_bytes());
    write(dir.path(), "two/b/.zarray", two("[4]", "[2]", "\"|u1\"", "", "0").as_bytes());
    let error = open(path("two")).unwrap_err();
    assert!(error.message().contains("array \"b\": it has more or fewer samples"), "{error}");
    // A name of the consolidated metadata does not lead out of the store.
    let outside = format!(
        "{{\"metadata\": {{\"../a/.zarray\": {0}, \"../.zarray\": {0}, \"/.zarray\": {0}}}}}",
        two("[3]", "[2]", "\"|u1\"", "", "0")
    );
    write(dir.path(), "two/.zmetadata", outside.as_bytes());
    let error = open(path("two")).unwrap_err();
    assert!(error.message().contains("there is no array in the group"), "{error}");
    assert!(Zarr::open(path("nothing")).unwrap_err().to_string().contains("no such file"));
}

/// A store of version 2 of three `u1` in chunks of two, and its second chunk.
fn stored(dir: &Path, compressor: &str, chunk: &[u8]) -> (Arc<dyn Dataset>, PathBuf) {
    write(dir, ".zarray", two("[3]", "[2]", "\"|u1\"", compressor, "null").as_bytes());
    write(dir, "0", &[1, 2]);
    let path = write(dir, "1", chunk);
    (open(dir).unwrap(), path)
}

#[test]
fn damaged_chunks_are_errors_of_their_samples() {
    let dir = tempdir().unwrap();
    let zipped = gz(&[3, 4]);
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
    for (compressor, chunk, why) in [
        ("", vec![3, 4], None),
        ("", vec![3], Some("it has not the 2 bytes of its array")),
        ("", vec![3, 4, 5], Some("it has not the 2 bytes of its array")),
        ("gzip", zipped.clone(), None),
        ("gzip", zipped[..zipped.len() - 1].to_vec(), Some("the chunk is damaged")),
        ("gzip", gz(&[3]), Some("the chunk is damaged")),
        ("gzip", gz(&[3, 4, 5]), Some("it has not the 2 bytes of its array")),
        ("gzip", zstd(&[3, 4]), Some("the chunk is damaged")),
        ("zlib", zipped, Some("the chunk is damaged")),
        ("zstd", zstd(&[3, 4]), None),
        ("zstd", zstd(&[3]), Some("it has not the 2 bytes of its array")),
        ("zstd", zstd(&[3; 300]), Some("the chunk is damaged")),
        ("lz4", vec![2, 0, 0, 0, 0x20, 3, 4], None),
        ("lz4", vec![2, 0, 0, 0, 0xF0, 3, 4], Some("the chunk is damaged")),
        ("lz4", vec![2], Some("the chunk is damaged")),
    ] {
        let (reader, path) = stored(dir.path(), compressor, &chunk);
        match (Values::new().read(&*reader, 2), why) {
            (Ok(()), None) => assert_eq!(read(&*reader, 2), [[3]]),
            (Err(error), Some(why)) => {
                assert!(error.to_string().contains(why), "{compressor}: {error}");
                assert_eq!((error.path(), error.sample()), (Some(path.as_path()), Some(2)), "{error}");
            }
            (found, why) => panic!("{compressor}: {found:?} instead of {why:?}"),
        }
    }
    // Without a fill value, nothing is known of a chunk that is missing.
    let (reader, path) = stored(dir.path(), "", &[3, 4]);
    fs::remove_file(&path).unwrap();
    let error = Values::new().read(&*reader, 2).unwrap_err();
    assert!(error.message().contains("the chunk is missing, and its array has no fill value"), "{error}");
    assert_eq!(error.path(), Some(path.as_path()));
    assert_eq!(read(&*reader, 1), [[2]]);
    // What lies in place of a chunk is not a missing chunk.
    fs::create_dir(&path).unwrap();
    assert!(Values::new().read(&*reader, 2).unwrap_err().to_string().contains("this is a folder"));
}

#[test]
fn a_checksum_that_differs_is_an_error() {
    let dir = tempdir().unwrap();
    let sum = |bytes: &[u8]| [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat();
    let codecs = r#"{"name": "bytes"}, {"name": "crc32c"}, {"name": "gzip"}, {"name": "crc32c"}"#;
    write(dir.path(), "zarr.json", three("uint8", codecs).as_bytes());
    let good = sum(&gz(&sum(&[7, 8])));
    let chunk = |bytes: &[u8]| write(dir.path(), "c/0", bytes);
    let check = |bytes: &[u8], why: &str| {
        let path = chunk(bytes);
        let error = Values::new().read(&*open(dir.path()).unwrap(), 0).unwrap_err();
        assert!(error.to_string().contains(why) && error.path() == Some(&path), "{error}");
    };
    chunk(&good);
    let reader = open(dir.path()).unwrap();
    assert_eq!([0, 1, 2].map(|sample| read(&*reader, sample)), [[[7]], [[8]], [[9]]]);
    let mut outer = good.clone();
    outer[12] ^= 1;
    check(&outer, "its checksum differs");
    check(&sum(&gz(&[&[7, 9][..], &sum(&[7, 8])[2..]].concat())), "its checksum differs");
    check(&good[..3], "its checksum differs");
}

#[test]
fn absurd_claims_are_refused_soon_and_with_little_memory() {
    if !feedline_testkit::own_process("zarr::absurd_claims_are_refused_soon_and_with_little_memory", |_| ()) {
        return;
    }
    let dir = tempdir().unwrap();
    let zipped = two("[4, 1048576]", "[1, 1073741824]", "\"|u1\"", "zstd", "null");
    let claims = [
        ("long", two("[4000000]", "[1]", "\"|u1\"", "", "null"), vec![1, 2, 3]),
        ("wide", two("[2, 1073741824]", "[1, 1073741824]", "\"|u1\"", "zstd", "null"), vec![0; 100]),
        ("raw", two("[2, 1073741824]", "[1, 1073741824]", "\"|u1\"", "", "null"), vec![0; 100]),
        ("padded", zipped, zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap()),
    ];
    let mut paths = Vec::new();
    for (name, text, chunk) in claims {
        write(dir.path(), &format!("{name}/.zarray"), text.as_bytes());
        write(dir.path(), &format!("{name}/0{}", if name == "long" { "" } else { ".0" }), &chunk);
        paths.push(dir.path().join(name));
    }
    // A sparse file takes no space.
    fs::File::create(dir.path().join("raw/0.0")).unwrap().set_len(1 << 40).unwrap();
    crate::bounded::answered(&paths);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_store_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        file in 0usize..3,
    ) {
        let dir = tempdir().unwrap();
        let codecs = r#"{"name": "bytes"}, {"name": "zstd"}"#;
        let files = [("zarr.json", three("int16", codecs).into_bytes()),
            ("c/0", zstd::bulk::compress(&[1, 2, 3, 4], 3).unwrap()),
            ("c/1", zstd::bulk::compress(&[5, 6, 7, 8], 3).unwrap())];
        for (at, (name, mut bytes)) in files.into_iter().enumerate() {
            for (place, byte) in changes.iter().filter(|_| at == file) {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            write(dir.path(), name, &bytes);
        }
        let refused = |error: feedline_core::Error| {
            assert!(error.path().is_some_and(|path| path.starts_with(dir.path())), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        };
        match open(dir.path()) {
            Err(error) => refused(error),
            Ok(reader) => for sample in 0..reader.len().min(10) {
                let _ = Values::new().read(&*reader, sample).map_err(refused);
            },
        }
    }
}
