//! Errors about the content of a file.

use std::{fmt, io};

use feedline_core::{Error, ErrorKind};

/// An error about invalid content of a file.
pub(crate) fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}

/// `text` on one line: text from a file may have line breaks.
pub(crate) fn one_line(text: impl fmt::Display) -> String {
    let text = text.to_string();
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// The error of a parser that reads bytes as a stream: only bytes that were read can be `damaged`.
///
/// An error of this crate passes through, so that a server that does not answer is not a damaged file. So
/// does an error of the operating system.
pub(crate) fn of_stream(error: io::Error, damaged: impl FnOnce(io::Error) -> Error) -> Error {
    if let Some(own) = Error::within(&error) {
        return own.clone();
    }
    if error.raw_os_error().is_some() {
        return data("cannot read the file").with_source(error);
    }
    damaged(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_this_crate_passes_through_any_parser() {
        let damaged = |error: io::Error| data("damaged").with_source(error);
        let own = || data("cannot reach the server").at_path("http://h/x");
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, io::Error::other(own()));
        for error in [io::Error::other(own()), wrapped] {
            assert_eq!(of_stream(error, damaged).to_string(), own().to_string());
        }
        let system = of_stream(io::Error::from_raw_os_error(5), damaged);
        assert!(system.to_string().starts_with("cannot read the file: "), "{system}");
        let other = of_stream(io::ErrorKind::InvalidData.into(), damaged);
        assert_eq!(other.message(), "damaged");
    }
}
