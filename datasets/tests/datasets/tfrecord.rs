//! TFRecord files: records and examples, good and damaged.

use crate::made::{gz, read, write};
use feedline_datasets::{Values, open};
use proptest::prelude::*;
use tempfile::tempdir;

fn crc32c(bytes: &[u8]) -> u32 {
    // Bit by bit: not the code under test.
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8)
            .fold(crc ^ u32::from(byte), |crc: u32, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| (crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

/// A field of type 2: its number, length and bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128);
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// An example of features, each a name, the number of its list's kind, and the list.
fn example(features: &[(&str, u8, Vec<u8>)]) -> Vec<u8> {
    let entries = features.iter().map(|(name, kind, list)| {
        field(1, &[field(1, name.as_bytes()), field(2, &field(*kind, list))].concat())
    });
    field(1, &entries.collect::<Vec<_>>().concat())
}

fn examples() -> Vec<Vec<u8>> {
    let float = |value: f32| field(1, &value.to_le_bytes());
    vec![
        example(&[
            ("id", 3, vec![8, 7]),
            ("x", 2, float(1.5)),
            ("names", 1, [field(1, b"a"), field(1, b"bc")].concat()),
        ]),
        example(&[("names", 1, field(1, b"d")), ("id", 3, vec![8, 8]), ("only", 3, field(1, &[1, 2]))]),
    ]
}

#[test]
fn features_are_fields_by_name() {
    let dir = tempdir().unwrap();
    let file: Vec<u8> = examples().iter().flat_map(|example| record(example)).collect();
    for bytes in [file.clone(), gz(&file)] {
        let reader = open(write(dir.path(), "x", &bytes)).unwrap();
        assert_eq!((reader.format(), reader.len()), ("tfrecord", 2));
        assert_eq!(
            reader.schema().to_string(),
            "id i64 [], names bytes [?], names.lengths i64 [?], only i64 [?], x f32 [?]"
        );
        let int = i64::to_le_bytes;
        let first = [
            int(7).to_vec(),
            b"abc".to_vec(),
            [int(1), int(2)].concat(),
            vec![],
            1.5f32.to_le_bytes().into(),
        ];
        assert_eq!(read(&*reader, 0), first);
        let second = [int(8).to_vec(), b"d".to_vec(), int(1).to_vec(), [int(1), int(2)].concat(), vec![]];
        assert_eq!(read(&*reader, 1), second);
        // In the same buffers nothing stays of the sample before.
        let mut values = Values::new();
        reader.read(1, &mut values).unwrap();
        reader.read(0, &mut values).unwrap();
        assert!(values.fields().iter().map(|value| &value.bytes).eq(&first));
        assert_eq!(
            values.fields().iter().map(|value| value.shape.clone()).collect::<Vec<_>>(),
            [vec![], vec![3], vec![2], vec![0], vec![1]]
        );
    }
}

#[test]
fn of_two_features_with_one_name_the_last_counts() {
    let dir = tempdir().unwrap();
    let twice =
        example(&[("id", 3, vec![8, 7]), ("s", 1, field(1, b"a")), ("id", 3, vec![8, 9]), ("s", 1, vec![])]);
    let reader = open(write(dir.path(), "x", &record(&twice))).unwrap();
    assert_eq!(read(&*reader, 0), [9i64.to_le_bytes().to_vec(), vec![], vec![]]);
}

#[test]
fn other_records_are_bytes() {
    let dir = tempdir().unwrap();
    let reader = open(write(dir.path(), "x", &[record(b"one"), record(b"")].concat())).unwrap();
    assert_eq!(reader.schema().to_string(), "record bytes [?]");
    assert_eq!([read(&*reader, 0), read(&*reader, 1)], [[b"one".to_vec()], [vec![]]]);
    // A sequence example: an example with a second field.
    let sequence = [example(&[("id", 3, vec![8, 7])]), field(2, b"")].concat();
    let reader = open(write(dir.path(), "x", &record(&sequence))).unwrap();
    assert_eq!(read(&*reader, 0), [sequence]);
}

#[test]
fn damaged_files_are_refused_with_the_record_and_the_byte() {
    let dir = tempdir().unwrap();
    let [one, two] = [record(b"one"), record(b"two")];
    let good = [one.clone(), two].concat();
    let flip = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let other = example(&[("id", 2, field(1, &1f32.to_le_bytes()))]);
    let changes = [record(&examples()[0]), record(&other)].concat();
    let huge = {
        let length = (1u64 << 62).to_le_bytes();
        let masked = crc32c(&length).rotate_right(15).wrapping_add(0xA282_EAD8);
        [&length[..], &masked.to_le_bytes(), &[0; 20]].concat()
    };
    let cases: [(&str, Vec<u8>, &str, u64); 5] = [
        ("length", flip(19), "checksum of the record's length", 19),
        ("record", flip(19 + 12), "checksum of the record does", 31),
        ("cut", good[..37].to_vec(), "needs 19 bytes, found 18", 19),
        ("huge", huge, "needs 4611686018427387920 bytes", 0),
        ("type", changes, "\"id\" changes its type", record(&examples()[0]).len() as u64),
    ];
    for (name, bytes, why, byte) in cases {
        let path = write(dir.path(), &format!("{name}.tfrecord"), &bytes);
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why), "{name}: {error}");
        assert_eq!((error.path(), error.offset()), (Some(path.as_path()), Some(byte)), "{name}");
        assert_eq!(error.sample(), Some(u64::from(byte > 0)), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_record_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        which in 0..2usize,
    ) {
        let mut all = examples();
        for (at, byte) in changes {
            let at = at.index(all[which].len());
            all[which][at] = byte;
        }
        let dir = tempdir().unwrap();
        let file: Vec<u8> = all.iter().flat_map(|example| record(example)).collect();
        let path = write(dir.path(), "x", &file);
        if let Ok(reader) = open(&path) {
            for sample in 0..reader.len() {
                if let Err(error) = reader.read(sample, &mut Values::new()) {
                    prop_assert_eq!(error.path(), Some(path.as_path()));
                }
            }
        }
    }
}
