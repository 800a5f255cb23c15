//! Copies long rows of a data set written in Python directly from the arrays that own them, and finds arrays
//! that share memory.

use std::ffi::c_int;
use std::ops::Range;

use feedline::dataset::Rows;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

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

/// The beginning of an array of NumPy, whose layout its headers promise: `PyArrayObject_fields`.
#[repr(C)]
struct Array {
    head: pyo3::ffi::PyObject,
    data: *const u8,
    dimensions: c_int,
    shape: *const isize,
    strides: *const isize,
}

impl Array {
    /// The addresses from the first byte to the end of the last element, and the greatest common divisor of
    /// the strides; `None` if there are no elements.
    fn span(&self, item: usize) -> Option<(Range<isize>, isize)> {
        let (mut start, mut end) = (self.data.addr() as isize, self.data.addr() as isize + item as isize);
        let mut step = 0;
        for dimension in 0..self.dimensions as usize {
            let (count, stride) = (at(self.shape, dimension), at(self.strides, dimension));
            if count == 0 {
                return None;
            }
            let to_last = (count - 1) * stride;
            if to_last < 0 {
                start += to_last
            } else {
                end += to_last
            }
            if count > 1 {
                step = divisor(step, stride.abs());
            }
        }
        Some((start..end, step))
    }
}

/// An extent or a stride of an array, which has as many as dimensions.
fn at(numbers: *const isize, dimension: usize) -> isize {
    let number = numbers.wrapping_add(dimension);
    // SAFETY: `span` asks for those of dimensions that the array has.
    unsafe { *number }
}

fn divisor(one: isize, other: isize) -> isize {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// The positions of the arrays that share memory with another of `arrays`, which have elements of `item`
/// bytes.
#[pyfunction]
pub(crate) fn sharing(
    arrays: &Bound<'_, PyList>,
    kind: &Bound<'_, PyType>,
    item: usize,
) -> PyResult<Vec<usize>> {
    let (mut spans, mut steps) = (Vec::with_capacity(arrays.len()), Vec::with_capacity(arrays.len()));
    for (position, array) in arrays.iter().enumerate() {
        if !array.get_type().is(kind) {
            return Err(PyTypeError::new_err("not an array"));
        }
        // SAFETY: `_memory.py` gives NumPy's type as `kind`, so the object is an array of NumPy. The iterator
        // of `arrays` keeps it, and the interpreter's lock is held.
        let array = unsafe { &*array.as_ptr().cast::<Array>() };
        if let Some((span, step)) = array.span(item) {
            spans.push((0, span.start, span.end, position));
            steps.push(step);
        }
    }
    // Arrays of one step, such as the columns of a matrix, share nothing if they begin at another place of
    // it.
    let (step, item) = (steps.first().copied().unwrap_or(0), item as isize);
    let first = spans.first().map_or(0, |span| span.1);
    let are_even = step > item && step % item == 0 && spans.iter().all(|span| (span.1 - first) % item == 0);
    if are_even && steps.iter().all(|&other| other == step) {
        spans.iter_mut().for_each(|span| span.0 = span.1.rem_euclid(step));
    }
    Ok(shared(spans))
}

/// As [`sharing`], for rows of `bytes` bytes at some addresses.
#[pyfunction]
pub(crate) fn sharing_at(addresses: Vec<usize>, bytes: usize) -> Vec<usize> {
    let at = |(position, &start): (usize, &usize)| (0, start as isize, (start + bytes) as isize, position);
    shared(addresses.iter().enumerate().filter(|_| bytes > 0).map(at).collect())
}

/// The positions of the spans that overlap another one of their group. A span has its group, its start, its
/// end and its position.
fn shared(mut spans: Vec<(isize, isize, isize, usize)>) -> Vec<usize> {
    // Most rows are of one size and apart: that is seen by their starts alone.
    if let Some(&(group, start, end, _)) = spans.first()
        && spans.iter().all(|span| span.0 == group && span.2 - span.1 == end - start)
    {
        let mut starts: Vec<_> = spans.iter().map(|span| span.1).collect();
        starts.sort_unstable();
        if starts.windows(2).all(|pair| pair[1] - pair[0] >= end - start) {
            return Vec::new();
        }
    }
    spans.sort_unstable();
    let mut shared = Vec::new();
    let mut last: Option<(isize, isize, usize)> = None;
    for (group, start, end, position) in spans {
        last = match last {
            Some((its, until, of)) if its == group && start < until => {
                shared.extend([of, position]);
                Some(if end > until { (group, end, position) } else { (group, until, of) })
            }
            _ => Some((group, end, position)),
        };
    }
    shared.sort_unstable();
    shared.dedup();
    shared
}
