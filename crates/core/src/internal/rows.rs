//! A batch's rows in a slab, for workers and for sets that read other sets.

use std::ops::Range;

use crate::{Error, Layout, ReadError, Result, Rows, Spec};

/// The first `len` rows of `slab`.
///
/// # Panics
/// If `slab` is smaller than the layout, or `len` exceeds the layout's capacity.
pub fn new<'a>(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Rows<'a> {
    Rows::new(layout, slab, len)
}

/// Like `new`, for a slab whose rows are written but not yet in their form.
///
/// # Panics
/// As for `new`.
pub fn filled<'a>(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Rows<'a> {
    Rows::filled(layout, slab, len)
}

/// Rows `first..first + len` of a batch, from one column of bytes per field of `spec`.
///
/// # Panics
/// If there is not exactly one column per field, of exactly `len` rows, or a field is ragged.
pub fn from_columns<'a>(
    spec: &'a Spec,
    columns: impl IntoIterator<Item = &'a mut [u8]>,
    first: usize,
    len: usize,
) -> Rows<'a> {
    Rows::from_columns(spec, columns, first, len)
}

/// Makes `write` copy by `copy`, such as a function that bypasses the caches.
///
/// `copy` gets a place and the rows for it, which are together exactly as long.
pub fn copied_by<'a>(rows: Rows<'a>, copy: fn(to: &mut [u8], rows: &[&[u8]])) -> Rows<'a> {
    rows.copied_by(copy)
}

/// In debug builds, sets every byte to 0xFF: NaN in every float type, -1 in every signed integer type.
pub fn poison(rows: &mut Rows<'_>) {
    rows.poison()
}

/// Checks that every row of every ragged field was written, and that `Bool` fields have no byte but 0
/// and 1.
///
/// # Errors
/// `Sample` for the first row that violates this, with the row.
pub fn check_written(rows: &mut Rows<'_>) -> Result<(), (usize, Error)> {
    rows.check_written()
}

/// Calls `read` with these rows, and checks that it has written every ragged row before an error, and
/// that it has not exchanged the rows for others.
///
/// # Errors
/// As `read`; `Sample` for a row that was not written, and for exchanged rows. All with the row.
pub fn read_by(
    rows: &mut Rows<'_>,
    read: impl FnOnce(&mut Rows<'_>) -> Result<(), (usize, ReadError)>,
) -> Result<(), (usize, ReadError)> {
    rows.read_by(read)
}

/// The address of these rows: different for other rows.
pub fn place(rows: &Rows<'_>) -> (usize, usize, usize) {
    rows.place()
}

/// The index in the batch of the first row.
pub fn first(rows: &Rows<'_>) -> usize {
    rows.first()
}

/// The rows `range`, for another reader.
///
/// # Panics
/// If the range is not inside the rows.
pub fn part<'r>(rows: &'r mut Rows<'_>, range: Range<usize>) -> Rows<'r> {
    rows.part(range)
}

/// As `Row::written_bytes_mut` for row `row`, with a longer lifetime.
pub fn written_bytes_mut<'r>(rows: &'r mut Rows<'_>, row: usize, index: usize) -> Result<&'r mut [u8]> {
    rows.written_bytes_mut(row, index)
}
