//! Turns panics of other crates' parsers into errors.

use std::cell::Cell;
use std::sync::Once;

use feedline_core::{Result, catch_panic};

use crate::error::{data, one_line};

thread_local! {
    /// Whether a panic of this thread becomes an error. It is then not printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `parse`. A panic becomes an error about `what`, and is not printed.
///
/// The Parquet crate panics if lengths within a page are wrong. Other sizes are checked before it runs.
pub(crate) fn catch_panics<T>(what: &str, parse: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    // A thread that is unwinding cannot set the hook.
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if !QUIET.try_with(Cell::get).unwrap_or_default() {
                    before(panic);
                }
            }));
        });
    }
    let outer = QUIET.replace(true);
    let parsed = catch_panic(what, parse);
    QUIET.set(outer);
    parsed.unwrap_or_else(|panic| {
        let why = format!("{what} is damaged: fetch the file again");
        Err(data(why).with_source(one_line(panic.message())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_next_one_outside_is_a_panic() {
        let error = catch_panics("a page", || -> Result<()> { panic!("at\n7") }).unwrap_err();
        assert!(error.message().contains("a page is damaged"), "{error}");
        assert!(!error.to_string().contains('\n') && !QUIET.get());
        assert_eq!(catch_panics("a page", || Ok(3)).unwrap(), 3);
    }
}
