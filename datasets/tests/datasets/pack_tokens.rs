//! Written pairs of `.bin` and `.idx` equal Megatron's.

use std::fs;

use feedline_core::{DType, Dataset, Values};
use feedline_datasets::{TokenDocuments, TokenPackOptions, Tokenized, open, pack_tokens};
use tempfile::tempdir;

use crate::training::golden;

#[test]
fn pairs_of_megatron_are_written_again_byte_for_byte() {
    let Some(folder) = golden("megatron") else { return };
    let dir = tempdir().unwrap();
    for (name, dtype) in
        [("plain-uint16", DType::U16), ("empty-int32", DType::I32), ("modes-int32", DType::I32)]
    {
        let source = TokenDocuments::open(folder.join(name).with_extension("bin")).unwrap();
        let to = dir.path().join(name).with_extension("bin");
        pack_tokens(&source, &to, &TokenPackOptions::new(dtype), |_| {}).unwrap();
        for extension in ["bin", "idx"] {
            let bytes = |path: &std::path::Path| fs::read(path.with_extension(extension)).unwrap();
            assert_eq!(bytes(&to), bytes(&folder.join(name).with_extension("x")), "{name}.{extension}");
        }
    }
}

#[test]
fn texts_are_tokenized_and_read_back_equal() {
    let dir = tempdir().unwrap();
    let (text, tokenizer) = (dir.path().join("corpus.txt"), dir.path().join("tokenizer.json"));
    let lines: String = (0..400).map(|line| format!("{}is\n", "a rose ".repeat(line % 5))).collect();
    fs::write(&text, lines).unwrap();
    let vocabulary = r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
        {"?": 0, "a": 1, "rose": 2, "is": 3, "</s>": 4}}, "pre_tokenizer": {"type": "Whitespace"}}"#;
    fs::write(&tokenizer, vocabulary).unwrap();
    let ids = Tokenized::new(open(&text).unwrap(), "text", &tokenizer).unwrap();
    assert_eq!((ids.vocabulary(), ids.token_id("</s>"), ids.token_id("x")), (5, Some(4), None));
    let to = dir.path().join("corpus.bin");
    let options =
        TokenPackOptions { end: ids.token_id("</s>"), threads: 3, ..TokenPackOptions::new(DType::U16) };
    let packed = pack_tokens(&ids, &to, &options, |_| {}).unwrap();
    let documents = TokenDocuments::open(&to).unwrap();
    assert_eq!((documents.len(), packed.documents), (400, 400));
    let (mut values, mut expected) = (Values::new(), Values::new());
    for sample in 0..400 {
        values.read(&documents, sample).unwrap();
        expected.read(&ids, sample).unwrap();
        let expected = [&expected.fields()[0].bytes[..], &4_i64.to_le_bytes()].concat();
        assert_eq!(values.fields()[0].bytes, expected, "document {sample}");
    }
}
