//! Samples that are longer than their slots have room for. The loader makes room, and reads them again.

use std::fmt;

use feedline::dataset::Field;
use feedline::{Error, ErrorKind};

/// The cause of the error of such a sample: the field, and the number of its items.
#[derive(Debug)]
pub(crate) struct Longer {
    pub(crate) field: String,
    pub(crate) items: usize,
}

impl Longer {
    /// Refuses a sample with `items` items of `field` if there is no room for them.
    pub(crate) fn check(field: &Field, items: usize) -> feedline::Result<()> {
        let room = field.as_ragged().map_or(0, |ragged| ragged.max_per_sample());
        if items <= room { Ok(()) } else { Err(Self::error(field, items)) }
    }

    /// The error of a sample that has `items` items of `field`. It is never substituted, since the sample is
    /// good.
    pub(crate) fn error(field: &Field, items: usize) -> Error {
        let room = field.as_ragged().map_or(0, |ragged| ragged.max_per_sample());
        let why = format!("a sample is longer than the {room} items that slots have room for");
        Error::new(ErrorKind::Budget, why).with_source(Self { field: field.name().to_owned(), items })
    }

    /// This cause of `error`, if it is one.
    pub(crate) fn within(error: &Error) -> Option<&Self> {
        let cause = error.get_ref()?;
        cause.downcast_ref().or_else(|| Self::within(cause.downcast_ref::<Error>()?))
    }
}

impl fmt::Display for Longer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field \"{}\" has {} items", self.field, self.items)
    }
}

impl std::error::Error for Longer {}
