//! DLPack tensors as `PyCapsule`.

use std::ffi::{CStr, c_void};

use feedline_dlpack::Exported;
use feedline_dlpack::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject};
use pyo3::prelude::*;

const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// A capsule of `tensor`. It has the structure of DLPack 1.0 if `is_versioned`, and otherwise the older
/// structure.
pub(crate) fn capsule(py: Python<'_>, tensor: Exported, is_versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    if is_versioned {
        let raw = tensor.into_raw();
        // SAFETY: the pointer is not null, the name is static, and the destructor fits the tensor.
        let made = unsafe { PyCapsule_New(raw.cast(), VERSIONED.as_ptr(), Some(drop_versioned)) };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, made) }
    } else {
        let raw = tensor.into_raw_unversioned();
        // SAFETY: as above.
        let made = unsafe { PyCapsule_New(raw.cast(), UNVERSIONED.as_ptr(), Some(drop_unversioned)) };
        // SAFETY: as above.
        unsafe { Bound::from_owned_ptr_or_err(py, made) }
    }
}

/// The tensor of a capsule if no consumer has taken it. A consumer renames the capsule.
fn untaken(capsule: *mut PyObject, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: called by a destructor with its capsule; the name is a static string.
    let is_untaken = unsafe { PyCapsule_IsValid(capsule, name.as_ptr()) } == 1;
    // SAFETY: as above, and the capsule has this name.
    is_untaken.then(|| unsafe { PyCapsule_GetPointer(capsule, name.as_ptr()) })
}

/// The destructor of a versioned capsule. It calls the tensor's deleter, because a consumer that refuses a
/// tensor does not.
unsafe extern "C" fn drop_versioned(capsule: *mut PyObject) {
    let Some(raw) = untaken(capsule, VERSIONED) else { return };
    let raw = raw.cast::<DLManagedTensorVersioned>();
    // SAFETY: from `Exported::into_raw`, and not deleted.
    if let Some(delete) = unsafe { (*raw).deleter } {
        // SAFETY: the only call for this tensor.
        unsafe { delete(raw) };
    }
}

/// The destructor of an unversioned capsule.
unsafe extern "C" fn drop_unversioned(capsule: *mut PyObject) {
    let Some(raw) = untaken(capsule, UNVERSIONED) else { return };
    let raw = raw.cast::<DLManagedTensor>();
    // SAFETY: from `Exported::into_raw_unversioned`, and not deleted.
    if let Some(delete) = unsafe { (*raw).deleter } {
        // SAFETY: the only call for this tensor.
        unsafe { delete(raw) };
    }
}
