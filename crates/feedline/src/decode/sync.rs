//! The locks of the queue: the standard library's, or loom's models of them (`tests/loom_queue.rs`).

use std::time::Duration;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Sleeps until `condition` is notified, for at most `limit`. In loom's models, where there is no time,
/// without a limit: they
/// show that the limit is not needed where workers are woken.
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    #[cfg(not(loom))]
    return condition.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
    #[cfg(loom)]
    {
        let _ = limit;
        condition.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
