//! Errors about the content of a file, and about samples that do not exist.

use std::collections::HashSet;
use std::path::Path;
use std::{fmt, io};

use feedline_core::{Dataset, Error, ErrorKind, Result, Spec};

/// An error about invalid content of a file.
pub(crate) fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}

/// `text` on one line. Text from a file may have line breaks.
pub(crate) fn one_line(text: impl fmt::Display) -> String {
    let text = text.to_string();
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Returns an error if there is no sample `sample`.
pub(crate) fn inside(sample: u64, len: u64, path: &Path) -> Result<()> {
    if sample < len { Ok(()) } else { Err(outside(sample, len, path)) }
}

/// The error for a sample that does not exist.
pub(crate) fn outside(sample: u64, len: u64, path: &Path) -> Error {
    Error::new(ErrorKind::Sample, format!("no sample {sample}: there are {len}")).at_path(path)
}

/// Refuses two fields of one name: one would hide the other.
pub(crate) fn check_names(spec: &Spec) -> Result<()> {
    let mut names = HashSet::new();
    match spec.fields().iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let name = one_line(field.name());
            Err(data(format!("there are two columns or arrays \"{name}\": rename one of them")))
        }
    }
}

/// Refuses a set without samples.
pub(crate) fn check_not_empty(set: &dyn Dataset) -> Result<()> {
    if set.len() == 0 {
        let error = Error::new(ErrorKind::Data, "there are no samples: give a file that has some");
        return Err(at_file(set, 0, error));
    }
    Ok(())
}

/// Adds the file of sample `id` to `error`, unless it names a file.
pub(crate) fn at_file(set: &dyn Dataset, id: u64, error: Error) -> Error {
    match set.path(id) {
        Some(path) if error.path().is_none() => error.at_path(path),
        _ => error,
    }
}

/// The error of a parser that reads bytes as a stream. `damaged` makes the error for bytes that were read.
///
/// An error of this crate passes through: a server that does not answer is no damaged file. An error of the
/// operating system passes through too.
pub(crate) fn of_stream(error: io::Error, damaged: impl FnOnce(io::Error) -> Error) -> Error {
    if let Some(own) = Error::within(&error) {
        return own.clone();
    }
    if error.raw_os_error().is_some() {
        return data("cannot read the file").with_source(error);
    }
    damaged(error)
}

/// A request that was not answered in all of its attempts. It is the cause of an error of a store.
#[derive(Debug)]
pub(crate) struct Unanswered(pub(crate) String);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unanswered {}

/// Whether the store or the disk has failed. Such an error is not about the data, and another attempt may
/// succeed.
pub(crate) fn may_pass(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let system = error.downcast_ref::<io::Error>().filter(|error| error.raw_os_error().is_some());
        let is_system = system.is_some_and(|error| {
            use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
            !matches!(error.kind(), NotFound | PermissionDenied | NotADirectory | IsADirectory)
        });
        if is_system || error.is::<Unanswered>() {
            return true;
        }
        cause = match error.downcast_ref::<Error>() {
            // The message already shows the cause. So the next source is the source of the cause.
            Some(own) => own.get_ref(),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_failure_of_the_disk_or_a_store_may_pass_and_bad_data_may_not() {
        let system = |number| data("cannot read the file").with_source(io::Error::from_raw_os_error(number));
        // 5 is an I/O error and 116 a stale handle. 2 is a missing file and 13 a missing permission.
        assert_eq!([5, 116, 2, 13].map(|number| may_pass(&system(number))), [true, true, false, false]);
        let store = data("cannot read after 3 attempts").with_source(Unanswered("a time-out".into()));
        assert!(may_pass(&store) && may_pass(&data("row 3").with_source(store)));
        assert!(!may_pass(&data("a cell is empty")));
    }

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
