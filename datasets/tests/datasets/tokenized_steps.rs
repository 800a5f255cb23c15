//! The steps of a tokenizer: those that search by a regular expression, and all others.

use feedline_core::{ErrorKind, Values};
use feedline_datasets::{Tokenized, open};
use serde_json::{Value as Json, json};
use tempfile::tempdir;

use crate::made::write;
use crate::tokenized::{WORDS, ids};

/// A text of blanks that ends in words. The engine of regular expressions gives up on the run of blanks.
fn blanks(many: usize) -> String {
    format!("the{}the quick fox. the quick fox.", " ".repeat(many))
}

#[test]
fn a_text_on_which_a_regular_expression_gives_up_is_a_bad_sample() {
    let dir = tempdir().unwrap();
    let vocab = r#"{"?": 0, "the": 1, "quick": 2, "fox": 3, ".": 4}"#;
    let model = format!(r#""model": {{"type": "WordLevel", "unk_token": "?", "vocab": {vocab}}}"#);
    let split = r#"{"type": "Split", "pattern": {"Regex": "\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+"},
        "behavior": "Isolated", "invert": false}"#;
    let inverted = split.replace("\"invert\": false", "\"invert\": true");
    let bytes = r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#;
    let digits = r#"{"type": "Digits", "individual_digits": true}"#;
    let sequence = format!(r#"{{"type": "Sequence", "pretokenizers": [{digits}, {split}]}}"#);
    let nested = format!(
        r#"{{"type": "Sequence", "pretokenizers": [{{"type": "Sequence", "pretokenizers": [{bytes}]}}]}}"#
    );
    let replace = r#"{"type": "Replace", "pattern": {"Regex": "\\s+(?!\\S)"}, "content": " "}"#;
    let lower = r#"{"type": "Lowercase"}"#;
    let replaces = format!(r#"{{"type": "Sequence", "normalizers": [{lower}, {replace}]}}"#);
    let backs = split.replace(r"\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+", r"(?:\\s*\\w+)*(?=!)|\\w+|\\s+");
    assert_ne!(backs, split);
    let long = blanks(1_000_100);
    let words = "the ".repeat(400);
    for (name, part, text) in [
        ("Split", format!(r#""pre_tokenizer": {split}"#), &long),
        ("inverted", format!(r#""pre_tokenizer": {inverted}"#), &long),
        ("ByteLevel", format!(r#""pre_tokenizer": {bytes}"#), &long),
        ("Sequence", format!(r#""pre_tokenizer": {sequence}"#), &long),
        ("nested", format!(r#""pre_tokenizer": {nested}"#), &long),
        ("Replace", format!(r#""normalizer": {replace}"#), &long),
        ("replaces", format!(r#""normalizer": {replaces}"#), &long),
        ("a text of 400 words", format!(r#""pre_tokenizer": {backs}"#), &words),
    ] {
        let json = write(dir.path(), "t.json", format!("{{{part}, {model}}}").as_bytes());
        let lines = write(dir.path(), "a.txt", format!("the fox\n{text}\nthe fox\n").as_bytes());
        let reader = Tokenized::new(open(&lines).unwrap(), "text", &json).unwrap();
        let good = [ids(&reader, 0), ids(&reader, 2)];
        assert!(good[0] == good[1] && !good[0].is_empty(), "{name}");
        let error = Values::new().read(&reader, 1).unwrap_err();
        let said = error.to_string();
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(1)), "{name}: {said}");
        for word in ["gives up", "\"text\"", "a.txt", "t.json"] {
            assert!(said.contains(word) && !said.contains('\n'), "{name}: {said}");
        }
        // The next text on this thread is read without an error.
        assert_eq!(ids(&reader, 2), good[0], "{name}");
    }
}

#[test]
fn the_ids_are_those_of_the_crate_whatever_the_steps() {
    let dir = tempdir().unwrap();
    let texts = [
        "The quick  brown fox's   jump, isn't 123 it?\t\tNo  ",
        " leading, tr\u{e4}iling \u{1F600}\u{96EA}\u{2028}x \u{a0}",
        "",
        "   ",
        "a<s>b <pad>c  d",
        "we'll they're I'M 1a2b \r\n end",
    ];
    let alphabet: Vec<String> = ('\u{21}'..='\u{7E}').chain('\u{A1}'..='\u{143}').map(String::from).collect();
    let vocab: serde_json::Map<String, Json> = ["?", "<s>", "<pad>"]
        .map(String::from)
        .into_iter()
        .chain(alphabet)
        .zip(0..)
        .map(|(t, id)| (t, id.into()))
        .collect();
    let added: Vec<_> = [("<s>", false), ("<pad>", true)]
        .iter()
        .enumerate()
        .map(|(id, (content, normalized))| {
            json!({"id": id + 1, "content": content, "single_word": false, "lstrip": false,
                "rstrip": true, "normalized": normalized, "special": true})
        })
        .collect();
    let split = |regex: &str, behavior: &str, invert: bool| {
        let pattern = json!({"Regex": regex});
        json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert})
    };
    let literal = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext",
        "invert": false});
    let bytes = |space: bool, regex: bool| {
        let name = "ByteLevel";
        json!({"type": name, "add_prefix_space": space, "trim_offsets": true, "use_regex": regex})
    };
    let sequence = |steps: &[&Json]| json!({"type": "Sequence", "pretokenizers": steps});
    let words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*";
    let spaces = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    let llama = split(&format!("{words}|{spaces}"), "Isolated", false);
    let steps = [
        Json::Null,
        bytes(true, true),
        bytes(false, true),
        bytes(true, false),
        sequence(&[&llama, &bytes(false, false)]),
        sequence(&[&literal, &bytes(true, true)]),
        sequence(&[&split(r"\s+(?!\S)", "Removed", false), &split(r"\w+|\S", "Isolated", true)]),
        split(r"\w+(?=\s)", "MergedWithPrevious", false),
        split(r"\w+(?=\s)", "Contiguous", true),
        split(r"", "Isolated", false),
    ];
    let replace = |pattern: Json| json!({"type": "Replace", "pattern": pattern, "content": "__"});
    let normalizers = [
        Json::Null,
        replace(json!({"Regex": r"\s+(?!\S)"})),
        replace(json!({"String": "o"})),
        json!({"type": "Sequence",
            "normalizers": [{"type": "Lowercase"}, replace(json!({"Regex": "(?<=a)b"}))]}),
    ];
    let lines = write(
        dir.path(),
        "a.jsonl",
        &texts.map(|text| json!({"text": text}).to_string() + "\n").concat().into_bytes(),
    );
    for step in &steps {
        for normalizer in &normalizers {
            let json = json!({"added_tokens": added, "normalizer": normalizer, "pre_tokenizer": step,
                "model": {"type": "BPE", "unk_token": "?", "fuse_unk": false, "byte_fallback": false,
                    "vocab": vocab, "merges": []}})
            .to_string();
            let crates = tokenizers::Tokenizer::from_bytes(json.as_bytes()).unwrap();
            let path = write(dir.path(), "t.json", json.as_bytes());
            let own = Tokenized::new(open(&lines).unwrap(), "text", path).unwrap();
            for (sample, text) in (0..).zip(texts) {
                let expected = crates.encode_fast(text, false).unwrap();
                let expected: Vec<_> = expected.get_ids().iter().map(|id| i64::from(*id)).collect();
                assert_eq!(ids(&own, sample), expected, "{text:?} by {step} and {normalizer}");
            }
        }
    }
}

#[test]
fn a_tokenizer_that_the_crate_refuses_by_a_panic_is_an_error() {
    let dir = tempdir().unwrap();
    let text = write(dir.path(), "a.txt", b"a\n");
    for charsmap in ["", "AAAA", "!"] {
        let json = WORDS.replace(
            "\"pre_tokenizer\"",
            &format!(
                "\"normalizer\": {{\"type\": \"Precompiled\", \"precompiled_charsmap\": \
                      \"{charsmap}\"}}, \"pre_tokenizer\""
            ),
        );
        let json = write(dir.path(), "bad.json", json.as_bytes());
        let error = Tokenized::new(open(&text).unwrap(), "text", &json).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(json.as_path())), "{error}");
    }
}
