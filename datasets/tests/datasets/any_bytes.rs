//! A file of any bytes is read, or refused in one line with its path. Nothing panics.

use crate::made;
use feedline_core::Values;

use crate::made::{gz, npy, safetensors, tar, write, zip};
use feedline_datasets::{OpenOptions, open_with};
use proptest::collection::vec;
use proptest::prelude::*;

/// A small good file of every format.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let array = npy(">i2", true, "(2, 3)", &[0; 12]);
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let archive = tar(&[("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3")]);
    vec![
        ("text.npy", npy("<U2", false, "(2,)", &[65, 0, 0, 0, 66, 0, 0, 0, 67, 0, 0, 0, 0, 0, 0, 0])),
        ("x.npz", zip(&[("a.npy", &array), ("b.npy", &array)], None)),
        ("x.npy", array),
        ("x.safetensors", safetensors(header, &[0; 8])),
        ("x.tgz", gz(&archive)),
        ("x.tar", archive),
        ("x.idx", vec![0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2, 3, 4]),
        ("x.bin.gz", gz(&[1; 3073])),
        ("x.txt", b"one\r\ntwo\n\nthree".to_vec()),
        ("x", vec![]),
    ]
}

/// Opens the file and reads all of it.
fn read_all(path: &std::path::Path, limit: u64) {
    let mut values = Values::new();
    let result = open_with(path, &OpenOptions::with_memory_limit(limit)).and_then(|reader| {
        (0..reader.len().min(1000)).try_for_each(|sample| {
            values.read(&*reader, sample)?;
            assert_eq!(values.fields().len(), reader.spec().fields().len());
            Ok(())
        })
    });
    if let Err(error) = result {
        let line = error.to_string();
        assert!(error.path().is_some() && !line.contains('\n'), "{line}");
    }
}

#[test]
fn the_seeds_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in seeds().iter().filter(|(name, _)| *name != "x") {
        // The archives lack a member.
        let empty_members = name.ends_with("tar") || name.ends_with("tgz");
        let options = OpenOptions { empty_members, ..OpenOptions::with_memory_limit(0) };
        let reader = open_with(write(dir.path(), name, bytes), &options).unwrap();
        assert!(reader.len() > 0, "{name}");
    }
}

/// Text of the letters that headers of npy files are made of.
const HEADER: &str = "[{}()\\[\\]'\",:TrueFalsdcrshptin_o0-9<>|?fiubcSUOL -]{0,80}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn changed_files_are_read_or_refused(
        seed in 0..seeds().len(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        tail in vec(any::<u8>(), 0..20),
        on_disk: bool,
    ) {
        let (name, mut bytes) = seeds().swap_remove(seed);
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.extend(tail);
        let dir = tempfile::tempdir().unwrap();
        read_all(&write(dir.path(), name, &bytes), if on_disk { 0 } else { u64::MAX });
    }

    #[test]
    fn any_npy_header_is_read_or_refused(header in HEADER) {
        let dir = tempfile::tempdir().unwrap();
        read_all(&write(dir.path(), "x.npy", &made::npy_header(&header, &[0; 16])), 0);
    }
}

/// Found by the test above.
#[test]
fn a_line_break_in_the_type_of_an_array_is_not_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    read_all(&write(dir.path(), "text.npy", &npy("\nU2", false, "(1,)", &[0; 8])), u64::MAX);
}
