//! The source line of a device call, for messages.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static CURRENT: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// While this lives, device calls of this thread are counted at one source line.
///
/// A method cannot see its caller through a trait object, so the safe layer notes it here. The outermost one
/// counts: the line in the user's code.
///
/// ```
/// use feedline_device::backend::CallSite;
/// #[track_caller]
/// fn submit() -> Option<u32> {
///     let _site = CallSite::enter();
///     CallSite::current().map(|site| site.line())
/// }
/// assert_eq!(submit(), Some(line!()));
/// assert_eq!(CallSite::current(), None);
/// ```
#[derive(Debug)]
#[must_use = "the call site is forgotten when this is dropped"]
pub struct CallSite {
    is_outermost: bool,
}

impl CallSite {
    /// Stores the line of the caller, unless an outer call has stored its own.
    #[track_caller]
    pub fn enter() -> Self {
        let is_outermost = CURRENT.get().is_none();
        if is_outermost {
            CURRENT.set(Some(Location::caller()));
        }
        Self { is_outermost }
    }

    /// The line of the call in progress on this thread; `None` for a call on the backend itself.
    pub fn current() -> Option<&'static Location<'static>> {
        CURRENT.get()
    }
}

impl Drop for CallSite {
    fn drop(&mut self) {
        if self.is_outermost {
            CURRENT.set(None);
        }
    }
}
