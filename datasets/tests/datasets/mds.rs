//! MDS shards, good and damaged.

use crate::made;
use feedline_core::Values;

use std::fs;

use crate::made::{read, write};
use feedline_datasets::{mds, open};
use proptest::prelude::*;
use tempfile::tempdir;

/// A shard of samples, under this description of its columns.
fn shard(columns: &str, samples: &[&[u8]]) -> Vec<u8> {
    let mut at = 4 + 4 * (samples.len() + 1) + columns.len();
    let mut bytes = (samples.len() as u32).to_le_bytes().to_vec();
    for len in samples.iter().map(|sample| sample.len()).chain([0]) {
        bytes.extend((at as u32).to_le_bytes());
        at += len;
    }
    [bytes, columns.into(), samples.concat()].concat()
}

fn columns(names: &str, encodings: &str, sizes: &str) -> String {
    format!(r#"{{"column_names":{names},"column_encodings":{encodings},"column_sizes":{sizes}}}"#)
}

fn good() -> Vec<u8> {
    let columns = columns(r#"["a","n","x"]"#, r#"["str","int","ndarray:uint16:2,1"]"#, "[null,8,4]");
    let sample = |text: &str, number: i64| {
        [&(text.len() as u32).to_le_bytes()[..], text.as_bytes(), &number.to_le_bytes(), &[1, 0, 2, 0]]
            .concat()
    };
    shard(&columns, &[&sample("one", -1), &sample("", 2)])
}

fn index(shards: &[(&str, u64)]) -> String {
    let shards = shards.iter().map(|(name, samples)| {
        format!(r#"{{"raw_data":{{"basename":"{name}"}},"samples":{samples},"zip_data":null}}"#)
    });
    format!(r#"{{"version":2,"shards":[{}]}}"#, shards.collect::<Vec<_>>().join(","))
}

#[test]
fn a_shard_and_a_folder_of_shards_are_read() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "set/0.mds", &good());
    write(dir.path(), "set/1.mds", &good());
    write(dir.path(), "set/index.json", index(&[("0.mds", 2), ("1.mds", 2)]).as_bytes());
    let one = open(path).unwrap();
    let folder = open(dir.path().join("set")).unwrap();
    let by_index = open(dir.path().join("set/index.json")).unwrap();
    assert_eq!([one.len(), folder.len(), by_index.len()], [2, 4, 4]);
    assert_eq!((one.about().format, folder.about().format), ("mds", "mds"));
    assert_eq!(folder.spec().to_string(), "a text [?], n i64 [], x u16 [2, 1]");
    assert_eq!(read(&*folder, 2), [b"one".to_vec(), (-1i64).to_le_bytes().into(), vec![1, 0, 2, 0]]);
    assert_eq!(read(&*one, 1), [b"".to_vec(), 2i64.to_le_bytes().into(), vec![1, 0, 2, 0]]);
}

#[test]
fn an_index_that_does_not_fit_its_shards_is_refused() {
    let names = columns(r#"["a","n","x"]"#, r#"["str","int","ndarray:uint16:2,1"]"#, "[null,8,4]");
    let others = columns(r#"["a","m","x"]"#, r#"["str","int","ndarray:uint16:2,1"]"#, "[null,8,4]");
    let listed = |name: &str, bytes: usize, columns: &str| {
        let columns = columns.trim_matches(['{', '}']);
        format!(
            r#"{{{columns},"raw_data":{{"basename":"{name}","bytes":{bytes}}},"samples":2,"zip_data":null}}"#
        )
    };
    let bytes = good().len();
    let [one, two] = ["0.mds", "1.mds"].map(|name| listed(name, bytes, &names));
    for (shards, why) in [
        (vec![one.clone(), two.clone()], None),
        (vec![one.clone()], Some("1 of the folder's shards are not in the index, such as \"1.mds\"")),
        (vec![one.clone(), two.clone(), one.clone()], Some("names the shard \"0.mds\" twice")),
        (vec![one.clone(), listed("1.mds", bytes + 1, &names)], Some("bytes, the shard has")),
        (
            vec![one, listed("1.mds", bytes, &others)],
            Some("the index claims the columns a text [?], m i64 []"),
        ),
    ] {
        let dir = tempdir().unwrap();
        write(dir.path(), "0.mds", &good());
        write(dir.path(), "1.mds", &good());
        write(dir.path(), "1.mds.zstd.tmp", b"");
        let index = format!(r#"{{"version":2,"shards":[{}]}}"#, shards.join(","));
        write(dir.path(), "index.json", index.as_bytes());
        match (open(dir.path()), why) {
            (Ok(reader), None) => assert_eq!(reader.len(), 4),
            (Err(error), Some(why)) => {
                assert!(error.to_string().contains(why), "{error}");
                assert!(error.path().is_some(), "{error}");
            }
            (opened, why) => panic!("{opened:?} instead of {why:?}"),
        }
    }
}

/// An index of one shard, compressed by `codec`.
fn zipped_index(codec: &str, bytes: usize, samples: u64) -> String {
    let columns = columns(r#"["a","n","x"]"#, r#"["str","int","ndarray:uint16:2,1"]"#, "[null,8,4]");
    format!(
        r#"{{"version":2,"shards":[{{{},"raw_data":{{"basename":"0.mds","bytes":{bytes}}},"samples":{samples},
        "compression":"{codec}","zip_data":{{"basename":"0.mds.zip"}}}}]}}"#,
        columns.trim_matches(['{', '}'])
    )
}

#[test]
fn compressed_shards_are_inflated_when_they_are_read() {
    let raw = good();
    let zstd = zstd::bulk::compress(&raw, 3).unwrap();
    let snappy = snap::raw::Encoder::new().compress_vec(&raw).unwrap();
    for (codec, bytes) in [("zstd:7", zstd.clone()), ("gz", made::gz(&raw)), ("snappy", snappy)] {
        let dir = tempdir().unwrap();
        let zipped = write(dir.path(), "0.mds.zip", &bytes);
        write(dir.path(), "index.json", zipped_index(codec, raw.len(), 2).as_bytes());
        let reader = open(dir.path()).unwrap();
        assert_eq!(
            (reader.about().format, reader.len(), reader.about().groups.map(|groups| groups.largest)),
            ("mds", 2, Some(2))
        );
        assert_eq!(read(&*reader, 0), [b"one".to_vec(), (-1i64).to_le_bytes().into(), vec![1, 0, 2, 0]]);
        // The shard is cut, or differs in size from the index.
        for (cut, claimed) in
            [(bytes.len() - 3, raw.len()), (bytes.len(), raw.len() - 1), (bytes.len(), raw.len() + 1)]
        {
            fs::write(&zipped, &bytes[..cut]).unwrap();
            write(dir.path(), "index.json", zipped_index(codec, claimed, 2).as_bytes());
            let error = Values::new().read(&*open(dir.path()).unwrap(), 1).unwrap_err();
            assert!(error.to_string().contains("cannot be inflated to the size"), "{codec}, {cut}: {error}");
            assert_eq!(error.path(), Some(zipped.as_path()));
        }
        // The plain shard is read if both are there.
        write(dir.path(), "0.mds", &raw);
        write(dir.path(), "index.json", zipped_index(codec, raw.len(), 2).as_bytes());
        assert_eq!(read(&*open(dir.path()).unwrap(), 1)[1], 2i64.to_le_bytes());
    }
    for (codec, bytes, samples, why) in [
        ("br:11", raw.len(), 2, "compressed by \"br:11\", which is not read"),
        ("zstd", 1 << 40, 2, "claims 1099511627776 bytes"),
        ("zstd", 0, 2, "claims 0 bytes"),
        ("zstd", raw.len(), 3, "other samples or columns than the index says"),
    ] {
        let dir = tempdir().unwrap();
        write(dir.path(), "0.mds.zip", &zstd);
        write(dir.path(), "index.json", zipped_index(codec, bytes, samples).as_bytes());
        let error = open(dir.path()).and_then(|reader| Values::new().read(&*reader, 0)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_compressed_shard_that_is_replaced_is_an_error() {
    let dir = tempdir().unwrap();
    let zipped = write(dir.path(), "0.mds.zip", &made::gz(&good()));
    write(dir.path(), "index.json", zipped_index("gz", good().len(), 2).as_bytes());
    let reader = open(dir.path()).unwrap();
    let mut other = good();
    *other.last_mut().unwrap() = 9;
    fs::rename(write(dir.path(), "new", &made::gz(&other)), &zipped).unwrap();
    let error = Values::new().read(&*reader, 1).unwrap_err();
    assert!(error.message().contains("another file has taken its place"), "{error}");
    assert_eq!((error.path(), error.sample()), (Some(zipped.as_path()), Some(1)));
}

#[test]
fn damaged_shards_are_refused_with_what_is_wrong() {
    let dir = tempdir().unwrap();
    let one =
        |names: &str, encodings: &str, sizes: &str| shard(&columns(names, encodings, sizes), &[&[0; 4]]);
    let cases: [(Vec<u8>, &str); 8] = [
        (good()[..good().len() - 1].to_vec(), "cut short or no MDS shard"),
        (u32::MAX.to_le_bytes().repeat(3), "claims 4294967295 samples"),
        ([&good()[..8], &[0xFF; 4], &good()[12..]].concat(), "cut short or no MDS shard"),
        (vec![1, 0, 0], "ends within its index"),
        (one(r#"["a"]"#, r#"["pt"]"#, "[null]"), "column \"a\" has the encoding \"pt\""),
        (one(r#"["a"]"#, r#"["int32"]"#, "[8]"), "column \"a\" claims 8 bytes of int32"),
        (one(r#"["a"]"#, "[]", "[]"), "differ in length"),
        (shard("{", &[&[0; 4]]), "description of the columns is damaged"),
    ];
    for (bytes, why) in &cases {
        let path = write(dir.path(), "x.mds", bytes);
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why) && error.path() == Some(&path), "{why}: {error}");
    }
    // A size beyond the sample, one below it.
    for size in [5u32, 0] {
        let sample = [&size.to_le_bytes()[..], &[7; 4]].concat();
        let columns = columns(r#"["a"]"#, r#"["bytes"]"#, "[null]");
        let reader = open(write(dir.path(), "x.mds", &shard(&columns, &[&sample]))).unwrap();
        let error = Values::new().read(&*reader, 0).unwrap_err();
        assert!(error.to_string().contains("sizes of the columns do not fit"), "{error}");
        assert_eq!((error.sample(), error.offset().is_some()), (Some(0), true));
    }
    write(dir.path(), "0.mds", &good());
    for (index, why) in [
        (index(&[("0.mds", 3)]), "claims 3 samples, the shard has 2"),
        (index(&[("../0.mds", 2)]), "outside of its folder"),
        (index(&[("none.mds", 2)]), "no such file"),
        (index(&[("none.mds", 2)]).replace("null", r#"{"basename":"0.mds.zstd"}"#), "compressed by \"\""),
        ("{}".into(), "lacks \"shards\""),
    ] {
        write(dir.path(), "index.json", index.as_bytes());
        let error = mds::open_folder(dir.path()).unwrap_err();
        assert!(error.to_string().contains(why) && error.path().is_some(), "{why}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_shard_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = good();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let dir = tempdir().unwrap();
        let path = write(dir.path(), "x.mds", &bytes);
        match open(&path) {
            Err(error) => prop_assert_eq!(error.path(), Some(path.as_path())),
            Ok(reader) => for sample in 0..reader.len() {
                if let Err(error) = Values::new().read(&*reader, sample) {
                    prop_assert_eq!(error.path(), Some(path.as_path()));
                }
            },
        }
    }
}
