//! Errors about the content of a file.

use std::fmt;

use feedline_core::{Error, ErrorKind};

/// The error of a file whose content is not as it should be.
pub(crate) fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}

/// What `text` says, on one line: what a file holds may have line breaks.
pub(crate) fn one_line(text: impl fmt::Display) -> String {
    let text = text.to_string();
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
