//! Windows over streams of token ids, and files that are not token ids.

use crate::made::{gz, npy, read, safetensors, tar, write, zip};
use feedline_core::{DType, Dataset, ErrorKind, Spec};
use feedline_datasets::{LeftOut, Records, TokenOptions, Tokens};
use tempfile::tempdir;

/// The tokens of every sample, and its targets.
fn windows(tokens: &Tokens) -> Vec<[Vec<u16>; 2]> {
    let words = |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect();
    (0..Dataset::len(tokens))
        .map(|sample| {
            let fields = read(tokens, sample);
            [words(&fields[0]), words(&fields[1])]
        })
        .collect()
}

#[test]
fn tokens_are_cut_into_windows_with_the_next_token_as_target() {
    let dir = tempdir().unwrap();
    let stream: Vec<u8> = (0..12u16).flat_map(u16::to_le_bytes).collect();
    let path = write(dir.path(), "tokens", &stream);
    let options = TokenOptions { stride: 3, ..TokenOptions::new(DType::U16, 4) };
    let expected = [
        [vec![0, 1, 2, 3], vec![1, 2, 3, 4]],
        [vec![3, 4, 5, 6], vec![4, 5, 6, 7]],
        [vec![6, 7, 8, 9], vec![7, 8, 9, 10]],
    ];
    for limit in [u64::MAX, 0] {
        let tokens = Tokens::open(&[(&path, 1.0)], TokenOptions { memory_limit: limit, ..options }).unwrap();
        assert_eq!(windows(&tokens), expected);
        assert_eq!(tokens.storage().column(1).map(|column| column.rows()), (limit > 0).then_some(3));
        let report = feedline_core::check_dataset(&tokens, &Default::default()).unwrap();
        assert!(report.is_clean() && report.samples == 3, "{report}");
    }
    // A window of 11 has its last target, one of 12 has not.
    assert_eq!(Dataset::len(&Tokens::open(&[(&path, 1.0)], TokenOptions::new(DType::U16, 11)).unwrap()), 1);
    let error = Tokens::open(&[(&path, 1.0)], TokenOptions::new(DType::U16, 12)).unwrap_err();
    assert!(error.to_string().contains("choose a shorter window"), "{error}");
}

#[test]
fn windows_keep_to_documents_when_asked_to() {
    let dir = tempdir().unwrap();
    // Documents of 5, 1, 3 and 4 tokens. Token 9 ends a document.
    let stream: Vec<u8> =
        [1, 2, 3, 4, 9, 9, 5, 6, 9, 7, 8, 1, 2u16].iter().flat_map(|t| t.to_le_bytes()).collect();
    let path = write(dir.path(), "tokens", &stream);
    let options = TokenOptions { separator: Some(9), ..TokenOptions::new(DType::U16, 2) };
    let tokens = Tokens::open(&[(&path, 1.0)], options).unwrap();
    let expected = [[[1, 2], [2, 3]], [[3, 4], [4, 9]], [[5, 6], [6, 9]], [[7, 8], [8, 1]]]
        .map(|pair| pair.map(Vec::from));
    assert_eq!(windows(&tokens), expected);
    assert!(tokens.storage().column(0).is_none());
    // The separator alone, and the last token.
    assert_eq!(tokens.left_out(), LeftOut { documents: 0, tokens: 2, of: 13 });
}

#[test]
fn weights_say_how_often_a_window_is_in_an_epoch() {
    let dir = tempdir().unwrap();
    let stream = |first: u16| (first..first + 5).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let files = [(write(dir.path(), "a", &stream(0)), 0.5), (write(dir.path(), "b", &stream(100)), 1.5)];
    let tokens = Tokens::open(&files, TokenOptions::new(DType::U16, 1)).unwrap();
    let firsts: Vec<_> = windows(&tokens).iter().map(|[tokens, _]| tokens[0]).collect();
    assert_eq!(firsts, [0, 2, 100, 100, 101, 102, 102, 103]);
    assert_eq!(Dataset::path(&tokens, 2), Some(files[1].0.as_path()));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Tokens::open(&[(&files[0].0, weight)], TokenOptions::new(DType::U16, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    let odd = write(dir.path(), "odd", &[0; 5]);
    let error = Tokens::open(&[(odd, 1.0)], TokenOptions::new(DType::U32, 1)).unwrap_err();
    assert!(error.to_string().contains("not a whole number of u32") && error.offset() == Some(4), "{error}");
}

#[test]
fn short_documents_are_refused_or_left_out_and_counted() {
    let dir = tempdir().unwrap();
    // Documents of 3, 7, 2 and 1 tokens, not counting their end tokens.
    let stream: Vec<u8> =
        [1, 2, 3, 9, 1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 9, 1u16].iter().flat_map(|t| t.to_le_bytes()).collect();
    let path = write(dir.path(), "tokens", &stream);
    let options = |window, stride| TokenOptions {
        separator: Some(9),
        skip_short: true,
        stride,
        ..TokenOptions::new(DType::U16, window)
    };
    let files = [(&path, 1.0)];
    for (window, stride, len, documents, tokens) in [
        // 1 2 3 4 5 and 5 6 7 9 as their targets; the last document has one token.
        (3, 3, 3, 1 + 1, 3 + 1 + 1),
        (4, 4, 1, 3, 4 + 3 + 3 + 1),
        (4, 1, 4, 3, 4 + 3 + 1),
        (1, 4, 4, 1, 2 + 4 + 1 + 1),
    ] {
        let refused = TokenOptions { skip_short: false, ..options(window, stride) };
        match Tokens::open(&files, refused) {
            Ok(_) => assert_eq!(documents, 0),
            Err(error) => {
                let said = format!("{documents} documents are shorter");
                assert!(error.message().contains(&said) && error.path() == Some(&path), "{error}");
                assert!(error.message().contains(&format!("{tokens} of 16 tokens")), "{error}");
            }
        }
        let left = Tokens::open(&[(&path, 2.5)], options(window, stride)).unwrap();
        assert_eq!(left.left_out(), LeftOut { documents, tokens, of: 16 }, "{window}, {stride}");
        let one = Tokens::open(&files, options(window, stride)).unwrap();
        assert_eq!(Dataset::len(&one), len);
    }
    let ends = Tokens::open(&[(&path, 1.0), (&path, 1.0)], TokenOptions::new(DType::U16, 4)).unwrap();
    assert_eq!(ends.left_out().to_string(), "6 of 32 tokens are in no window, 0 documents have none");
}

#[test]
fn files_with_a_known_header_are_no_tokens_and_no_records() {
    let dir = tempdir().unwrap();
    let ids: Vec<u8> = (0..1000u16).flat_map(u16::to_le_bytes).collect();
    let safetensors = safetensors(r#"{"x":{"dtype":"U16","shape":[1000],"data_offsets":[0,2000]}}"#, &ids);
    let llm_c = [&[20240520u32, 1, 1000].map(u32::to_le_bytes).concat()[..], &[0; 1012], &ids].concat();
    let zip = zip(&[("x.npy", &npy("<u2", false, "(1000,)", &ids))], None);
    let both: &[(&str, Vec<u8>, &str)] = &[
        ("npy", npy("<u2", false, "(1000,)", &ids), "a .npy file"),
        ("npz", zip, "zip archive"),
        ("idx", [&[0, 0, 8, 2, 0, 0, 3, 232, 0, 0, 0, 2][..], &ids].concat(), "IDX"),
        ("megatron", [b"MMIDIDX\0\0", &ids[..]].concat(), "the .bin beside it"),
        ("safetensors", safetensors, "safetensors"),
        ("parquet", [b"PAR1", &ids[..], b"PAR1"].concat(), "Parquet"),
        ("arrow", [b"ARROW1\0\0", &ids[..]].concat(), "Arrow"),
        ("hdf5", [b"\x89HDF\r\n\x1A\n", &ids[..]].concat(), "HDF5"),
        ("zstd", [b"\x28\xB5\x2F\xFD", &ids[..]].concat(), "decompress"),
        ("gzip", gz(&ids), "gunzip"),
    ];
    let tokens_only: &[(&str, Vec<u8>, &str)] = &[
        ("tar", tar(&[("a.bin", &ids)]), "tar"),
        ("llm.c", llm_c, "TokenOptions::stated"),
        ("pickle", [b"\x80\x04\x95", &ids[..], b"."].concat(), "pickle"),
        ("text", "The quick brown fox jumps over the lazy dog. ".repeat(10).into_bytes(), "tokenize it"),
        ("jsonl", "{\"text\": \"größer\"}\n".repeat(10).into_bytes(), "tokenize it"),
    ];
    for (name, bytes, advice) in both.iter().chain(tokens_only) {
        let path = write(dir.path(), name, bytes);
        for limit in [u64::MAX, 0] {
            let options = TokenOptions { memory_limit: limit, ..TokenOptions::new(DType::U16, 8) };
            let error = Tokens::open(&[(&path, 1.0)], options).unwrap_err();
            assert!(error.message().contains(advice) && error.path() == Some(&path), "{name}: {error}");
        }
    }
    let spec = || Spec::new().field("x", DType::U8, []).unwrap();
    for (name, _, advice) in both {
        let error = Records::open(dir.path().join(name), spec()).unwrap_err();
        assert!(error.message().contains(advice), "{name}: {error}");
    }
    for (name, ..) in tokens_only {
        assert!(Records::open(dir.path().join(name), spec()).is_ok(), "{name} may be records");
    }
    // Ids whose first bytes look like a header, but do not make a valid one.
    for first in [&[0x8B1F, 7][..], &[0, 0x0108, 5], &[5, 0, 0, 0, 123], &[0xFFFF; 4], &[0x0280, 1]] {
        let like: Vec<u8> = first.iter().copied().chain(0..300u16).flat_map(u16::to_le_bytes).collect();
        let path = write(dir.path(), "like", &like);
        let tokens = Tokens::open(&[(path, 1.0)], TokenOptions::new(DType::U16, 2)).unwrap();
        assert_eq!(windows(&tokens)[0][0][0], first[0]);
    }
}
