//! Copies long rows of a data set written in Python directly from the arrays that own them.

use feedline::dataset::Rows;
use pyo3::prelude::*;

/// The addresses of a field's rows, and the Python arrays that own them, from `_columns._Fixed.rows`.
#[derive(FromPyObject)]
pub(crate) struct Placed(Vec<usize>, Py<PyAny>);

/// The elements of a field of a batch: their address, their number of bytes, and the array that owns them.
#[derive(FromPyObject)]
pub(crate) struct Whole(usize, usize, Py<PyAny>);

impl Whole {
    /// Copies the elements to `column`, without the interpreter's lock. Returns false if the sizes differ.
    pub(crate) fn copy(&self, column: &mut [u8]) -> bool {
        let Self(address, bytes, _array) = self;
        if column.len() != *bytes {
            return false;
        }
        if !column.is_empty() {
            let from = std::ptr::with_exposed_provenance::<u8>(*address);
            // SAFETY: `_own.Hook` gives the address and the bytes of a compact array, which `self` keeps.
            column.copy_from_slice(unsafe { std::slice::from_raw_parts(from, *bytes) });
        }
        true
    }
}

impl Placed {
    /// Copies the rows into field `index` of the first `count` rows, without the interpreter's lock. Returns
    /// false if there are fewer rows.
    pub(crate) fn copy(&self, rows: &mut Rows<'_>, index: usize, count: usize) -> bool {
        let Self(addresses, _arrays) = self;
        let bytes = rows.spec().fields()[index].row_bytes();
        if bytes == 0 || addresses.len() != count || count > rows.len() {
            return false;
        }
        let row = |&address: &usize| {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: `_columns.py` gives the address of a compact array whose type and shape are those of
            // the field, so it has `bytes` bytes. The list of the arrays keeps it, and NumPy resizes no array
            // that is referred to. A thread that changes its elements meanwhile makes a wrong byte, as in a
            // copy by NumPy.
            unsafe { std::slice::from_raw_parts(from, bytes) }
        };
        rows.write(index, addresses.iter().map(row));
        true
    }
}
