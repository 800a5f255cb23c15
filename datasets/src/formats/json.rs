//! The entries of a JSON object, in order, including repeated keys.

use std::fmt;

use feedline_core::{Error, Result};
use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{data, one_line};

/// Calls `to` with each key of the object in `text` and the JSON of its value, until `to` fails.
///
/// # Errors
/// The error of `to`, and `Data` for a text that is not one JSON object.
pub(crate) fn entries(text: &[u8], mut to: impl FnMut(&str, &str) -> Result<()>) -> Result<()> {
    let mut refused = None;
    let each = |key: &str, json: &str| to(key, json).map_err(|error| refused = Some(error)).is_ok();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = deserializer.deserialize_map(Entries(each)).and_then(|()| deserializer.end());
    let damaged = |error: serde_json::Error| -> Error {
        data("the text is not a JSON object: repair it").with_source(one_line(error))
    };
    refused.map_or_else(|| read.map_err(damaged), Err)
}

/// Passes on the entries of an object until the closure returns false.
struct Entries<F>(F);

impl<'de, F: FnMut(&str, &str) -> bool> Visitor<'de> for Entries<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some((key, json)) = map.next_entry::<String, &RawValue>()? {
            if !(self.0)(&key, json.get()) {
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}
