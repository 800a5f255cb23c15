//! One row, for workers and for sets that read other sets.

use crate::{ReadError, Result, Row, Rows};

/// A one-row view of this row, for splitting fields.
pub fn as_rows_mut<'r>(row: &'r mut Row<'_, '_>) -> Rows<'r> {
    row.as_rows_mut()
}

/// Like `Rows::read_by`, for this row.
///
/// # Errors
/// As `Rows::read_by`.
pub fn read_by<'a>(
    row: &mut Row<'_, 'a>,
    read: impl FnOnce(&mut Row<'_, 'a>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    row.read_by(read)
}

/// Like `Rows::poison`, for this row.
pub fn poison(row: &mut Row<'_, '_>) {
    row.poison()
}
