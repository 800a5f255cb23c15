//! Reads parts of fields as streams, and visits some fields without the others.

use std::fs;
use std::io::{Read, Seek, SeekFrom};

use feedline_core::{Context, Dataset, Sink};
use feedline_datasets::{Folder, WebDataset};
use tempfile::tempdir;

use crate::common::write;
use crate::made;

fn bytes(sample: u8) -> Vec<u8> {
    (0..100_000u32).map(|at| (at * 7) as u8 ^ sample).collect()
}

/// The last bytes of a field, by its stream.
fn end(reader: &dyn Dataset, sample: u64, field: usize) -> Vec<u8> {
    let mut stream = reader.storage().stream(sample, field).unwrap().unwrap();
    assert!(stream.len() == 100_000 && !stream.is_empty());
    let mut end = Vec::new();
    stream.seek(SeekFrom::End(-9)).unwrap();
    stream.read_to_end(&mut end).unwrap();
    end
}

#[test]
fn a_field_is_a_stream_of_the_bytes_that_are_read() {
    let dir = tempdir().unwrap();
    for class in 0..2u8 {
        fs::create_dir(dir.path().join(class.to_string())).unwrap();
        write(dir.path(), &format!("{class}/1.wav"), &bytes(class));
    }
    let folder = Folder::open(dir.path()).unwrap();
    let (one, two) = (bytes(1), bytes(2));
    let members = [("0.wav", &one[..]), ("0.cls", b"5"), ("1.wav", &two), ("1.cls", b"6")];
    let archive = WebDataset::open(write(dir.path(), "a.tar", &made::tar(&members))).unwrap();
    let readers: [(&dyn Dataset, [u8; 2]); 2] = [(&folder, [0, 1]), (&archive, [1, 2])];
    let mut context = Context::new(0, 0);
    for (reader, of) in readers {
        for (sample, of) in (0..).zip(of) {
            assert_eq!(end(reader, sample, 0), bytes(of)[99_991..], "{}", reader.about().format);
            let (mut first, mut others) = (Vec::new(), 0);
            let mut visit = |field, bytes: &[u8], _: Option<&[usize]>| {
                if field == 0 {
                    first = bytes.to_vec()
                } else {
                    others += 1
                }
                Ok(())
            };
            for wanted in 0..2 {
                let is_wanted = |field| field == wanted;
                reader.visit(sample, &mut Sink::some(&is_wanted, &mut visit), &mut context).unwrap();
            }
            assert_eq!((first, others), (bytes(of), 1), "{}", reader.about().format);
        }
        assert!(
            reader.storage().stream(2, 0).map(|stream| stream.is_none()).unwrap_or(true),
            "{}",
            reader.about().format
        );
    }
    // The label is visited without its file.
    fs::remove_file(dir.path().join("1/1.wav")).unwrap();
    let mut label = Vec::new();
    let mut visit = |_: usize, bytes: &[u8], _: Option<&[usize]>| {
        label = bytes.to_vec();
        Ok(())
    };
    let folder: &dyn Dataset = &folder;
    folder.visit(1, &mut Sink::some(&|field| field == 1, &mut visit), &mut context).unwrap();
    assert_eq!(label, 1i64.to_le_bytes());
    let error = folder.storage().stream(1, 0).unwrap_err();
    assert!(error.to_string().contains("no such file") && error.path().is_some(), "{error}");
}

#[test]
fn a_file_that_changes_under_its_stream_is_an_error() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "1.wav", &bytes(0));
    let folder = Folder::open(dir.path()).unwrap();
    let mut stream = folder.storage().stream(0, 0).unwrap().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    fs::write(&path, &bytes(9)[..50_000]).unwrap();
    let error = stream.read_exact(&mut [0; 1000]).unwrap_err();
    assert!(error.to_string().contains("the file was cut while it was in use"), "{error}");
}
