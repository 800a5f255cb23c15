//! Readers that read another: tokenized texts, conversations, tables with steps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{DType, Dataset, Result};
use feedline_datasets::{
    ChatOptions, Chats, Learn, Missing, OpenOptions, Table, Tokenized, open, open_chats,
};

use crate::files::{DIGITS, lines, text};
use crate::made::write;

/// A template that learns what the assistant says.
pub(crate) const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}\
    {{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";

pub(crate) fn tokenizer(dir: &Path) -> PathBuf {
    write(dir, "tokenizer.json", DIGITS.as_bytes())
}

/// Conversations of numbers; some have no answer.
pub(crate) fn conversations(dir: &Path) -> PathBuf {
    let message = |role, text: &str| format!(r#"{{"role": "{role}", "content": "{text}"}}"#);
    let chat = |id: usize| {
        let messages = [message("user", &text(id)[..2]), message("assistant", &text(id))];
        format!(r#"{{"messages": [{}]}}"#, messages[..1 + usize::from(!id.is_multiple_of(4))].join(", "))
    };
    write(dir, "chats.jsonl", &lines(chat))
}

pub(crate) fn chat_options() -> ChatOptions {
    ChatOptions { template: Some(TEMPLATE.into()), ..Default::default() }
}

/// The steps of a table, over the columns of `a.csv`.
pub(crate) fn table(path: impl AsRef<Path>) -> Table {
    Table::open(path)
        .select(["x", "pair", "text", "on"])
        .stack("pair", ["id", "x"])
        .cast("x", DType::F64)
        .category("text")
        .missing("on", Missing::Mask)
        .standardize("pair")
}

/// As `table`, of numbers only.
pub(crate) fn numbers(path: impl AsRef<Path>) -> Table {
    Table::open(path).select(["x", "pair"]).stack("pair", ["id", "x"]).standardize("pair")
}

/// Readers of the files of `formats::readers`.
pub(crate) fn readers(dir: &Path) -> Vec<(String, Arc<dyn Dataset>)> {
    let mut all: Vec<(String, Arc<dyn Dataset>)> = Vec::new();
    let mut add = |name: &str, reader: Result<Arc<dyn Dataset>>| {
        let reader = reader.unwrap_or_else(|error| panic!("{name}: {error}"));
        all.push((name.to_owned(), reader));
    };
    let tokenizer = tokenizer(dir);
    let texts = || open(dir.join("a.txt"));
    let tokenized = || Tokenized::new(texts()?, "text", &tokenizer);
    add("tokenized", tokenized().map(|texts| Arc::new(texts) as _));
    add("tokenized, special tokens", tokenized().map(|texts| Arc::new(texts.with_special_tokens()) as _));
    add(
        "tokenized, truncated",
        tokenized().and_then(|texts| texts.truncated(7)).map(|texts| Arc::new(texts) as _),
    );
    let path = conversations(dir);
    let chats = |options| Chats::open(&path, &tokenizer, options).map(|chats| Arc::new(chats) as _);
    add("chats", chats(chat_options()));
    add("chats, all learnt", chats(ChatOptions { learn: Learn::All, ..chat_options() }));
    add("chats, cut", chats(ChatOptions { max_tokens: Some(4), ..chat_options() }));
    let pairs = lines(|id| format!(r#"{{"prompt": "1{id}:", "completion": "{}"}}"#, text(id)));
    let pairs = open_chats(write(dir, "pairs.jsonl", &pairs), &OpenOptions::default());
    let completions = pairs.and_then(|pairs| Chats::completions(pairs, &tokenizer, chat_options()));
    add("completions", completions.map(|chats| Arc::new(chats) as _));
    let pairs = lines(|id| format!(r#"{{"prompt": "1{id}:", "chosen": "{}", "rejected": "0:1"}}"#, text(id)));
    let pairs = open_chats(write(dir, "preferences.jsonl", &pairs), &OpenOptions::default());
    let preferences = pairs.and_then(|pairs| Chats::preferences(pairs, &tokenizer, chat_options()));
    add("preferences", preferences.map(|chats| Arc::new(chats) as _));
    add("table", table(dir.join("a.csv")).rows());
    add(
        "table of a packed set",
        Table::open(dir.join("packed.arrow")).cast("a", DType::I32).category("b").rows(),
    );
    all
}
