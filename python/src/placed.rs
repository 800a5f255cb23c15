//! Long rows of a data set written in Python, copied from the arrays that have them.

use pyo3::prelude::*;

/// The addresses of the rows of a field, and the arrays of Python that they are of: of `_columns._Fixed.rows`.
#[derive(FromPyObject)]
pub(crate) struct Placed(Vec<usize>, Py<PyAny>);

impl Placed {
    /// Copies the rows to `column`, without the interpreter's lock. Returns whether it has room for as many.
    pub(crate) fn copy(&self, column: &mut [u8], row: usize) -> bool {
        let Self(addresses, _arrays) = self;
        if row == 0 || column.len() != addresses.len() * row {
            return false;
        }
        for (&address, to) in addresses.iter().zip(column.chunks_exact_mut(row)) {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: `_columns.py` gives the address of a compact array whose type and shape are those of the
            // field, so it has `row` bytes. The list of the arrays keeps it, and NumPy resizes no array that is
            // referred to. A thread that changes its elements meanwhile makes a wrong byte, as in a copy by NumPy.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), row) };
        }
        true
    }
}
