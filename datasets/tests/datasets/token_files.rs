//! Token ids in files whose headers or indices state their type and place: Megatron's, fairseq's, llm.c's,
//! `.npy`.

use std::path::{Path, PathBuf};

use crate::made::{npy, read, write};
use crate::training::{golden, json};
use feedline_core::{DType, Dataset, Values};
use feedline_datasets::{Bounded, OpenOptions, TokenDocuments, TokenOptions, Tokens, open, open_with};
use serde_json::{Value as Json, json};
use tempfile::tempdir;

/// Documents of these sequences.
const DOCUMENTS: &[&[&[i64]]] = &[&[&[1, 2, 3], &[4]], &[], &[&[5, 6]], &[&[], &[7, 8, 9, 10]]];

/// The bytes of an id in the type of a code.
fn id(code: u8, id: i64) -> Vec<u8> {
    match code {
        1 | 2 => vec![id as u8],
        3 | 8 => (id as u16).to_le_bytes().to_vec(),
        4 => (id as u32).to_le_bytes().to_vec(),
        5 => id.to_le_bytes().to_vec(),
        6 => (id as f64).to_le_bytes().to_vec(),
        _ => (id as f32).to_le_bytes().to_vec(),
    }
}

fn longs(numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    numbers.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// A pair of Megatron: `.idx` and `.bin`.
fn megatron(documents: &[&[&[i64]]], code: u8, modes: Option<&[u8]>) -> [Vec<u8>; 2] {
    let sequences: Vec<&[i64]> = documents.concat();
    let bin: Vec<u8> = sequences.concat().iter().flat_map(|number| id(code, *number)).collect();
    let mut list = vec![0];
    list.extend(documents.iter().scan(0, |end, document| {
        *end += document.len() as i64;
        Some(*end)
    }));
    let size = id(code, 0).len() as i64;
    let starts =
        sequences.iter().scan(0, |end, ids| Some(std::mem::replace(end, *end + ids.len() as i64 * size)));
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0".to_vec();
    index.push(code);
    index.extend(longs([sequences.len() as i64, list.len() as i64]));
    index.extend(sequences.iter().flat_map(|ids| (ids.len() as i32).to_le_bytes()));
    index.extend(longs(starts));
    index.extend(longs(list));
    index.extend(modes.unwrap_or_default());
    [index, bin]
}

/// A pair of fairseq, or, with a list of documents, of old Megatron.
fn fairseq(documents: &[&[&[i64]]], code: u8, has_list: bool) -> [Vec<u8>; 2] {
    let [_, bin] = megatron(documents, code, None);
    let sequences: Vec<&[i64]> = documents.concat();
    let count = sequences.len() as i64;
    let mut index = b"TNTIDX\0\0".to_vec();
    index.extend(longs([1, code.into(), id(code, 0).len() as i64, count, count]));
    if has_list {
        index.extend(longs([documents.len() as i64 + 1]));
    }
    index.extend(longs(0..=count));
    let ends = |lengths: Vec<usize>| {
        lengths.into_iter().fold(vec![0], |mut ends, len| {
            ends.push(ends[ends.len() - 1] + len as i64);
            ends
        })
    };
    index.extend(longs(ends(sequences.iter().map(|ids| ids.len()).collect())));
    index.extend(longs(sequences.iter().map(|ids| ids.len() as i64)));
    if has_list {
        index.extend(longs(ends(documents.iter().map(|document| document.len()).collect())));
    }
    [index, bin]
}

fn pair(dir: &Path, name: &str, [index, bin]: &[Vec<u8>; 2]) -> PathBuf {
    write(dir, &format!("{name}.idx"), index);
    write(dir, &format!("{name}.bin"), bin)
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
}

/// Documents, each a list of sequences.
fn sequences(reader: &dyn Dataset) -> Vec<Vec<Vec<i64>>> {
    let mut values = Values::new();
    let document = |document| {
        values.read(&*reader, document).unwrap();
        let [ids, lengths] = [0, 1].map(|field| numbers(&values.fields()[field].bytes));
        let mut ids = ids.into_iter();
        lengths.into_iter().map(|length| ids.by_ref().take(length as usize).collect()).collect()
    };
    (0..reader.len()).map(document).collect()
}

fn expected() -> Vec<Vec<Vec<i64>>> {
    DOCUMENTS.iter().map(|document| document.iter().map(|ids| ids.to_vec()).collect()).collect()
}

#[test]
fn the_documents_of_a_pair_are_those_that_its_index_lists_in_every_type() {
    let dir = tempdir().unwrap();
    for (code, dtype) in [(1, "u8"), (2, "i8"), (3, "i16"), (4, "i32"), (5, "i64"), (8, "u16")] {
        let made = [("megatron", megatron(DOCUMENTS, code, None)), ("old", fairseq(DOCUMENTS, code, true))];
        for (name, made) in made {
            let bin = pair(dir.path(), name, &made);
            for (path, limit) in [(bin.clone(), u64::MAX), (bin.with_extension("idx"), 0)] {
                let reader = open_with(&path, &OpenOptions::with_memory_limit(limit)).unwrap();
                assert_eq!(reader.spec().to_string(), "ids i64 [?], ids.lengths i64 [?]");
                assert_eq!(reader.about().format, "megatron");
                assert_eq!(sequences(&*reader), expected(), "{name}, {dtype}");
                assert_eq!(reader.path(0), Some(bin.as_path()));
            }
        }
        // fairseq's index has no list: a sequence is a document.
        let bin = pair(dir.path(), "fairseq", &fairseq(DOCUMENTS, code, false));
        let found: Vec<_> = sequences(&*open(bin).unwrap()).concat();
        assert_eq!(found, expected().concat());
    }
    for (code, made) in [(6, megatron(DOCUMENTS, 6, None)), (6, fairseq(DOCUMENTS, 6, true))] {
        let reader = open(pair(dir.path(), "floats", &made)).unwrap();
        assert_eq!(reader.spec().to_string(), "ids f64 [?], ids.lengths i64 [?]", "{code}");
    }
    let reader = open(pair(dir.path(), "narrow", &megatron(DOCUMENTS, 7, None))).unwrap();
    assert_eq!(reader.spec().fields()[0].to_string(), "ids f32 [?]");
    // `double` of old versions has the code that is `float32` today.
    let [mut index, bin] = megatron(DOCUMENTS, 6, None);
    index[17] = 7;
    let reader = open(pair(dir.path(), "double", &[index, bin])).unwrap();
    assert_eq!(reader.spec().fields()[0].to_string(), "ids f64 [?]");
    let mut values = Values::new();
    values.read(&*reader, 2).unwrap();
    assert_eq!(values.fields()[0].bytes, [5f64, 6.].map(f64::to_le_bytes).concat());
    // Negative ids keep their sign.
    let negative: &[&[&[i64]]] = &[&[&[-1, -128]]];
    assert_eq!(
        sequences(&*open(pair(dir.path(), "i8", &megatron(negative, 2, None))).unwrap())[0][0],
        [-1, -128]
    );
}

#[test]
fn lengths_come_from_the_index_and_modes_with_the_documents() {
    let dir = tempdir().unwrap();
    let bin = pair(dir.path(), "modes", &megatron(DOCUMENTS, 4, Some(&[0, 1, 2, 3, 4])));
    let reader = open(&bin).unwrap();
    assert_eq!(reader.spec().to_string(), "ids i64 [?], ids.lengths i64 [?], ids.modes i8 [?]");
    let mut values = Values::new();
    values.read(&*reader, 3).unwrap();
    assert_eq!(values.fields()[2].bytes, [3, 4]);
    assert_eq!(
        reader.storage().lengths().unwrap().unwrap(),
        [vec![4, 0, 2, 4], vec![2, 0, 1, 2], vec![2, 0, 1, 2]]
    );
    let data = Bounded::measured(reader).unwrap();
    assert_eq!(
        (data.lengths("ids").unwrap(), data.lengths("ids.modes").unwrap()),
        (&[4, 0, 2, 4][..], &[2, 0, 1, 2][..])
    );
    assert!(feedline_core::check_dataset(&data, &Default::default()).unwrap().is_clean());
    // Several pairs in a folder are shards; an index is none of them.
    let folder = dir.path().join("folder");
    for name in ["a", "b"] {
        pair(&folder, name, &megatron(DOCUMENTS, 4, None));
    }
    for path in [folder.clone(), folder.join("*.bin"), folder.join("*")] {
        let reader = open(&path).unwrap();
        assert_eq!(sequences(&*reader), [expected(), expected()].concat(), "{}", path.display());
        assert_eq!(reader.storage().lengths().unwrap().unwrap()[0], [4, 0, 2, 4, 4, 0, 2, 4]);
    }
}

#[test]
fn a_damaged_pair_is_an_error_that_names_file_and_place() {
    let dir = tempdir().unwrap();
    let [index, bin] = megatron(DOCUMENTS, 4, None);
    let changed = |at: usize, to: &[u8]| {
        let mut index = index.clone();
        index[at..at + to.len()].copy_from_slice(to);
        index
    };
    let lists = 34 + 5 * 12;
    for (name, index, bin, part) in [
        ("version", changed(9, &[2]), bin.clone(), "version 2 of the index"),
        ("code", changed(17, &[9]), bin.clone(), "type 9"),
        ("count", changed(18, &[6]), bin.clone(), "6 sequences and 5 entries"),
        ("huge", changed(18, &[255; 8]), bin.clone(), "sequences and 5 entries"),
        ("cut", index[..index.len() - 1].to_vec(), bin.clone(), "do not hold"),
        ("short", index[..20].to_vec(), bin.clone(), "ends within its header"),
        ("ids", index.clone(), bin[..bin.len() - 4].to_vec(), "beyond a .bin of 36 bytes"),
        ("odd", index.clone(), [&bin[..], &[0]].concat(), "end at byte 40 of a .bin of 41 bytes"),
        (
            "last",
            changed(lists + 32, &[4]),
            bin.clone(),
            "entry 4 of the list of documents is 4 instead of 5",
        ),
        ("first", changed(lists, &[1]), bin.clone(), "entry 0 of the list of documents is 1 instead of 0"),
        ("above", changed(lists + 8, &[9]), bin.clone(), "entry 2 of the list of documents is 2, below the"),
        ("negative", changed(34 + 4, &[255; 4]), bin.clone(), "has -1 ids"),
        ("far", changed(34 + 4 * 5 + 8, &[200]), bin.clone(), "begins at 200, and the ids before it end at"),
    ] {
        let path = pair(dir.path(), name, &[index, bin]);
        let error = open(&path).unwrap_err();
        assert!(error.message().contains(part), "{name}: {error}");
        let at = error.path().unwrap();
        assert!(at == path || at == path.with_extension("idx"), "{name}: {error}");
    }
    // An index that lies alone.
    let alone = write(dir.path(), "alone.idx", &index);
    let error = open(&alone).unwrap_err();
    assert!(error.to_string().contains("alone.bin"), "{error}");
}

#[test]
fn an_index_that_does_not_fit_its_bin_is_refused() {
    let dir = tempdir().unwrap();
    for (name, [index, bin], starts) in [
        ("megatron", megatron(DOCUMENTS, 4, None), 34 + 5 * 4),
        ("modes", megatron(DOCUMENTS, 4, Some(&[0, 1, 2, 3, 4])), 34 + 5 * 4),
        ("old", fairseq(DOCUMENTS, 4, true), 48 + 8 + 6 * 8),
        ("fairseq", fairseq(DOCUMENTS, 4, false), 48 + 6 * 8),
    ] {
        let is_old = name == "old" || name == "fairseq";
        let (lengths, width, type_at) = if is_old { (starts + 6 * 8, 8, 16) } else { (34, 4, 17) };
        assert!(open(pair(dir.path(), name, &[index.clone(), bin.clone()])).unwrap().len() > 3, "{name}");
        let refused = |what: &str, index: &[u8], bin: &[u8]| {
            let path = pair(dir.path(), name, &[index.to_vec(), bin.to_vec()]);
            for limit in [u64::MAX, 0] {
                let error = open_with(&path, &OpenOptions::with_memory_limit(limit)).unwrap_err();
                let at = error.path().unwrap();
                assert!(at == path || at == path.with_extension("idx"), "{name}, {what}: {error}");
            }
        };
        // Bits of each byte of each length and each start.
        for at in (0..5 * 8).map(|at| starts + at).chain((0..5 * width).map(|at| lengths + at)) {
            for bit in [0, 3, 7] {
                let mut index = index.clone();
                index[at] ^= 1 << bit;
                refused(&format!("byte {at}, bit {bit}"), &index, &bin);
            }
        }
        // A type of another size, as of an index of a run with a larger vocabulary.
        for code in [1, 2, 3, 5, 8] {
            let mut index = index.clone();
            index[type_at] = code;
            if is_old {
                index[24] = id(code, 0).len() as u8;
            }
            refused(&format!("type {code}"), &index, &bin);
        }
        // A `.bin` of a longer or a shorter run, which windows would read too.
        for bin in [[&bin[..], &[1, 0, 0, 0]].concat(), bin[..bin.len() - 4].to_vec(), vec![]] {
            refused("another .bin", &index, &bin);
            let path = pair(dir.path(), name, &[index.clone(), bin]);
            let error = Tokens::open(&[(&path, 1.0)], TokenOptions::stated(2)).unwrap_err();
            let parts = ["write both again", "beyond", "the file is empty"];
            assert!(parts.iter().any(|part| error.message().contains(part)), "{error}");
        }
    }
    // An empty index beside ids.
    let [index, _] = megatron(&[&[]], 4, None);
    let error = open(pair(dir.path(), "none", &[index, vec![1, 0, 0, 0]])).unwrap_err();
    assert!(error.message().contains("0 sequences end at byte 0 of a .bin of 4 bytes"), "{error}");
}

#[test]
fn documents_equal_those_that_megatron_core_reads() {
    let Some(folder) = golden("megatron") else { return };
    let expected = json(&folder.join("expected.json"));
    for (name, expected) in expected.as_object().unwrap() {
        let reader = open(folder.join(format!("{name}.bin"))).unwrap();
        assert_eq!(json!(sequences(&*reader)), expected["docs"], "{name}");
        assert_eq!(Json::from(reader.len()), expected["documents"]);
        let Some(modes) = expected.get("modes").filter(|modes| modes.is_array()) else { continue };
        let mut values = Values::new();
        let found: Vec<Vec<i8>> = (0..reader.len())
            .map(|document| {
                values.read(&*reader, document).unwrap();
                values.fields()[2].bytes.iter().map(|mode| *mode as i8).collect()
            })
            .collect();
        assert_eq!(&json!(found), modes, "{name}");
    }
}

/// A file of llm.c.
fn llm_c(magic: u32, version: u32, ids: &[u8], size: usize) -> Vec<u8> {
    let header = [magic, version, (ids.len() / size) as u32].map(u32::to_le_bytes).concat();
    [&header[..], &[0; 1012], ids].concat()
}

#[test]
fn a_file_of_llm_c_is_cut_into_documents_where_its_token_begins_them() {
    let dir = tempdir().unwrap();
    let narrow: Vec<u8> = [50256u16, 1, 2, 50256, 50256, 7].iter().flat_map(|id| id.to_le_bytes()).collect();
    let wide: Vec<u8> = [3u32, 128000, 99999].iter().flat_map(|id| id.to_le_bytes()).collect();
    /// Magic number, version, ids, bytes of an id, documents.
    type Case<'c> = (u32, u32, &'c [u8], usize, &'c [&'c [i64]]);
    let cases: [Case<'_>; 2] = [
        (20240520, 1, &narrow, 2, &[&[50256, 1, 2], &[50256], &[50256, 7]]),
        (20240801, 7, &wide, 4, &[&[3], &[128000, 99999]]),
    ];
    for (magic, version, ids, size, expected) in cases {
        let path = write(dir.path(), "fineweb.bin", &llm_c(magic, version, ids, size));
        let reader = open(&path).unwrap();
        assert_eq!((reader.about().format, reader.spec().to_string().as_str()), ("llm.c", "ids i64 [?]"));
        let mut values = Values::new();
        for (document, expected) in (0..).zip(expected) {
            values.read(&*reader, document).unwrap();
            assert_eq!(numbers(&values.fields()[0].bytes), *expected);
        }
        assert_eq!(reader.len(), expected.len() as u64);
        let lengths: Vec<u32> = expected.iter().map(|ids| ids.len() as u32).collect();
        assert_eq!(reader.storage().lengths().unwrap().unwrap(), [lengths]);
    }
    for (bytes, part) in [
        (llm_c(20240520, 9, &narrow, 2), "version 9"),
        (llm_c(20240520, 1, &narrow, 4), "3 ids of u16, and 12 bytes follow"),
    ] {
        let error = open(write(dir.path(), "bad.bin", &bytes)).unwrap_err();
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn windows_take_the_type_that_the_file_states() {
    let dir = tempdir().unwrap();
    let ids: Vec<u8> = (0..9u16).flat_map(u16::to_le_bytes).collect();
    let sequences: &[&[&[i64]]] = &[&[&[0, 1, 2, 3, 4]], &[&[5, 6, 7, 8]]];
    let files = [
        pair(dir.path(), "pair", &megatron(sequences, 8, None)),
        write(dir.path(), "llm.bin", &llm_c(20240520, 1, &ids, 2)),
        write(dir.path(), "ids.npy", &npy("<u2", false, "(9,)", &ids)),
    ];
    for file in &files {
        for limit in [u64::MAX, 0] {
            let options = TokenOptions { memory_limit: limit, ..TokenOptions::stated(4) };
            let tokens = Tokens::open(&[(file, 1.0)], options).unwrap();
            assert_eq!(Dataset::len(&tokens), 2);
            let rows: Vec<_> = (0..2).map(|sample| read(&tokens, sample)).collect();
            assert_eq!(rows[1], [&ids[8..16], &ids[10..18]], "{}", file.display());
            let column = tokens.storage().column(1).map(|column| column.row(1).unwrap().to_vec());
            assert_eq!(column, (limit > 0).then(|| ids[10..18].to_vec()));
            let cut =
                TokenOptions { separator: Some(4), stride: 2, skip_short: true, ..TokenOptions::stated(2) };
            assert_eq!(Dataset::len(&Tokens::open(&[(file, 1.0)], cut).unwrap()), 3);
        }
    }
    // All at once, with weights.
    let all: Vec<_> = files.iter().map(|file| (file, 1.5)).collect();
    assert_eq!(Dataset::len(&Tokens::open(&all, TokenOptions::stated(4)).unwrap()), 9);

    let refused = |files: &[&PathBuf], options: TokenOptions, part: &str| {
        let files: Vec<_> = files.iter().map(|file| (file, 1.0)).collect();
        let error = Tokens::open(&files, options).unwrap_err();
        assert!(error.message().contains(part), "{error}");
        assert!(error.path().is_some(), "{error}");
    };
    let bare = write(dir.path(), "bare.bin", &ids);
    let wide = write(dir.path(), "wide.npy", &npy("<i4", false, "(9,)", &[0; 36]));
    let floats = write(dir.path(), "floats.npy", &npy("<f4", false, "(9,)", &[0; 36]));
    let square = write(dir.path(), "square.npy", &npy("<i4", false, "(3, 3)", &[0; 36]));
    let stated = TokenOptions::stated(2);
    refused(&[&bare], stated, "no header that states the type of its ids");
    refused(&[&files[0], &wide], stated, "the file holds i32, and the first one u16");
    refused(&[&floats], stated, "token ids are whole numbers");
    refused(&[&square], stated, "2 dimensions");
    refused(&[&files[0].with_extension("idx")], stated, "give the .bin file beside it");
    // The error of the raw reader names the reader to use.
    let raw = TokenOptions::new(DType::U16, 2);
    refused(&[&files[1]], raw, "TokenOptions::stated");
    refused(&[&files[2]], raw, "TokenOptions::stated");
    refused(&[&files[0].with_extension("idx")], raw, "read it and the .bin beside it by `open`");
    refused(&[&files[0]], TokenOptions::new(DType::I32, 2), "says that its ids are u16, not i32");
    assert_eq!(Dataset::len(&Tokens::open(&[(&bare, 1.0)], raw).unwrap()), 4);
    assert!(
        TokenDocuments::open(&bare).unwrap_err().message().contains("there is no bare.idx beside the file")
    );
}
