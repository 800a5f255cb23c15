//! Panics of user code, turned into errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, ErrorKind, Result};

/// Runs `work` and turns a panic in it into an error of kind `Panic`: `what`, then the panic's message.
///
/// Nothing that `work` changes may be used after a panic, other than to drop it.
///
/// # Errors
/// `Panic` when `work` panicked.
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
        // The payload is user code as well: its drop could panic again.
        std::mem::forget(payload);
        error
    })
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
