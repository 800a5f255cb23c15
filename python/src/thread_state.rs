//! Keeps the interpreter's thread state of a loader's thread between its calls.
//!
//! Without this, the interpreter makes a state when a thread enters, and frees it when the thread leaves.
//! This takes 80 us of system calls, even for a sample of 1 us, and loses the values in `threading.local`.

use std::cell::OnceCell;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interpreter::{attach, is_worker};

thread_local! {
    static KEPT: OnceCell<Kept> = const { OnceCell::new() };
}

/// Keeps the state of this thread until the thread ends, if it is a thread of a loader.
pub(crate) fn keep(_: Python<'_>) {
    // The cell does not exist any more while the thread ends.
    let _ = KEPT.try_with(|kept| {
        if is_worker() {
            kept.get_or_init(Kept::new);
        }
    });
}

/// An additional entry in the interpreter's count for this thread. The entry keeps the thread's state.
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
