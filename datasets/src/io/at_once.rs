//! Works on many shards at the same time.

use std::sync::{Mutex, PoisonError};

use feedline_core::{Result, on_threads};

/// Max shards that are opened at the same time. This is enough to hide the round trips of a store.
const THREADS: usize = 16;

/// Runs `work` on each item. Returns the results in the order of the items, or the error of the first item
/// that failed.
pub(crate) fn at_once<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = items.len().min(THREADS);
    let items = Mutex::new(items.into_iter().enumerate());
    let done = on_threads(threads, "fl-shards", || {
        let mut done = Vec::new();
        loop {
            let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, item)) = next else { return done };
            done.push((number, work(item)));
        }
    });
    let mut done: Vec<_> = done.into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
