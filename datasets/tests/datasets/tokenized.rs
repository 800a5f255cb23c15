//! Texts of any reader as token ids. The tokenizers are small enough to know the ids by heart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{CheckOptions, Dataset, ErrorKind, Packed, Values, check_dataset};
use feedline_datasets::{Bounded, Tokenized, open};
use tempfile::{TempDir, tempdir};

use crate::made::{read, tar, write};

/// Words; `[CLS]` is 1 and `[SEP]` is 2. It truncates to two tokens and pads to nine.
pub(crate) const WORDS: &str = r#"{
    "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "?"},
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                           "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}},
    "model": {"type": "WordLevel", "unk_token": "?",
              "vocab": {"?": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "rose": 4, "is": 5, "雪": 6}}
}"#;

fn words() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "tokenizer.json", WORDS.as_bytes());
    (dir, path)
}

/// The ids of sample `sample`, read and visited.
pub(crate) fn ids(reader: &dyn Dataset, sample: u64) -> Vec<i64> {
    let numbers = |bytes: &[u8]| -> Vec<i64> {
        bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
    };
    let field = reader.spec().fields().iter().position(|field| field.name() == "ids").unwrap();
    let mut values = Values::new();
    values.read(reader, sample).unwrap();
    let value = &values.fields()[field];
    let read = numbers(&value.bytes);
    assert_eq!(value.shape, [read.len()]);
    read
}

fn all(reader: &dyn Dataset) -> Vec<Vec<i64>> {
    (0..reader.len()).map(|sample| ids(reader, sample)).collect()
}

#[test]
fn the_text_of_any_reader_becomes_ids_and_other_fields_stay() {
    let (dir, words) = words();
    let expected = [vec![3, 4, 5], vec![], vec![6, 0, 4]];
    let texts = ["a rose is", "", "雪 daisy rose"];

    let lines = write(dir.path(), "a.txt", (texts.join("\n") + "\n").as_bytes());
    let lines = Tokenized::new(open(lines).unwrap(), "text", &words).unwrap();
    assert_eq!((lines.spec().to_string().as_str(), all(&lines)), ("ids i64 [?]", expected.to_vec()));

    let members = texts.map(|text| text.as_bytes());
    let tar = tar(&[
        ("0.cls", b"7"),
        ("0.txt", members[0]),
        ("1.cls", b"8"),
        ("1.txt", members[1]),
        ("2.cls", b"9"),
        ("2.txt", members[2]),
    ]);
    let tar = Tokenized::new(open(write(dir.path(), "a.tar", &tar)).unwrap(), "txt", &words).unwrap();
    assert_eq!(
        (tar.spec().to_string().as_str(), all(&tar)),
        ("cls bytes [?], ids i64 [?]", expected.to_vec())
    );
    assert_eq!(read(&tar, 1)[0], b"8");

    let rows = texts.iter().zip(0..).map(|(text, id)| format!("{{\"id\": {id}, \"body\": \"{text}\"}}\n"));
    let json = write(dir.path(), "a.jsonl", rows.collect::<String>().as_bytes());
    let json = Tokenized::new(open(json).unwrap(), "body", &words).unwrap();
    assert_eq!((json.spec().to_string().as_str(), all(&json)), ("id i64 [], ids i64 [?]", expected.to_vec()));
    assert_eq!(read(&json, 2)[0], 2i64.to_le_bytes());

    // Tokenized once, and read as ids from then on.
    #[cfg(feature = "arrow")]
    {
        use feedline_datasets::{PackOptions, pack};
        let to = dir.path().join("ids.arrow");
        pack(&json, &to, PackOptions::default(), |_| {}).unwrap();
        assert_eq!(all(&*open(&to).unwrap()), expected);
    }

    let documents = Bounded::measured(Arc::new(json)).unwrap();
    assert_eq!(documents.lengths("ids").unwrap(), [3, 0, 3]);
    let report = check_dataset(&documents, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let windows = Packed::in_order(documents, "ids", &[3, 0, 3], 4).unwrap();
    assert_eq!((windows.len(), windows.padding_share()), (2, 0.25));
}

#[test]
fn special_tokens_and_truncation_are_on_request() {
    let (dir, words) = words();
    let text = write(dir.path(), "a.txt", b"a rose is a rose\n");
    let new = || Tokenized::new(open(&text).unwrap(), "text", &words).unwrap();
    assert_eq!(ids(&new(), 0), [3, 4, 5, 3, 4], "the file's truncation and padding are not for training");
    assert_eq!(ids(&new().truncated(2).unwrap(), 0), [3, 4]);
    assert_eq!(ids(&new().with_special_tokens(), 0), [1, 3, 4, 5, 3, 4, 2]);
    for cut in
        [new().with_special_tokens().truncated(4), new().truncated(4).map(Tokenized::with_special_tokens)]
    {
        assert_eq!(ids(&cut.unwrap(), 0), [1, 3, 4, 2]);
    }
    let error = new().truncated(0).unwrap_err();
    assert_eq!((error.kind(), error.message().contains("0 tokens")), (ErrorKind::Config, true));
}

#[test]
fn fewer_tokens_than_the_special_ones_are_refused() {
    let (dir, words) = words();
    let text = write(dir.path(), "a.txt", b"a rose is a rose\n\n");
    let new = || Tokenized::new(open(&text).unwrap(), "text", &words).unwrap();
    let refused = |error: feedline_core::Error| {
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(said.contains("adds 2 special tokens") && said.contains("cut to 1"), "{said}");
        assert!(said.contains("tokenizer.json"), "{said}");
    };
    refused(new().with_special_tokens().truncated(1).unwrap_err());
    // In the other order of the steps, each read is refused.
    let late = new().truncated(1).unwrap().with_special_tokens();
    refused(Values::new().read(&late, 0).unwrap_err());
    refused(Bounded::measured(Arc::new(late)).unwrap_err());
    // A limit equal to the number of special tokens leaves nothing of the text; without special tokens, a
    // limit of one keeps one token.
    assert_eq!(all(&new().with_special_tokens().truncated(2).unwrap()), [[1, 2], [1, 2]]);
    assert_eq!(all(&new().truncated(1).unwrap()), [vec![3], vec![]]);
}

#[test]
fn a_fingerprint_covers_the_tokenizer_and_its_options() {
    let (dir, words) = words();
    let text = write(dir.path(), "a.txt", b"a rose\n");
    let new = |path: &Path| Tokenized::new(open(&text).unwrap(), "text", path).unwrap();
    let first = new(&words).fingerprint();
    assert_eq!(new(&words).fingerprint(), first);
    // A copy elsewhere is the same tokenizer; one with another vocabulary is not.
    assert_eq!(new(&write(dir.path(), "copy.json", WORDS.as_bytes())).fingerprint(), first);
    let other = write(dir.path(), "other.json", WORDS.replace("rose", "nose").as_bytes());
    let others = [
        new(&other).fingerprint(),
        new(&words).with_special_tokens().fingerprint(),
        new(&words).truncated(3).unwrap().fingerprint(),
        new(&words).truncated(4).unwrap().fingerprint(),
    ];
    for (at, other) in others.iter().enumerate() {
        assert!(*other != first && !others[..at].contains(other), "{at}");
    }
    // The lengths of another tokenizer are counted anew.
    let measured = |path: &Path| Bounded::measured(Arc::new(new(path))).unwrap();
    assert_eq!(measured(&words).lengths("ids").unwrap(), [2]);
    let letters = write(
        dir.path(),
        "letters.json",
        WORDS.replace("\"Whitespace\"", "\"CharDelimiterSplit\", \"delimiter\": \"o\"").as_bytes(),
    );
    assert_eq!(measured(&letters).lengths("ids").unwrap(), [2]);
    let whole =
        write(dir.path(), "whole.json", WORDS.replace("{\"type\": \"Whitespace\"}", "null").as_bytes());
    assert_eq!(measured(&whole).lengths("ids").unwrap(), [1]);
}

#[test]
fn what_cannot_be_tokenized_is_named() {
    let (dir, words) = words();
    let text = write(dir.path(), "a.jsonl", b"{\"id\": 1, \"text\": \"a\"}\n");
    let refused = |field: &str, tokenizer: &Path| {
        Tokenized::new(open(&text).unwrap(), field, tokenizer).map(drop).unwrap_err()
    };
    for (error, kind, words) in [
        (refused("body", &words), ErrorKind::Config, ["\"body\"", "a.jsonl"]),
        (refused("id", &words), ErrorKind::Config, ["\"id\"", "a.jsonl"]),
        (refused("text", &dir.path().join("none.json")), ErrorKind::Data, ["cannot read", "none.json"]),
        (refused("text", &text), ErrorKind::Data, ["not a tokenizer.json", "a.jsonl"]),
    ] {
        let said = error.to_string();
        assert_eq!(error.kind(), kind, "{said}");
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains('\n'), "{said}");
    }
    let twice = write(dir.path(), "b.jsonl", b"{\"ids\": 1, \"text\": \"a\"}\n");
    let error = Tokenized::new(open(&twice).unwrap(), "text", &words).unwrap_err();
    assert!(error.to_string().contains("a field \"ids\" beside \"text\""), "{error}");

    let tar = write(dir.path(), "a.tar", &tar(&[("0.txt", b"a"), ("1.txt", b"ab\xFF")]));
    let reader = Tokenized::new(open(&tar).unwrap(), "txt", &words).unwrap();
    let error = Values::new().read(&reader, 1).unwrap_err();
    let said = error.to_string();
    assert_eq!((error.kind(), error.sample()), (ErrorKind::Data, Some(1)));
    assert!(said.contains("not UTF-8 from its byte 2 on") && said.contains("a.tar"), "{said}");
    // The pass that counts lengths ends with the same error.
    let error = Bounded::measured(Arc::new(reader)).unwrap_err();
    assert_eq!((error.kind(), error.sample()), (ErrorKind::Data, Some(1)));
}
