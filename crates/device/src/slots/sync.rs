//! Synchronization primitives: the standard library's, or loom's in loom tests.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

/// Locks `mutex` and ignores poisoning, because the data of a slot is valid at every step of a critical
/// section.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Sleeps until `condition` is notified, for at most `limit`. Loom's models have no time, so in a model the
/// sleep has no limit. The models show that threads are woken without a limit.
pub(crate) fn sleep<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    match limit.filter(|_| cfg!(not(loom))) {
        None => condition.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner()),
        Some(limit) => {
            condition.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0
        }
    }
}
