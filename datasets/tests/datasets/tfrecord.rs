//! TFRecord files: records and examples, good and damaged.

use crate::made::{gz, read, write};
use feedline_core::Values;
use feedline_datasets::open;
use proptest::prelude::*;
use tempfile::tempdir;

fn crc32c(bytes: &[u8]) -> u32 {
    // Computed bit by bit, without the code under test.
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
        assert_eq!((reader.about().format, reader.len()), ("tfrecord", 2));
        assert_eq!(
            reader.spec().to_string(),
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
        // Reading into the same buffers leaves nothing of the sample before.
        let mut values = Values::new();
        values.read(&*reader, 1).unwrap();
        values.read(&*reader, 0).unwrap();
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
fn what_occurs_twice_is_merged_as_protocol_buffers_do() {
    let dir = tempdir().unwrap();
    // Not packed, packed, and both after each other; `value` of the entry twice; `features` of the example
    // twice.
    let int = |value: u8| field(3, &[8, value]);
    let packed = |values: &[u8]| field(3, &field(1, values));
    let text = |value: &[u8]| field(1, &field(1, value));
    let entry = |values: &[Vec<u8>]| {
        let values = values.iter().flat_map(|value| field(2, value));
        field(1, &[field(1, b"a"), values.collect()].concat())
    };
    let one = |values: &[Vec<u8>]| field(1, &entry(values));
    let cases: [(&str, Vec<u8>, &[i64]); 9] = [
        ("two lists", one(&[[int(1), int(2)].concat()]), &[1, 2]),
        ("packed and single", one(&[[int(1), packed(&[2, 3]), int(4)].concat()]), &[1, 2, 3, 4]),
        ("two values of an entry", one(&[int(1), int(2)]), &[1, 2]),
        ("an empty one between", one(&[int(1), vec![], packed(&[]), int(2)]), &[1, 2]),
        ("another kind between", one(&[[int(1), int(2), text(b"z"), int(3), int(4)].concat()]), &[3, 4]),
        ("the last kind", one(&[text(b"z"), int(5)]), &[5]),
        ("one name twice", field(1, &[entry(&[int(1), int(7)]), entry(&[int(2)])].concat()), &[2]),
        ("one name in two parts", [one(&[int(1)]), one(&[int(3), int(4)])].concat(), &[3, 4]),
        ("an empty one counts too", field(1, &[entry(&[int(1)]), entry(&[])].concat()), &[]),
    ];
    for (name, example, expected) in &cases {
        // Read alone, and beside a record of another shape.
        let other = one(&[packed(&[9, 9, 9, 9, 9])]);
        for file in [record(example), [record(example), record(&other)].concat()] {
            let reader = open(write(dir.path(), "x", &file)).unwrap();
            let bytes: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(read(&*reader, 0)[0], bytes, "{name}: {}", reader.spec());
        }
    }
}

#[test]
fn a_feature_that_a_record_has_twice_is_one_feature_of_one_record() {
    let dir = tempdir().unwrap();
    let int = |value: u8| vec![8, value];
    // The second record lacks "a", so its size varies; the first has it twice.
    let twice = example(&[("a", 3, int(1)), ("a", 3, int(2)), ("b", 3, int(3))]);
    let file = [record(&twice), record(&example(&[("b", 3, int(4))]))].concat();
    let reader = open(write(dir.path(), "x", &file)).unwrap();
    assert_eq!(reader.spec().to_string(), "a i64 [?], b i64 []");
    assert_eq!(read(&*reader, 1), [vec![], 4i64.to_le_bytes().to_vec()]);
    // If there are two, the last decides the size and the type.
    let first = example(&[("a", 1, field(1, b"text")), ("a", 3, int(2))]);
    let longer = example(&[("a", 3, vec![8, 1, 8, 7]), ("a", 3, int(5))]);
    let file = [record(&first), record(&longer), record(&example(&[("a", 3, int(4))]))].concat();
    let reader = open(write(dir.path(), "x", &file)).unwrap();
    assert_eq!(reader.spec().to_string(), "a i64 []");
    let values: Vec<_> = (0..3).map(|sample| read(&*reader, sample).concat()).collect();
    assert_eq!(values, [2i64, 5, 4].map(|value| value.to_le_bytes().to_vec()));
}

#[test]
fn fields_that_an_example_does_not_have_are_skipped() {
    let dir = tempdir().unwrap();
    // A number, four and eight bytes, bytes, a group in a group; field 2047 has a long tag.
    let unknown = [
        &[5 << 3, 1, 6 << 3 | 5, 1, 2, 3, 4, 7 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8][..],
        &field(9, b"later"),
        &[11 << 3 | 3, 8, 1, 12 << 3 | 3, 12 << 3 | 4, 11 << 3 | 4],
        &[0xF8, 0x7F, 1],
    ]
    .concat();
    // At each level in turn: of the example, the map, an entry, a feature, a list.
    for level in 0..5 {
        let pad = |here: usize, bytes: Vec<u8>| {
            if level == here { [&unknown[..], &bytes, &unknown].concat() } else { bytes }
        };
        let list = field(3, &pad(4, vec![8, 5]));
        let value = field(2, &pad(3, list));
        let entry = field(1, &pad(2, [field(1, b"a"), value].concat()));
        let example = pad(0, field(1, &pad(1, entry)));
        let reader = open(write(dir.path(), "x", &record(&example))).unwrap();
        assert_eq!(reader.spec().to_string(), "a i64 []", "{level}");
        assert_eq!(read(&*reader, 0), [5i64.to_le_bytes()], "{level}");
    }
    // A record without any feature lacks all of them, wherever it comes.
    let five = example(&[("a", 3, vec![8, 5])]);
    for empty in [vec![], field(1, b""), field(9, b"later")] {
        for file in [[&empty[..], &five].map(record).concat(), [&five[..], &empty].map(record).concat()] {
            let reader = open(write(dir.path(), "x", &file)).unwrap();
            assert_eq!(reader.spec().to_string(), "a i64 [?]");
            assert_eq!(read(&*reader, 0).concat().len() + read(&*reader, 1).concat().len(), 8);
        }
    }
    // A field of number 0, a group without its end or with a wrong end, and bytes beyond the end.
    for damaged in [&[0, 1][..], &[11 << 3 | 3, 8, 1], &[11 << 3 | 3, 12 << 3 | 4], &[9 << 3 | 2, 9]] {
        let bad = [&five[..], damaged].concat();
        let path = write(dir.path(), "x", &[record(&five), record(&bad)].concat());
        let error = open(path).unwrap_err();
        assert!(error.message().contains("not a tf.train.Example"), "{error}");
    }
}

#[test]
fn other_records_are_bytes() {
    let dir = tempdir().unwrap();
    let reader = open(write(dir.path(), "x", &[record(b"one"), record(b"")].concat())).unwrap();
    assert_eq!(reader.spec().to_string(), "record bytes [?]");
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
                if let Err(error) = Values::new().read(&*reader, sample) {
                    prop_assert_eq!(error.path(), Some(path.as_path()));
                }
            }
        }
    }
}
