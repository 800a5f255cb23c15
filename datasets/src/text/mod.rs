//! Texts as token ids: tokenizers, chats with their templates, files of ids.

#[cfg(feature = "tokenizers")]
pub(crate) mod chats;
pub(crate) mod token_files;
#[cfg(feature = "tokenizers")]
pub(crate) mod tokenized;
pub(crate) mod tokens;
