//! Panics that are caught and print nothing.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread prints nothing.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
    /// The source line of the last panic that printed nothing.
    static LINE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`. Returns its result or the payload of its panic, and the source line of the panic.
pub(super) fn silently<T>(work: impl FnOnce() -> T) -> (Result<T, Box<dyn Any + Send>>, Option<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_SILENT.get() {
                return previous(panic);
            }
            LINE.set(panic.location().map(ToString::to_string));
        }));
    });
    let was_silent = IS_SILENT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_SILENT.set(was_silent);
    (result, LINE.take())
}
