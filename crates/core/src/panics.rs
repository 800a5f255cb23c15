//! Conversion of panics in user code into errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, ErrorKind, Result};

/// Runs `work` and turns a panic into an error of kind `Panic` with the message `what: panic message`.
///
/// After a panic, do not use values that `work` changes, except to drop them.
///
/// # Errors
/// `Panic` when `work` panics.
///
/// ```
/// use feedline_core::catch_panic;
/// # std::panic::set_hook(Box::new(|_| {}));
/// let error = catch_panic("the drop of the data set panicked", || panic!("no such file")).unwrap_err();
/// assert_eq!(error.message(), "the drop of the data set panicked: no such file");
/// ```
pub fn catch_panic<T>(what: &str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|payload| Error::new(ErrorKind::Panic, format!("{what}: {}", panic_text(payload))))
}

/// The message of a caught panic, and drops its payload.
///
/// The payload may be of any type. If its drop panics too, that second payload is dropped if it is text, and
/// leaked otherwise.
///
/// ```
/// # std::panic::set_hook(Box::new(|_| {}));
/// let payload = std::panic::catch_unwind(|| panic!("no such file")).unwrap_err();
/// assert_eq!(feedline_core::panic_text(payload), "no such file");
/// ```
pub fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let message = text(&*payload).unwrap_or("no message").to_owned();
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
        && text(&*second).is_none()
    {
        std::mem::forget(second);
    }
    message
}

fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}
