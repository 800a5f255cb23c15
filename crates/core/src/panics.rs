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
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let error = Error::new(ErrorKind::Panic, format!("{what}: {}", text(&*payload)));
        // Another payload may be a user's type whose drop panics again.
        if !payload.is::<String>() && !payload.is::<&str>() {
            std::mem::forget(payload);
        }
        error
    })
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
