//! Specs as a loader changes them, and sizes of ragged fields.

use crate::{Field, Pad, RaggedField, Result, Spec};

/// The stated limit per batch, if any.
pub fn stated_per_batch(ragged: &RaggedField) -> Option<usize> {
    ragged.stated_per_batch()
}

/// Bytes of one item of a ragged field; of another field, bytes per sample.
pub fn item_bytes(field: &Field) -> usize {
    field.item_bytes()
}

/// Sets the maximum number of items of the ragged field `name` per batch.
///
/// # Errors
/// `Config` for a field that does not exist or is not ragged, and for a maximum below that of one sample.
pub fn max_per_batch(spec: Spec, name: &str, items: usize) -> Result<Spec> {
    spec.max_per_batch(name, items)
}

/// Pads the rows of the ragged field `name` to one width per batch.
///
/// # Errors
/// `Config` for a field that does not exist, is not ragged or is cumulative, and for padding of another
/// type than the field.
pub fn padded(spec: Spec, name: &str, pad: Pad) -> Result<Spec> {
    spec.padded(name, pad)
}

/// Whether a field is ragged.
pub fn is_ragged(spec: &Spec) -> bool {
    spec.is_ragged()
}

/// This spec, with the limits of each ragged field raised to those of `other` if they are larger.
///
/// # Errors
/// If the specs differ in anything but limits: the difference, worded as the end of a sentence.
pub fn widened(spec: Spec, other: &Spec) -> Result<Spec, String> {
    spec.widened(other)
}
