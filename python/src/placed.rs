//! Copies long rows of a data set written in Python directly from the arrays that own them, and finds arrays
//! that share memory.

use std::ffi::c_int;
use std::ops::Range;

use feedline::dataset::Rows;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

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
    base: *const pyo3::ffi::PyObject,
    dtype: *const pyo3::ffi::PyObject,
    flags: c_int,
}

/// The flag of an array whose memory is its own: `NPY_ARRAY_OWNDATA`.
const OWNS_MEMORY: c_int = 4;

impl Array {
    /// The addresses from the first byte to the end of the last element; `None` if there are no elements.
    fn span(&self, item: usize) -> Option<Range<isize>> {
        let (mut start, mut end) = (self.data.addr() as isize, self.data.addr() as isize + item as isize);
        for dimension in 0..self.dimensions as usize {
            let count = at(self.shape, dimension);
            if count == 0 {
                return None;
            }
            let to_last = (count - 1) * at(self.strides, dimension);
            if to_last < 0 { start += to_last } else { end += to_last }
        }
        Some(start..end)
    }

    fn owns_memory(&self) -> bool {
        self.flags & OWNS_MEMORY != 0 && self.base.is_null()
    }

    /// The greatest common divisor of the strides.
    fn step(&self) -> isize {
        let dimensions = (0..self.dimensions as usize).filter(|&dimension| at(self.shape, dimension) > 1);
        dimensions.fold(0, |step, dimension| divisor(step, at(self.strides, dimension).abs()))
    }
}

/// An extent or a stride of an array, which has as many as dimensions.
fn at(numbers: *const isize, dimension: usize) -> isize {
    let number = numbers.wrapping_add(dimension);
    // SAFETY: the callers ask for those of dimensions that the array has.
    unsafe { *number }
}

fn divisor(one: isize, other: isize) -> isize {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// The array of NumPy that an object is, whose type is `kind`.
fn array<'a>(object: &'a Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> PyResult<&'a Array> {
    if !object.get_type().is(kind) {
        return Err(PyTypeError::new_err("not an array"));
    }
    // SAFETY: `_memory.py` gives NumPy's type as `kind`, so the object is an array of NumPy. The reference
    // keeps it, and the interpreter's lock is held.
    Ok(unsafe { &*object.as_ptr().cast::<Array>() })
}

/// The addresses of the first elements of arrays.
#[pyfunction]
pub(crate) fn addresses(arrays: &Bound<'_, PyList>, kind: &Bound<'_, PyType>) -> PyResult<Vec<usize>> {
    arrays.iter().map(|object| Ok(array(&object, kind)?.data.addr())).collect()
}

/// Whether nothing else refers to any of the values, which have `refs` references: objects, or `arrays` that
/// own their memory. So none is another one, and none shares memory with another one.
#[pyfunction]
pub(crate) fn are_new(
    values: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyType>,
    refs: isize,
    arrays: bool,
) -> PyResult<bool> {
    for_each(values, |_, value| {
        let is_alone = !is_referred_to(&value, refs);
        Ok(is_alone && (!arrays || value.get_type().is(kind) && array(&value, kind)?.owns_memory()))
    })
}

/// The positions of the values that have more than `refs` references, or whose memory has: that of an array
/// may be another object's. Those in the memory of an object whose address is `known` are left out.
#[pyfunction]
pub(crate) fn kept(
    values: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyType>,
    refs: isize,
    known: Vec<usize>,
) -> PyResult<Vec<usize>> {
    let mut kept = Vec::new();
    for_each(values, |position, value| {
        let base = if value.get_type().is(kind) { array(&value, kind)?.base } else { std::ptr::null() };
        // SAFETY: an array has a reference to its base, if it has a base. The interpreter's lock is held.
        let is_shared = !base.is_null() && unsafe { pyo3::ffi::Py_REFCNT(base.cast_mut()) } > 1;
        let owner = if base.is_null() { value.as_ptr().addr() } else { base.addr() };
        if (is_shared || is_referred_to(&value, refs)) && !known.contains(&owner) {
            kept.push(position);
        }
        Ok(true)
    })?;
    Ok(kept)
}

/// Calls `look` with each item of a list or a tuple, until it returns false. Returns whether all are true.
fn for_each(
    values: &Bound<'_, PyAny>,
    mut look: impl FnMut(usize, Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    let mut all = |items: &mut dyn Iterator<Item = Bound<'_, PyAny>>| {
        for (position, value) in items.enumerate() {
            if !look(position, value)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match values.cast::<PyTuple>() {
        Ok(tuple) => all(&mut tuple.iter()),
        Err(_) => all(&mut values.cast::<PyList>()?.iter()),
    }
}

/// Whether there are more than `refs` references to a value, beside the one given.
fn is_referred_to(value: &Bound<'_, PyAny>, refs: isize) -> bool {
    // SAFETY: the value has a reference. The interpreter's lock is held.
    unsafe { pyo3::ffi::Py_REFCNT(value.as_ptr()) > refs + 1 }
}

/// Whether arrays have one type and shape; with `most`, one to so many items of the shape.
#[pyfunction]
pub(crate) fn are_alike(
    arrays: &Bound<'_, PyList>,
    kind: &Bound<'_, PyType>,
    dtype: &Bound<'_, PyAny>,
    shape: Vec<isize>,
    most: Option<isize>,
) -> PyResult<bool> {
    let first = usize::from(most.is_some());
    for object in arrays {
        let array = array(&object, kind)?;
        let is_typed = array.dtype == dtype.as_ptr() && array.dimensions as usize == first + shape.len();
        let is_alike = is_typed
            && most.is_none_or(|most| (1..=most).contains(&at(array.shape, 0)))
            && shape
                .iter()
                .enumerate()
                .all(|(dimension, &count)| at(array.shape, first + dimension) == count);
        if !is_alike {
            return Ok(false);
        }
    }
    Ok(true)
}

/// From where to where each array of a list reaches, with its group and its position.
type Spans = Vec<(isize, isize, isize, usize)>;

/// The positions of the arrays that share memory with another of `arrays`, which have elements of `item`
/// bytes.
#[pyfunction]
pub(crate) fn sharing(
    arrays: &Bound<'_, PyList>,
    kind: &Bound<'_, PyType>,
    item: usize,
) -> PyResult<Vec<usize>> {
    let mut spans = Spans::with_capacity(arrays.len());
    for (position, object) in arrays.iter().enumerate() {
        if let Some(span) = array(&object, kind)?.span(item) {
            spans.push((0, span.start, span.end, position));
        }
    }
    if are_apart(&spans) {
        return Ok(Vec::new());
    }
    // Arrays of one step, such as the columns of a matrix, share nothing if they begin at another place of
    // it.
    let steps = spans.iter().map(|span| Ok(array(&arrays.get_item(span.3)?, kind)?.step()));
    let steps = steps.collect::<PyResult<Vec<_>>>()?;
    let (step, first, item) = (steps[0], spans[0].1, item as isize);
    let are_even = step > item && step % item == 0 && spans.iter().all(|span| (span.1 - first) % item == 0);
    if are_even && steps.iter().all(|&other| other == step) {
        spans.iter_mut().for_each(|span| span.0 = span.1.rem_euclid(step));
    }
    Ok(shared(spans))
}

/// As [`sharing`], for rows of `bytes` bytes at some addresses.
#[pyfunction]
pub(crate) fn sharing_at(addresses: &Bound<'_, PyList>, bytes: isize) -> PyResult<Vec<usize>> {
    let mut spans = Spans::with_capacity(addresses.len());
    for (position, address) in addresses.iter().enumerate() {
        let start = address.extract::<usize>()? as isize;
        spans.push((0, start, start + bytes, position));
    }
    Ok(if bytes == 0 || are_apart(&spans) { Vec::new() } else { shared(spans) })
}

/// Whether no spans overlap, as most do not.
fn are_apart(spans: &Spans) -> bool {
    let mut places: Vec<_> = spans.iter().map(|span| (span.1, span.2)).collect();
    places.sort_unstable();
    places.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

/// The positions of the spans that overlap another one of their group.
fn shared(mut spans: Spans) -> Vec<usize> {
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
