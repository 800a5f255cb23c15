//! The memory of a strided column, for the device that gathers its rows.

use crate::StridedColumn;

/// The memory that contains the rows.
pub fn bytes<'a>(column: &StridedColumn<'a>) -> &'a [u8] {
    column.bytes()
}

/// The byte at which row 0 begins.
pub fn first<'a>(column: &StridedColumn<'a>) -> usize {
    column.first()
}

/// Bytes from the beginning of one row to the beginning of the next.
pub fn stride<'a>(column: &StridedColumn<'a>) -> usize {
    column.stride()
}

/// Number of rows, at least one.
pub fn rows<'a>(column: &StridedColumn<'a>) -> usize {
    column.rows()
}

/// Bytes per row, at least one.
pub fn row_bytes<'a>(column: &StridedColumn<'a>) -> usize {
    column.row_bytes()
}

/// Row `id`; `None` when there is no such row.
pub fn row<'a>(column: &StridedColumn<'a>, id: u64) -> Option<&'a [u8]> {
    column.row(id)
}
