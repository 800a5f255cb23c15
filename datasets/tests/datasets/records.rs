//! Records have the bytes of the file. A file whose size is not a whole number of records is refused.

use crate::common::{gz, write};
use feedline_core::{Context, DType, Dataset, ErrorKind, Layout, Spec};
use feedline_datasets::Records;
use tempfile::tempdir;

/// Two fields: 4 bytes of `u16`, then 3 of `u8`.
fn spec() -> Spec {
    Spec::new().field("wide", DType::U16, [2]).unwrap().field("narrow", DType::U8, [3]).unwrap()
}

/// The bytes of `records` records of seven bytes; every byte is its offset.
fn content(records: u8) -> Vec<u8> {
    (0..records * 7).collect()
}

/// The fields of rows `ids`, read in bulk and one by one.
fn read(data: &Records, ids: &[u64]) -> [[Vec<u8>; 2]; 2] {
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut context = Context::new(0, 0);
    [true, false].map(|at_once| {
        let mut slab = vec![0xEE; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
        if at_once {
            data.read_many(ids, &mut rows, &mut context).unwrap();
        } else {
            for (row, &id) in ids.iter().enumerate() {
                data.read(id, &mut rows.row(row), &mut context).unwrap();
            }
        }
        [0, 1].map(|field| rows.column_mut(field).to_vec())
    })
}

#[test]
fn every_field_of_every_record_lands_in_its_place() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "records", &content(30));
    let data = Records::open(&path, spec()).unwrap();
    assert_eq!((data.len(), data.path(3), data.bytes()), (30, Some(path.as_path()), Some(&content(30)[..])));
    let ids = [29, 0, 5, 5];
    let bytes = |from: u64, to: u64| -> Vec<u8> {
        ids.iter().flat_map(|id| (id * 7 + from..id * 7 + to).map(|byte| byte as u8)).collect()
    };
    for fields in read(&data, &ids) {
        assert_eq!(fields, [bytes(0, 4), bytes(4, 7)]);
    }
}

#[test]
fn ids_outside_the_file_are_refused_with_their_row() {
    let dir = tempdir().unwrap();
    let data = Records::open(write(dir.path(), "records", &content(3)), spec()).unwrap();
    let layout = Layout::new(data.spec(), 3).unwrap();
    // The second wraps to byte 5 when multiplied by the record's size.
    for bad in [3, u64::MAX / 7 + 1, u64::MAX] {
        let mut slab = vec![0; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
        let (row, error) = data.read_many(&[2, bad, 1], &mut rows, &mut Context::new(0, 0)).unwrap_err();
        assert_eq!((row, data.record(bad)), (1, None));
        // The rows before it are complete: a substitute replaces only the failed row.
        assert_eq!(rows.column_mut(0)[..4], content(3)[14..18]);
        assert_eq!(rows.column_mut(1)[..3], content(3)[18..]);
        assert!(error.to_string().contains(&format!("no sample {bad}: there are 3")), "{error}");
        assert!(data.read(bad, &mut rows.row(0), &mut Context::new(0, 0)).is_err());
    }
}

#[test]
fn files_without_whole_records_are_refused() {
    let dir = tempdir().unwrap();
    let open = |bytes: &[u8]| Records::open(write(dir.path(), "records", bytes), spec()).unwrap_err();
    let cut = open(&content(3)[..20]);
    assert_eq!((cut.kind(), cut.path().is_some()), (ErrorKind::Data, true));
    assert!(cut.to_string().contains("6 bytes after the last whole record of 7"), "{cut}");
    assert!(open(&gz(&content(3), 6)).to_string().contains("gunzip it"));
    assert!(open(&[]).to_string().contains("empty"));
    let missing = Records::open(dir.path().join("none"), spec()).unwrap_err();
    assert!(missing.to_string().contains("no such file"), "{missing}");
    let fieldless = Records::open(write(dir.path(), "records", &content(3)), Spec::new()).unwrap_err();
    assert_eq!(fieldless.kind(), ErrorKind::Config);
}

#[test]
fn the_fingerprint_tells_files_and_specs_apart() {
    let dir = tempdir().unwrap();
    let fingerprint = |bytes: &[u8], spec: Spec| {
        Records::open(write(dir.path(), "records", bytes), spec).unwrap().fingerprint()
    };
    let one = fingerprint(&content(30), spec());
    assert_eq!(one, fingerprint(&content(30), spec()));
    let mut other = content(30);
    other[100] ^= 1;
    let seven = Spec::new().field("all", DType::U8, [7]).unwrap();
    let others =
        [fingerprint(&other, spec()), fingerprint(&content(29), spec()), fingerprint(&content(30), seven)];
    assert!(others.iter().all(|&other| other != one), "{one:x} {others:x?}");
}
