//! The interpreter's state of a loader's thread, kept between its calls.
//!
//! The interpreter makes a state when a thread enters and frees it when it leaves: 80 us of system calls in a
//! call that reads samples of 1 us, and the end of what Python code has put into `threading.local`.

use std::cell::OnceCell;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interpreter::{attach, is_worker};

thread_local! {
    static KEPT: OnceCell<Kept> = const { OnceCell::new() };
}

/// Keeps the state of this thread until the thread ends, if it is a loader's.
pub(crate) fn keep(_: Python<'_>) {
    // While a thread ends there is no more cell.
    let _ = KEPT.try_with(|kept| {
        if is_worker() {
            kept.get_or_init(Kept::new);
        }
    });
}

/// The thread is counted as within the interpreter once more than it is.
struct Kept(());

impl Kept {
    fn new() -> Self {
        // SAFETY: the thread is attached, as `keep` has shown, so this counts and does nothing else.
        unsafe { ffi::PyGILState_Ensure() };
        Self(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Once the interpreter shuts down, it frees the states of all threads.
        let _ = attach(|_| {
            // SAFETY: undoes the call in `new`; `attach` has counted too, so the state is freed when it
            // returns.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) };
            Ok(())
        });
    }
}
