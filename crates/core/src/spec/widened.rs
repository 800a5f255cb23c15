//! Merges the limits of two specs with the same fields.

use super::{Field, Spec};
use crate::ragged::Form;

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Spec {
    /// This spec, with the limits of each ragged field raised to those of `other` if they are larger.
    ///
    /// # Errors
    /// If the specs differ in anything but limits: the difference, worded as the end of a sentence.
    pub fn widened(self, other: &Self) -> Result<Self, String> {
        let names = |spec: &Self| -> Vec<String> {
            spec.fields.iter().map(|field| format!("\"{}\"", field.name)).collect()
        };
        let (want, have) = (names(&self), names(other));
        let only_in = |some: &[String], others: &[String]| {
            some.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>().join(", ")
        };
        let (missing, added) = (only_in(&want, &have), only_in(&have, &want));
        match (missing.is_empty(), added.is_empty()) {
            (true, true) if want != have => {
                Err(format!("its fields are in the order {} instead of {}", have.join(", "), want.join(", ")))
            }
            (true, true) => {
                let fields = self.fields.into_iter().zip(&other.fields);
                Ok(Self { fields: fields.map(|(want, have)| want.widened(have)).collect::<Result<_, _>>()? })
            }
            (false, true) => Err(format!("it has no field {missing}")),
            (true, false) => Err(format!("it also has a field {added}")),
            (false, false) => Err(format!("it has a field {added} instead of {missing}")),
        }
    }
}

impl Field {
    /// As [`Spec::widened`], for a field of the same name.
    fn widened(mut self, other: &Self) -> Result<Self, String> {
        let name = &self.name;
        if (self.row_bytes == 0 || other.row_bytes == 0) && self != *other {
            return Err(format!("it has {other} instead of {self}"));
        }
        if self.dtype != other.dtype {
            return Err(format!("its field \"{name}\" has dtype {} instead of {}", other.dtype, self.dtype));
        }
        let of_item = if self.ragged.is_some() { " per item" } else { "" };
        if self.shape != other.shape {
            let (have, want) = (&other.shape, &self.shape);
            return Err(format!("its field \"{name}\" has shape {have:?}{of_item} instead of {want:?}"));
        }
        match (&mut self.ragged, &other.ragged) {
            (None, None) => {}
            (Some(_), None) => return Err(format!("its field \"{name}\" does not vary in length")),
            (None, Some(_)) => return Err(format!("its field \"{name}\" varies in length")),
            (Some(want), Some(have)) if want.form != have.form => {
                let (have, want) = (form(have.form), form(want.form));
                return Err(format!("its field \"{name}\" has {have} instead of {want}"));
            }
            (Some(want), Some(have)) => {
                // `None` is no limit per batch, so it wins over any limit.
                want.per_batch = want.per_batch.zip(have.per_batch).map(|(want, have)| want.max(have));
                want.per_sample = want.per_sample.max(have.per_sample);
            }
        }
        self.row_bytes = self.row_bytes.max(other.row_bytes);
        Ok(self)
    }
}

/// A form in a word or two.
fn form(form: Form) -> &'static str {
    match form {
        Form::Rows => "rows",
        Form::Padded(pad) if pad.is_left() => "rows padded on the left",
        Form::Padded(_) => "padded rows",
        Form::Cumulative => "running sums",
    }
}
