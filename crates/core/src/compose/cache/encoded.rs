//! The bytes of a cached row.

use crate::{Row, Spec};

/// Bytes of the length before each row of a ragged field.
const LENGTH: usize = size_of::<u64>();

/// Scratch memory of a worker: an encoded row.
#[derive(Default)]
pub(super) struct Encoded(pub(super) Vec<u8>);

impl Encoded {
    /// Bytes of the lengths in a row of `spec`.
    pub(super) fn lengths(spec: &Spec) -> u64 {
        let ragged = spec.fields().iter().filter(|field| field.as_ragged().is_some());
        (ragged.count() * LENGTH) as u64
    }

    /// Appends the fields of `row`, a ragged one with its length before it. Returns false if the row is not
    /// written.
    pub(super) fn add(&mut self, row: &mut Row<'_, '_>) -> bool {
        for field in 0..row.spec().fields().len() {
            if row.spec().fields()[field].as_ragged().is_none() {
                self.0.extend_from_slice(row.bytes_mut(field));
                continue;
            }
            let Ok(bytes) = row.written_bytes_mut(field) else { return false };
            self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.0.extend_from_slice(bytes);
        }
        true
    }
}

/// Writes the row that [`Encoded::add`] encoded as `bytes`. Returns false if they are not such a row, or the
/// batch has no room for it.
pub(super) fn decode(bytes: &[u8], row: &mut Row<'_, '_>) -> bool {
    let mut rest = bytes;
    for field in 0..row.spec().fields().len() {
        let fixed = row.spec().fields()[field].row_bytes();
        let is_ragged = row.spec().fields()[field].as_ragged().is_some();
        let len = if is_ragged {
            let Some((len, after)) = rest.split_first_chunk::<LENGTH>() else { return false };
            rest = after;
            usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX)
        } else {
            fixed
        };
        let Some((bytes, after)) = rest.split_at_checked(len) else { return false };
        rest = after;
        if row.put(field, bytes).is_err() {
            return false;
        }
    }
    rest.is_empty()
}
